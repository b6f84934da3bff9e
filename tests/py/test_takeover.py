"""A worker that dies, or stands still past its lease, in the middle of a job; and the one that takes over."""

import client  # first: it quiets the libraries

import json

import lance
import pytest

import agree
import check
import fleet
import ripe
import state
from fleet import OPEN, agent, lapse, leaseless, worker
from stage import held_at
from tables import Build
from waiting import until

# What is ended or held, and the settings under which it is done.
FOLDS = ["fold.scanned", "fold.written", "fold.before_commit", "fold.committed", "job.finish"]
COMPACTIONS = ["compact.rewritten", "compact.committed"]
SOON = {"AGENT_SWEEP_INTERVAL_SECS": "5", "ANSWERS_CHECK_PERCENT": "0"}
NO_COMPACTION = {"COMPACTION_SMALL_FRAGMENTS_MIN": "1000", "COMPACTION_DELETED_PERMILLE": "1000"}
FOLD = SOON | NO_COMPACTION | {"WAL_COMPACT_TRIGGER_COUNT": "1"}
COMPACT = SOON | {"WAL_COMPACT_TRIGGER_COUNT": "1000", "COMPACTION_SMALL_FRAGMENTS_MIN": "2"}
KIND = {**dict.fromkeys(FOLDS, "memwal_compaction"), **dict.fromkeys(COMPACTIONS, "compact")}


def settings(place):
    return COMPACT if place in COMPACTIONS else FOLD


def made(root, place):
    """A table on which the job of `place` is due."""
    root.mkdir()
    build = Build(root, "t")
    rows = [ripe.row(i, 0) for i in range(40)]
    build.create(ripe.FIELDS, rows, btree=["n"], text="text")
    for first in (40, 45, 50):
        ripe.append(build, [ripe.row(i, 1) for i in range(first, first + 5)])
    if place not in COMPACTIONS:
        for gen in (2, 3):
            build.put([ripe.row(i, gen) for i in range(gen, 60, 5)])
        build.delete([ripe.row(i, 0) for i in (4, 11, 41)])
    build.done()
    return build


def settled(build, place):
    """Whether all SSTables have left the list, where that is what is done here."""
    left = [shard.sstables for shard in state.read(build.path).shards.values()]
    return place in COMPACTIONS or not any(left)


def until_done(database, build, place):
    """Until nothing is left to do: between two jobs there is a moment without one."""

    done = lambda: not database.jobs(f"state IN {OPEN}") and settled(build, place)
    until(done, lambda: f"it does not come to rest: {database.jobs()}")


def told(build, place):
    """What must be true of the table at the end."""
    check.full_scan(lance.dataset(build.path), build.expected)
    check.lsm_path(client.connect(build.root).open_table(build.name), build.expected)
    agree.indexes(build.path)
    assert settled(build, place)


def commits(build, kind):
    """Versions whose commit is of this kind of job."""
    dataset, found = lance.dataset(build.path), []
    for version in dataset.versions():
        try:
            properties = dataset.read_transaction(version["version"]).transaction_properties or {}
        except TypeError:
            # pylance can't read that of a rewrite, which nobody else does here.
            properties = {"caretaker.job": "compact"}
        found += [version["version"]] * (properties.get("caretaker.job") == kind)
    return found


@pytest.mark.parametrize("place", FOLDS + COMPACTIONS)
def test_a_worker_killed_in_the_middle_is_replaced_by_another(database, root, tmp_path, place):
    """JOB-01, JOB-12, JOB-10 at `job.finish` and behind a commit."""
    build, care = made(root, place), settings(place)
    with agent(tmp_path, root, database.url, **care):
        with worker(tmp_path, database.url, **care | held_at(place)) as first:
            first.until_held()
            [job] = database.jobs("state = 'running'")
            first.kill()
        with worker(tmp_path, database.url, **care):
            assert database.value(f"SELECT state FROM caretaker_job WHERE id = '{job['id']}'") == "running"
            lapse(database)
            until_done(database, build, place)
            [ended] = database.jobs(f"id = '{job['id']}'")
            assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
            assert leaseless(database) == []
            if place in ("fold.committed", "job.finish"):
                assert "recovered" in ended["result"]
            told(build, place)
            assert {job["state"] for job in database.jobs()} == {"succeeded"}
    assert len(commits(build, "memwal_compaction")) == (place in FOLDS)


def test_what_a_dead_worker_had_is_taken_over_within_a_minute(database, root, tmp_path):
    """The lease as it is."""
    build = made(root, "fold.written")
    with agent(tmp_path, root, database.url, **FOLD):
        with worker(tmp_path, database.url, **FOLD | held_at("fold.written")) as first:
            first.until_held()
            first.kill()
        with worker(tmp_path, database.url, **FOLD):
            until(lambda: database.jobs("attempt = 2"), "nobody took over")
            until_done(database, build, "fold.written")
    told(build, "fold.written")


@pytest.mark.parametrize("place", FOLDS + COMPACTIONS)
def test_with_a_file_for_a_registry_it_is_taken_over_at_once(caretaker, root, tmp_path, place):
    """JOB-12: the file lock of the dead process tells, no lease has to run out."""
    build, care = made(root, place), settings(place) | {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    jobs = lambda: [json.loads(line) for line in caretaker("jobs", "list", "--json", **care).stdout.splitlines()]
    with fleet.Process(tmp_path, "serve", root, **care | held_at(place)) as first:
        first.until_held()
        [job] = [job for job in jobs() if job["state"] == "running"]
        first.kill()
    with fleet.Process(tmp_path, "serve", root, **care):
        # Well within a lease.
        again = lambda: [j for j in jobs() if j["id"] == job["id"] and j["state"] == "succeeded"]
        [ended] = until(again, lambda: f"{jobs()}", 20)
        assert ended["attempt"] == 2
        rest = lambda: not [j for j in jobs() if j["state"] in ("pending", "running")] and settled(build, place)
        until(rest, lambda: f"{jobs()}")
    told(build, place)
