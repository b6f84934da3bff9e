"""What an evaluation decides: each decision alone, fresh every time, and nobody waits for ever."""

import contextlib
import json
import shutil
import subprocess
import threading
from pathlib import Path

import lance
import pytest

import agree
import ripe
from conftest import command, environment
from serving import Serving
from stage import DAY, HOUR, at, jobs
from test_base import TIDY, verdicts
from test_cleanup import EAGER, appended, ids, versions
from test_compaction import count, fragments
from test_coverage import COMPLETED
from test_faults import small_disk  # noqa: F401 - a fixture
from test_races import numbers
from test_references import OFF, broken
from test_reports import killed


@pytest.fixture
def remembering(tmp_path):
    """Settings of runs that share a history."""
    return {"CARETAKER_STATE_DIR": str(tmp_path / "state")}


def ran(root, **settings):
    """One run, however it ends: exit code, jobs by type with their end, and all that was said."""
    done = subprocess.run(
        command("run", root, "--json"), env=environment(**settings), capture_output=True, text=True
    )
    return (
        done.returncode,
        [(job["job"], job["end"]) for job in jobs(done.stdout)],
        done.stdout + done.stderr,
    )


def test_pln_02_a_compaction_that_always_fails_does_not_stop_the_cleanup(root, remembering):
    path = fragments(root, "rotten", [numbers(at, at + 9) for at in range(0, 60, 10)])
    [rotten] = lance.dataset(path).get_fragments()[2].data_files()
    file = Path(path, "data", rotten.path)
    file.write_bytes(bytes(file.stat().st_size))
    failed = cleanups = 0
    for turn in range(5):
        code, ended, said = ran(root, **remembering, **EAGER | at((turn + 1) * HOUR))
        failed += ("compact", "failed") in ended
        cleanups += ("cleanup", "cleaned") in ended
        assert code == (("compact", "failed") in ended) and "panicked" not in said
        assert len(versions(path)) == 1
        appended(path, 1000 + turn, 1000 + turn)
    assert failed >= 2 and cleanups == 5


def test_cmp_19_a_full_disk_is_tried_seldom_and_cleaned_all_the_same(
    small_disk, remembering
):  # noqa: F811
    root = small_disk / "db"
    path = fragments(root, "full", [numbers(at, at + 9) for at in range(0, 500, 10)])
    appended(path, 500, 509)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    tries = [seconds for seconds in range(0, 600, 20) if ran(root, **remembering | at(seconds))[0]]
    waits = [later - earlier for earlier, later in zip(tries, tries[1:])]
    assert 3 <= len(tries) <= 11 and waits == sorted(waits) and waits[0] >= 60, tries
    assert agree.unreferenced(path) == []
    left = len(versions(path))
    code, ended, _ = ran(root, **remembering | EAGER | at(2 * HOUR))
    assert ("cleanup", "cleaned") in ended and len(versions(path)) < left
    ballast.unlink()
    assert ran(root, **remembering | at(3 * HOUR))[:2] == (0, [("compact", "compacted")])
    assert ids(lance.dataset(path)) == list(range(510))


def test_pln_03_a_failed_cleanup_does_not_move_the_marks_of_the_last_success(
    caretaker, root, remembering
):
    path = fragments(root, "marks", [numbers(at, at + 9) for at in range(0, 100, 10)])
    settings = remembering | OFF | EAGER | {"CLEANUP_VERSION_INTERVAL": "5"}
    verdict = lambda seconds: verdicts(caretaker, path, **settings | at(HOUR + seconds))["cleanup"]
    assert ran(root, **settings | at(HOUR))[1] == [("cleanup", "cleaned")]
    for first in range(100, 140, 10):
        appended(path, first, first + 9)
    assert verdict(60)["outcome"] == "not_due", "four versions after the success at ten"
    appended(path, 140, 149)
    mend = broken(path, 12, "cut")
    assert ran(root, **settings | at(HOUR + 100))[1] == [("cleanup", "failed")]
    assert [verdict(seconds)["outcome"] for seconds in (130, 161)] == ["not_due", "due"]
    assert ran(root, **settings | at(HOUR + 161))[1] == [("cleanup", "failed")]
    mend()
    due = verdict(161 + 61)
    assert due["outcome"] == "due" and '"5"' in json.dumps(due).replace(": 5", ': "5"')
    assert ran(root, **settings | at(HOUR + 161 + 61))[1] == [("cleanup", "cleaned")]
    assert versions(path) == [15] and verdict(400)["outcome"] == "not_due"


