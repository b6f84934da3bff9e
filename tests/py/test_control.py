"""Jobs stopped, held and released by hand, and followed."""

import client  # first: it quiets the libraries

import json
import subprocess

import pytest

import check
from conftest import command, environment
from fleet import agent, worker
from stage import held_at
from test_takeover import FOLD, commits, made
from waiting import until

FORMS = {
    "jobs": lambda word, job: ("jobs", word, job),
    "sql": lambda word, job: ("sql", f"{word.upper()} JOB '{job}'"),
}


@pytest.fixture(params=FORMS)
def say(request, caretaker, database):
    """Says a word about a job, in both ways there are; returns the answer."""

    def said(word, job, exit=0):
        words = FORMS[request.param](word, job)
        done = caretaker(*words, "--json", "--registry", database.url, exit=exit)
        return json.loads(done.stdout)

    return said


def waiting(database):
    [job] = until(lambda: database.jobs("kind = 'memwal_compaction' AND state = 'pending'"), "nothing is planned")
    return job["id"]


def state(database, job):
    return database.value(f"SELECT state FROM caretaker_job WHERE id = '{job}'")


def test_a_job_that_waits_is_paused_resumed_and_cancelled_at_once(database, root, tmp_path, say):
    build = made(root, "fold.written")
    with agent(tmp_path, root, database.url, **FOLD) as planner:
        job = waiting(database)
        planner.kill()
    assert say("pause", job) == {"job_id": job, "answer": "paused"}
    with worker(tmp_path, database.url, **FOLD) as held:
        assert say("pause", job)["answer"] == "unchanged"
        assert held.stop() == 0 and state(database, job) == "paused"
    assert say("resume", job)["answer"] == "resumed" and state(database, job) == "pending"
    assert say("resume", job)["answer"] == "unchanged"
    assert say("cancel", job)["answer"] == "cancelled" and state(database, job) == "cancelled"
    for word in ("cancel", "pause", "resume"):
        assert say(word, job)["answer"] == "ended"
    answer = say("cancel", "00000000-0000-7000-8000-000000000000", exit=2)
    assert "there is no job" in answer["error"] and answer["kind"] == "invalid"
    assert commits(build, "memwal_compaction") == []


@pytest.mark.parametrize("word", ["cancel", "pause"])
def test_a_job_that_runs_stops_at_its_next_safe_point(database, root, tmp_path, say, word):
    build = made(root, "fold.scanned")
    with agent(tmp_path, root, database.url, **FOLD) as planner:
        with worker(tmp_path, database.url, **FOLD | held_at("fold.scanned")) as held:
            held.until_held()
            planner.kill()
            [job] = [job["id"] for job in database.jobs("state = 'running'")]
            assert say(word, job)["answer"] == "asked"
            # Its heart hears of it while the work stands still.
            now = database.value("SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now")
            until(lambda: database.jobs(f"id = '{job}' AND heartbeat_ms > {now}"), "its heart stands still")
            held.release()
            wanted = "cancelled" if word == "cancel" else "paused"
            until(lambda: state(database, job) == wanted, "it does not stop")
            assert commits(build, "memwal_compaction") == []
            if word == "pause":
                assert say("resume", job)["answer"] == "resumed"
                until(lambda: state(database, job) == "succeeded", "it does not go on")
            assert held.stop() == 0
    check.lsm_path(client.connect(root).open_table(build.name), build.expected)
    assert len(commits(build, "memwal_compaction")) == (word == "pause")


def test_a_job_is_followed_to_its_end(database, root, tmp_path, caretaker):
    made(root, "fold.written")
    with agent(tmp_path, root, database.url, **FOLD):
        job = waiting(database)
        words = command("jobs", "watch", job, "--json", "--registry", database.url)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        watching = subprocess.Popen(words, env=environment(), **pipes)
        assert json.loads(watching.stdout.readline())["state"] == "created"
        with worker(tmp_path, database.url, **FOLD):
            out, err = watching.communicate(timeout=60)
    assert watching.returncode == 0, err
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["claim", "claim_complete", "succeeded"]
    shown = json.loads(caretaker("jobs", "show", job, "--json", "--registry", database.url).stdout)
    assert (shown["state"], shown["result"]["end"]) == ("succeeded", "folded")


def test_a_job_that_fails_while_it_is_followed_gives_exit_code_1(database, root, tmp_path):
    made(root, "fold.written")
    with agent(tmp_path, root, database.url, **FOLD) as planner:
        job = waiting(database)
        planner.kill()
    database.run(f"UPDATE caretaker_job SET spec = '{{\"job\":\"nonsense\"}}' WHERE id = '{job}'")
    words = command("jobs", "watch", job, "--registry", database.url)
    watching = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True)
    with worker(tmp_path, database.url, **FOLD):
        out, _ = watching.communicate(timeout=60)
    assert watching.returncode == 1 and "another version of Caretaker" in out
