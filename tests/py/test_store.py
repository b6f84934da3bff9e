"""What an object store may answer: conflicts, true or not, overload, refusals, gaps."""

import client  # first: it quiets the libraries  # noqa: F401

import os
import subprocess

import lance
import pytest

from conftest import command, environment
from faulty import Faulty
from stage import HOUR, at, jobs
from test_base import TIDY
from test_cleanup import EAGER, ids, versions
from test_races import ends, numbers
from test_references import OFF
from test_s3 import s3  # noqa: F401 - a fixture

MANIFEST = r"\.lance/_versions/\d+\.manifest"


@pytest.fixture
def store(s3):  # noqa: F811
    with Faulty(os.environ["AWS_ENDPOINT"]) as proxy:
        yield proxy


@pytest.fixture
def path(s3, request):  # noqa: F811
    """A table in five fragments, written without the proxy."""
    uri = f"{s3}/{abs(hash(request.node.name))}.lance"
    for first in range(0, 50, 10):
        lance.write_dataset(numbers(first, first + 9), uri, mode="append" if first else "create")
    return uri


def ran(path, store, **settings):
    env = environment(**settings | store.settings())
    return subprocess.run(
        command("run", path, "--json"), env=env, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(("status", "times"), [(409, 1), (503, 1), (503, 3), (429, 2), (500, 2)])
def test_cmp_05_an_answer_that_says_nothing_of_the_key_is_tried_again(path, store, status, times):
    store.fault("PUT", MANIFEST, status, times)
    done = ran(path, store, **TIDY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert store.requests("PUT", MANIFEST)[:times] == [status] * times
    assert len(lance.dataset(path).get_fragments()) == 1
    assert ids(lance.dataset(path)) == list(range(50))


def test_cmp_05_a_key_that_another_writer_made_first_is_a_conflict(path, store):
    store.fault("PUT", MANIFEST, None, before=lambda: lance.dataset(path).insert(numbers(50, 59)))
    done = ran(path, store, **TIDY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert store.requests("PUT", MANIFEST)[0] == 412
    assert ids(lance.dataset(path)) == list(range(60))
    assert versions(path) == list(
        range(1, lance.dataset(path).version + 1)
    ), "none was written over"


def test_cmp_05_a_refusal_is_not_tried_again(path, store):
    store.fault("PUT", MANIFEST, 403, 1000)
    done = ran(path, store, **TIDY)
    assert done.returncode == 1 and "panicked" not in done.stderr
    [job] = jobs(done.stdout)
    assert (job["job"], job["end"]) == ("compact", "failed")
    assert "AccessDenied" in job["why"] or "403" in job["why"]
    assert len(store.requests("PUT", MANIFEST)) == 1
    assert ids(lance.dataset(path)) == list(range(50))


@pytest.mark.parametrize("version", [6, 7])
def test_cmp_05_a_commit_whose_answer_was_lost_is_neither_done_twice_nor_taken_for_failed(
    path, store, version
):
    """A compaction makes two: it reserves ids of fragments, then it puts in what has them."""
    store.fault("PUT", str(2**64 - 1 - version), 503, lost=True)
    done = ran(path, store, **TIDY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert store.requests("PUT", MANIFEST).count(412) == 1
    assert ids(lance.dataset(path)) == list(range(50))
    assert (len(lance.dataset(path).get_fragments()), versions(path)[-1]) == (1, 7)


@pytest.mark.parametrize("status", [404, 403])
def test_cln_10_a_manifest_that_cannot_be_read_stops_the_cleanup(path, store, tmp_path, status):
    """Version 4 has a tag, and shares files with 2 and 3, which go, and none with the newest."""
    lance.dataset(path).tags.create("kept", 4)
    lance.write_dataset(numbers(50, 99), path, mode="overwrite")
    fourth = str(2**64 - 1 - 4)
    for method in ("GET", "HEAD"):
        store.fault(method, fourth, status, 1000)
    settings = EAGER | OFF | at(HOUR) | {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    done = ran(path, store, **settings)
    assert ids(lance.dataset(path, version=4)) == list(range(40))
    assert done.returncode == 1, done.stdout
    assert store.requests("DELETE", ".") == [] and store.requests("POST", "delete") == []
    store.faults.clear()
    assert ends(jobs(ran(path, store, **settings).stdout), "cleanup") == [], "it waits a minute"
    again = ran(path, store, **settings | at(HOUR + 61))
    assert ends(jobs(again.stdout), "cleanup") == ["cleaned"]
    assert ids(lance.dataset(path)) == list(range(50, 100))
