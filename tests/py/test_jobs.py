"""Jobs between those who plan them and those who do them: planned twice, refused at the end, without progress."""

import client  # first: it quiets the libraries

import json
import signal
import subprocess
import threading
import urllib.request

import lance

import fleet
import ripe
from conftest import command, environment
from fleet import OPEN, agent, leaseless, worker
from stage import held_at
from test_takeover import FOLD, commits, made, told, until_done
from waiting import MINUTE, until

STALL = 60
ROUNDS = 10


def evaluate(process, table="t"):
    [line] = [line for line in process.said().splitlines() if "answering HTTP" in line][:1]
    url = f"http://{json.loads(line)['address']}/v1/table/{table}/evaluate"
    urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=MINUTE).read()


def test_event_sweep_and_command_at_the_same_instant_are_one_job_a_round(database, root, tmp_path, caretaker):
    """JOB-09."""
    build = made(root, "fold.written")
    care = FOLD | {"AGENT_SWEEP_INTERVAL_SECS": "1", "CARETAKER_REGISTRY": database.url}
    with agent(tmp_path, root, database.url, **care) as planner, worker(tmp_path, database.url, **care):
        until_done(database, build, "fold.written")
        for turn in range(ROUNDS):
            before = len(database.jobs("kind = 'memwal_compaction' AND outcome = 'done'"))
            build.put([ripe.row(i, 10 + turn) for i in range(turn, 40, 6)])
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            by_hand = subprocess.Popen(command("compact", build.path), env=environment(**care), **pipes)
            asking = [threading.Thread(target=evaluate, args=(planner,)) for _ in range(10)]
            [thread.start() for thread in asking]
            [thread.join() for thread in asking]
            said = by_hand.communicate(timeout=MINUTE)[0]
            assert by_hand.returncode in (0, 3), said
            until_done(database, build, "fold.written")
            done = database.jobs("kind = 'memwal_compaction' AND outcome = 'done'")
            assert len(done) == before + 1, f"round {turn}: {done[before:]}"
    build.done()
    told(build, "fold.written")
    assert database.jobs("state = 'failed'") == []
    assert len(commits(build, "memwal_compaction")) == ROUNDS + 1


def test_an_agent_that_is_restarted_while_a_job_runs_does_not_plan_it_again(database, root, tmp_path):
    """JOB-09."""
    build = made(root, "fold.written")
    with worker(tmp_path, database.url, **FOLD | held_at("fold.written")) as held:
        with agent(tmp_path, root, database.url, **FOLD) as first:
            held.until_held()
            first.kill()
        with agent(tmp_path, root, database.url, **FOLD) as second:
            until(lambda: second.value("lance_agent_coverage_cycles_completed_total") >= 2, "it evaluates")
            assert [job["state"] for job in database.jobs()] == ["running"]
            held.release()
            until_done(database, build, "fold.written")
    told(build, "fold.written")
    assert len(database.jobs("kind = 'memwal_compaction'")) == 1


def test_an_end_that_the_registry_refuses_once_is_written_down_all_the_same(database, root, tmp_path, server):
    """JOB-10: PostgreSQL is gone between the commit of the fold and the word of it."""
    build = made(root, "job.finish")
    with agent(tmp_path, root, database.url, **FOLD):
        with worker(tmp_path, database.url, **FOLD | held_at("job.finish")) as held:
            held.until_held()
            [job] = database.jobs("state = 'running'")
            server.stop(signal.SIGINT)
            held.release()
            server.start()
            until_done(database, build, "job.finish")
    [ended] = database.jobs(f"id = '{job['id']}'")
    assert (ended["state"], ended["attempt"], ended["outcome"]) == ("succeeded", 1, "done")
    told(build, "job.finish")
    assert len(commits(build, "memwal_compaction")) == 1 and leaseless(database) == []


def test_a_job_that_does_nothing_is_stopped_and_its_late_wakeup_changes_nothing(database, root, tmp_path):
    """JOB-05. Three times the shortest patience there is: it can't be made to pass faster."""
    build = made(root, "fold.written")
    stall = FOLD | {"CARETAKER_JOB_STALL_SECS": str(STALL)}
    with agent(tmp_path, root, database.url, **FOLD), worker(
        tmp_path, database.url, **stall | held_at("fold.written")
    ) as held:
        held.until_held()
        [job] = database.jobs("state = 'running'")
        versions = len(lance.dataset(build.path).versions())
        ended = lambda: database.jobs(f"id = '{job['id']}' AND state = 'failed'")
        [failed] = until(ended, "it is never stopped", 5 * STALL)
        assert "no progress" in failed["message"]
        # The shard is free: a fold of others goes through, and what was dropped does not wake up.
        held.release()
        until(lambda: database.jobs("kind = 'memwal_compaction' AND outcome = 'done'"), "nobody folds", 3 * MINUTE)
        until_done(database, build, "fold.written")
    told(build, "fold.written")
    assert len(commits(build, "memwal_compaction")) == 1
    assert versions < len(lance.dataset(build.path).versions())


def test_jobs_that_beat_are_not_taken_away_however_busy_the_agent_is(database, root, tmp_path):
    """JOB-06: an evaluation that stands still for longer than a lease, beside a job that does so too."""
    build = made(root, "fold.written")
    with agent(tmp_path, root, database.url, **FOLD) as planner:
        with worker(tmp_path, database.url, **FOLD | held_at("fold.written")) as held:
            held.until_held()
            planner.freeze()
            with agent(tmp_path, root, database.url, **FOLD | held_at("evaluate.before")) as slow:
                slow.until_held()
                [job] = database.jobs("state = 'running'")
                beats = f"id = '{job['id']}' AND heartbeat_ms > {job['heartbeat_ms'] + 35_000}"
                until(lambda: database.jobs(beats), "its heart stands still")
                held.release()
                done = lambda: database.jobs(f"id = '{job['id']}' AND state = 'succeeded'")
                [ended] = until(done, "it does not end")
                assert (ended["attempt"], ended["outcome"]) == (1, "done")
                slow.release()
                planner.thaw()
                until_done(database, build, "fold.written")
    assert database.rows("SELECT * FROM caretaker_event WHERE state = 'lost'") == []
    told(build, "fold.written")


def test_a_second_compactor_of_another_kind_neither_crashes_the_first_nor_folds_again(database, root, tmp_path):
    """JOB-13: one with remote maintenance off and one with it on, each with a worker of its own."""
    build = made(root, "fold.written")
    own = FOLD | {"CARETAKER_REMOTE_MAINTENANCE": "off", "CARETAKER_WORKER_JOBS": "2"}
    any_ = FOLD | {"CARETAKER_WORKER_JOBS": "2"}
    with fleet.Process(tmp_path, "serve", root, "--registry", database.url, **own | held_at("fold.written")) as first:
        first.until_held()
        with fleet.Process(tmp_path, "serve", root, "--registry", database.url, **any_) as second:
            until(lambda: second.value("caretaker_tables") is not None, "it serves")
            first.release()
            until_done(database, build, "fold.written")
            assert sum(process.value("caretaker_tables") for process in (first, second)) == 1
            for process in (first, second):
                assert process.stop() == 0 and "panicked" not in process.said()
    told(build, "fold.written")
    assert len(commits(build, "memwal_compaction")) == 1
    assert database.jobs("state = 'failed'") == [] and database.jobs(f"state IN {OPEN}") == []