def test_pln_05_the_alphabet_does_not_decide_who_is_served(root):
    busy, last = [f"a{n:02}" for n in range(4)], ["zz", "żółw"]
    paths = {name: fragments(root, name, [numbers(1, 9)]) for name in [*busy, *last]}
    stop = threading.Event()

    def write():
        while not stop.wait(0.1):
            for name in busy:
                appended(paths[name], 1, 1)

    with Serving(root, AGENT_BUDGET="1") as serving:
        serving.until(lambda s: s.value(COMPLETED) >= 1, "everything was evaluated")
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for name in last:
                for _ in range(15):
                    appended(paths[name], 1, 1)
            served = lambda s: all(count(paths[name]) <= 2 for name in last)
            serving.until(served, "a table at the end of the alphabet is never compacted")
        finally:
            stop.set()
            writer.join()


def test_pln_06_a_hot_table_does_not_crowd_out_quiet_ones(root):
    quiet = [
        fragments(root, f"quiet{n}", [numbers(at, at + 9) for at in (0, 10, 20)]) for n in range(5)
    ]
    hot = fragments(root, "hot", [numbers(0, 0)])
    stop = threading.Event()

    def write():
        while not stop.wait(0.01):
            appended(hot, 0, 0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with Serving(root, AGENT_BUDGET="4", **EAGER | OFF | at(HOUR)) as serving:
            left = lambda path: len(list(Path(path, "_versions").glob("*.manifest")))
            serving.until(
                lambda s: all(left(path) == 1 for path in quiet),
                "some quiet table is never cleaned",
            )
    finally:
        stop.set()
        writer.join()
    assert all(ids(lance.dataset(path)) == list(range(30)) for path in quiet)


# The five decisions in their order, and what starts in the first evaluation.
DECISIONS = ["wal_catchup", "index", "compaction", "cleanup", "remap"]
GATES = {
    "A": ({"COMPACTION_DEFER_REMAP": "0"}, ["due", "held", "due", "due", "not_due"]),
    "B": (ripe.DUE["remap"], ["due", "due", "due", "due", "due"]),
}


@pytest.mark.parametrize("case", GATES)
def test_pln_07_what_is_due_starts_together_in_its_order(caretaker, root, case):
    """A: the index work waits for a compaction that can't defer its remap. B: nothing waits."""
    build = ripe.ripe(caretaker, root)
    if case == "A":
        caretaker("run", root, **ripe.only("remap"))
    # A fold that died right after its commit leaves the catch-up behind.
    killed(root, "fold.committed", **ripe.only("fold"))
    more, outcomes = GATES[case]
    settings = ripe.only("index", "compact", "cleanup") | more
    planned = verdicts(caretaker, build.path, **settings)
    assert [planned[decision]["outcome"] for decision in DECISIONS] == outcomes
    names = list(dict.fromkeys(kind.split("_")[0] for kind, _ in ran(root, **settings)[1]))
    first = {
        "A": ["memwal", "compact", "cleanup"],
        "B": ["memwal", "reindex", "compact", "cleanup", "remap"],
    }[case]
    assert names[: len(first)] == first
    agree.indexes(build.path)


def test_pln_08_versions_that_stay_are_no_reason_to_try_again(caretaker, root, remembering):
    path = fragments(root, "young", [numbers(at, at) for at in range(40)])
    settings = (
        remembering
        | OFF
        | {"CLEANUP_MIN_VERSION_AGE_SECS": str(DAY), "CLEANUP_VERSION_INTERVAL": "20"}
    )
    runs = [ran(root, **settings | at(minute * 60))[1] for minute in range(0, 180, 10)]
    assert runs == [[("cleanup", "cleaned")]] + [[]] * 17
    assert len(versions(path)) == 40
    for n in range(20):
        appended(path, n, n)
    assert ran(root, **settings | at(3 * HOUR))[1] == [("cleanup", "cleaned")]
    assert ran(root, **settings | at(3 * HOUR + 60))[1] == []
    assert ran(root, **settings | at(3 * HOUR + 25 * HOUR))[1] == [("cleanup", "cleaned")]


def test_pln_09_a_table_made_anew_at_the_same_version_is_read_afresh(root):
    """What is known of the old table would say: nothing to do, or name files that are gone."""
    path = fragments(root, "anew", [numbers(0, 99)])
    for _ in range(3):
        lance.dataset(path).update_config({"turn": "1"})
    with Serving(root, **TIDY) as serving:
        serving.until(
            lambda s: s.value("caretaker_table_version", table="anew") == 4, "the first table"
        )
        other = fragments(
            root.parent / "other", "anew", [numbers(at, at + 9) for at in range(500, 540, 10)]
        )
        shutil.rmtree(path)
        shutil.move(other, path)
        serving.ask("/v1/table/anew/evaluate", "POST")
        serving.until(lambda s: count(path) == 1, "the small fragments are not seen")
        serving.until(
            lambda s: s.value("caretaker_table_rows", table="anew") == 40,
            "the old rows are remembered",
        )
    assert ids(lance.dataset(path)) == list(range(500, 540))
