"""A registry that is full, locked, too new, away or gone for good; who shares it; and what must not be in it."""

import client  # first: it quiets the libraries

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import lance
import pytest

import fleet
import postgres
import ripe
from conftest import command, environment
from fleet import agent, lapse, leaseless, worker
from postgres import USER
from proxy import Proxy
from stage import held_at
from test_takeover import FOLD, commits, made, settled, told, until_done
from waiting import MINUTE, until

# Where nothing else makes it so, a lease passes in this time.
LEASE = 45


@contextlib.contextmanager
def disk(size):
    """A small file system that PostgreSQL's user can reach."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    folder = Path(tempfile.mkdtemp(prefix="disk"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


def fill(folder):
    """Leaves no room; returns what takes it. Again: takes what has become free since."""
    with (folder / "ballast").open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return folder / "ballast"


def test_a_worker_cut_off_in_the_middle_of_a_claim_holds_nothing_for_long(database, root, tmp_path, server):
    """Its transaction stays open at the server, with the locks of all it touched; and later it works again."""
    build = made(root, "fold.written")
    with Proxy(server.port) as proxy, agent(tmp_path, root, database.url, **FOLD):
        with worker(tmp_path, database.at(proxy.port), **FOLD) as first:
            proxy.cut(before=b"UPDATE caretaker_job SET state = 'running'")
            until(lambda: proxy.is_cut, "it never claims")
            proxy.mend()
            until(lambda: database.jobs("state <> 'pending'"), "it claims nothing more", MINUTE)
            until_done(database, build, "fold.written")
            build.put([ripe.row(i, 7) for i in range(5)])
            proxy.cut(before=b"COMMIT")
            until(lambda: proxy.is_cut, "it never commits")
            with worker(tmp_path, database.url, **FOLD):
                done = lambda: database.jobs("kind = 'memwal_compaction' AND outcome = 'done'")
                until(lambda: len(done()) == 2, lambda: f"nobody else gets it: {database.jobs()}", LEASE)
                until_done(database, build, "fold.written")
            proxy.mend()
            build.put([ripe.row(i, 8) for i in range(5, 9)])
            until(lambda: len(done()) == 3, lambda: f"{database.jobs()}: {first.said()[-2000:]}", LEASE)
            until_done(database, build, "fold.written")
    build.done()
    told(build, "fold.written")


def test_a_full_registry_on_postgresql_stops_nothing_that_it_has(server, root, tmp_path):
    build = made(root, "fold.written")
    with disk("24m") as folder, contextlib.ExitStack() as stack:
        (folder / "space").mkdir()
        shutil.chown(folder / "space", "postgres")
        everything = postgres.Database(server.port, "postgres")
        everything.run(f"CREATE TABLESPACE small LOCATION '{folder / 'space'}'")
        everything.run("CREATE DATABASE small TABLESPACE small")
        stack.callback(lambda: everything.run("DROP TABLESPACE small"))
        stack.callback(lambda: everything.run("DROP DATABASE small WITH (FORCE)"))
        database = postgres.Database(server.port, "small")
        with worker(tmp_path, database.url, **FOLD):
            ballast = fill(folder)
            with agent(tmp_path, root, database.url, **FOLD) as planner:

                def refused():
                    # Pages that PostgreSQL has already may have room for a job or two, and it frees files late.
                    fill(folder)
                    if settled(build, "fold.written"):
                        build.put([ripe.row(i, 7) for i in range(20)])
                    return "is full" in planner.said()

                until(refused, lambda: planner.said()[-3000:])
                assert "panicked" not in planner.said()
                ballast.unlink()
                until_done(database, build, "fold.written")
    told(build, "fold.written")


def test_a_full_registry_in_a_file_is_a_clear_error_and_is_filled_later(caretaker, root, tmp_path):
    build = made(root, "fold.written")
    with disk("4m") as folder:
        care = FOLD | {"CARETAKER_STATE_DIR": str(folder / "state")}
        with fleet.Process(tmp_path, "serve", root, **care) as serving:
            until(lambda: settled(build, "fold.written"), lambda: serving.said()[-3000:])
            ballast = fill(folder)
            build.put([ripe.row(i, 7) for i in range(20)])
            serving.until_said("disk is full")
            for command in ("run", "serve"):
                done = caretaker(command, root, exit=1, **care)
                assert "can't be written" in done.stdout + done.stderr
            ballast.unlink()
            until(lambda: settled(build, "fold.written"), lambda: serving.said()[-3000:])
            assert "panicked" not in serving.said() and serving.stop() == 0
    build.done()
    told(build, "fold.written")


def test_a_read_only_file_is_a_clear_error(caretaker, root):
    made(root, "fold.written")
    with disk("4m") as folder:
        state = {"CARETAKER_STATE_DIR": str(folder / "state")}
        caretaker("jobs", "list", **state)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        for name in ("serve", "run"):
            assert "write access" in caretaker(name, root, exit=2, **FOLD, **state).stderr
        # A look needs to write nothing, but SQLite does where the last writer took its index file along.
        done = subprocess.run(
            command("plan", root), env=environment(**FOLD, **state), capture_output=True, text=True
        )
        assert done.returncode == 0 or done.returncode == 2 and "write access" in done.stderr


@pytest.mark.parametrize("may", ["nothing", "read"])
def test_a_user_without_rights_is_a_clear_error(caretaker, database, root, may):
    made(root, "fold.written")
    reader = f"reader_{database.name}"
    database.run(f"CREATE ROLE {reader} LOGIN")
    if may == "read":
        caretaker("jobs", "list", "--registry", database.url)
        database.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}")
    url = database.at(database.port, reader)
    for words in (("serve", root), ("worker",)):
        said = caretaker(*words, "--registry", url, exit=2, **FOLD).stderr
        assert "can't be written" in said and "permission denied" in said


def test_a_registry_of_a_newer_version_is_left_alone(caretaker, database, root, tmp_path):
    made(root, "fold.written")
    state = tmp_path / "state"
    for registry in ({"CARETAKER_REGISTRY": database.url}, {"CARETAKER_STATE_DIR": str(state)}):
        caretaker("jobs", "list", **registry)
    database.run("INSERT INTO caretaker_schema VALUES (99)")
    with sqlite3.connect(state / "caretaker.sqlite") as file:
        file.execute("PRAGMA user_version = 99")
    for registry in ({"CARETAKER_REGISTRY": database.url}, {"CARETAKER_STATE_DIR": str(state)}):
        for words in (("serve", root), ("worker",), ("jobs", "list"), ("plan", root)):
            assert "newer Caretaker (schema 99" in caretaker(*words, exit=2, **registry).stderr, words


def test_a_registry_that_is_not_there_at_the_start_is_a_clear_error(caretaker, database, root, server):
    made(root, "fold.written")
    with Proxy(server.port) as proxy:
        proxy.cut()
        silent, closed = database.at(proxy.port), database.at(1)
        for url in (silent, closed):
            for words in (("serve", root), ("worker",), ("jobs", "list")):
                said = caretaker(*words, "--registry", url, exit=1).stderr
                assert "can't be reached" in said and url.split("@")[1] in said
    missing = postgres.Database(server.port, "missing").url
    assert "createdb" in caretaker("worker", "--registry", missing, exit=2).stderr


def test_a_job_whose_registry_is_gone_for_good_is_given_up_within_its_lease(database, root, tmp_path, server):
    build = made(root, "fold.written")
    with agent(tmp_path, root, database.url, **FOLD) as planner:
        with worker(tmp_path, database.url, **FOLD | held_at("fold.written")) as held:
            held.until_held()
            server.stop(signal.SIGKILL)
            held.until_said("given up", LEASE)
            held.release()
            assert held.stop() == 0
        assert commits(build, "memwal_compaction") == []
        assert planner.runs() and "panicked" not in planner.said()
        server.start()
        lapse(database)
        with worker(tmp_path, database.url, **FOLD):
            until_done(database, build, "fold.written")
    told(build, "fold.written")
    assert len(commits(build, "memwal_compaction")) == 1 and leaseless(database) == []


def test_a_registry_that_is_away_is_no_fault_of_a_table_and_work_goes_on_when_it_is_back(
    database, root, tmp_path, server
):
    made(root, "fold.written")
    never = FOLD | {"WAL_COMPACT_TRIGGER_COUNT": "1000"}
    with agent(tmp_path, root, database.url, **never | {"AGENT_SWEEP_INTERVAL_SECS": "5"}) as planner:
        evaluated = lambda: planner.value("caretaker_evaluations_total", outcome="done") or 0
        until(evaluated, "nothing is evaluated")
        server.stop(signal.SIGKILL)
        planner.until_said("nothing is evaluated until the registry answers")
        server.start()
        planner.until_said("the registry answers again")
        before = evaluated()
        # Sooner than any back-off of a failed table would let it.
        until(lambda: evaluated() > before, lambda: planner.said()[-3000:], 30)
        assert planner.value("caretaker_tables_failing") == 0
        assert "table fails" not in planner.said()


def test_a_job_whose_registry_is_away_finishes_while_its_lease_holds(database, root, tmp_path, server):
    build = made(root, "fold.written")
    with agent(tmp_path, root, database.url, **FOLD):
        with worker(tmp_path, database.url, **FOLD | held_at("fold.written")) as held:
            held.until_held()
            server.stop(signal.SIGKILL)
            held.release()
            until(lambda: commits(build, "memwal_compaction"), "it does not commit", LEASE)
            held.kill()
        server.start()
        lapse(database)
        with worker(tmp_path, database.url, **FOLD):
            until_done(database, build, "fold.written")
    [job] = database.jobs("attempt = 2")
    assert "recovered" in job["result"]
    told(build, "fold.written")
    assert len(commits(build, "memwal_compaction")) == 1


def test_agents_divide_the_tables_and_the_others_take_over_from_one_that_goes(database, root, tmp_path):
    first = root / "t00.lance"
    lance.write_dataset(ripe.pa.table({"id": [1, 2, 3]}), str(first))
    for number in range(1, 20):
        shutil.copytree(first, root / f"t{number:02}.lance")
    count = lambda process: process.value("caretaker_tables")
    with agent(tmp_path, root, database.url) as one, agent(tmp_path, root, database.url) as other:
        until(lambda: 0 < count(one) < 20 and count(one) + count(other) == 20, "they do not divide them")
        assert other.stop() == 0
        until(lambda: count(one) == 20, "it does not take over at once", 10)
        with agent(tmp_path, root, database.url) as third:
            until(lambda: 0 < count(one) < 20 and count(one) + count(third) == 20, "they do not divide them")
            third.kill()
            until(lambda: count(one) == 20, "it does not take over within a lease", LEASE)
        until(lambda: one.value("lance_agent_coverage_never_evaluated") == 0, "some are never evaluated")


def test_no_secret_is_in_the_registry_or_in_a_log(caretaker, database, root, tmp_path, server):
    build = made(root, "fold.written")
    password, key = "pass-of-the-registry", "key-of-the-storage"
    url = database.url.replace(USER, f"{USER}:{password}", 1)
    secrets = {"AWS_SECRET_ACCESS_KEY": key, "CARETAKER_REGISTRY": url, "RUST_LOG": "trace"}
    care = FOLD | secrets
    none = {"CARETAKER_WORKER_JOBS": "0"}
    with fleet.Process(tmp_path, "serve", root, **care | none), fleet.Process(tmp_path, "worker", **care):
        until_done(database, build, "fold.written")
        # Errors speak of addresses, too.
        server.stop(signal.SIGINT)
        said = caretaker("jobs", "list", exit=1, **secrets)
        server.start()
        build.put([ripe.row(i, 7) for i in range(5)])
        until_done(database, build, "fold.written")
    shown = [said.stdout + said.stderr]
    for words in (("settings",), ("settings", "--json"), ("jobs", "list", "--json"), ("plan", root)):
        done = caretaker(*words, **secrets)
        shown.append(done.stdout + done.stderr)
    dump = subprocess.run([postgres.program("pg_dump"), "--inserts", database.url], capture_output=True, text=True)
    assert dump.returncode == 0 and "memwal_compaction" in dump.stdout
    logs = [log.read_text(errors="replace") for log in tmp_path.glob("*.log")]
    assert any("TRACE" in log for log in logs)
    for text in [*shown, *logs, dump.stdout]:
        assert password not in text and key not in text
