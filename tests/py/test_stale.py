"""JOB-11: a worker that stands still past its lease, and wakes up after another has done its job."""

import client  # first: it quiets the libraries

import os

import boto3
import lance
import lancedb
import pyarrow as pa
import pytest
from lancedb.index import BTree

import agree
from fleet import OPEN, agent, lapse, worker
from stage import held_at
from test_s3 import BUCKET, SCHEMA, s3
from test_takeover import FOLD, commits, made, told, until_done
from waiting import until

assert s3  # a fixture
FOLDS = ["fold.scanned", "fold.written", "fold.before_commit"]


def filled(database):
    """A table in the bucket, and the rows it must hold."""
    connection = lancedb.connect(database)
    table = connection.create_table("items", pa.table({"id": range(50), "v": ["base"] * 50}, schema=SCHEMA))
    table.set_unenforced_primary_key(["id"])
    table.create_index("id", config=BTree())
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
    want = dict.fromkeys(range(50), "base")
    for n in range(3):
        rows = {n: f"new {n}", 100 + n: f"new {n}"}
        want |= rows
        rows = pa.table({"id": list(rows), "v": list(rows.values())}, schema=SCHEMA)
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        table.close_lsm_writers()
    return table.uri, want


def stray(uri):
    """Files of the base in the bucket that no version needs."""
    tracked = set(lance.dataset(uri).tracked_files().read_all()["path"].to_pylist())
    prefix = uri.removeprefix(f"s3://{BUCKET}/") + "/"
    bucket = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT"])
    pages = bucket.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    names = [entry["Key"].removeprefix(prefix) for page in pages for entry in page.get("Contents", [])]
    return [name for name in names if name.split("/")[0] in agree.FOLDERS and name not in tracked]


def versions(uri):
    return [version["version"] for version in lance.dataset(uri).versions()]


@pytest.mark.parametrize("place", [*FOLDS, "retire.before"])
def test_who_wakes_up_after_another_has_finished_adds_nothing(database, s3, tmp_path, place):
    """On object storage, where no lock says that the one who stands still lives."""
    root = f"{s3}/{place}"
    uri, want = filled(root)
    with agent(tmp_path, root, database.url, **FOLD):
        with worker(tmp_path, database.url, **FOLD | held_at(place)) as first:
            first.until_held()
            [job] = database.jobs("state = 'running'")
            first.freeze()
            lapse(database)
            with worker(tmp_path, database.url, **FOLD) as second:
                retired = lambda: database.jobs("kind = 'memwal_retire' AND outcome = 'done'")
                until(lambda: retired() and not database.jobs(f"state IN {OPEN}"), lambda: f"{database.jobs()}")
                assert second.stop() == 0
            before = versions(uri)
            first.release()
            first.thaw()
            first.until_said("another worker")
            assert first.stop() == 0 and "panicked" not in first.said()
    assert versions(uri) == before
    for lsm in (False, True):
        found = lancedb.connect(root).open_table("items").search().use_lsm(lsm).limit(1_000).to_arrow()
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist())) == want
        assert len(found) == len(want)
    assert stray(uri) == []
    [ended] = database.jobs(f"id = '{job['id']}'")
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)


@pytest.mark.parametrize("place", FOLDS)
def test_in_a_folder_the_latch_of_who_stands_still_lets_nobody_in(database, root, tmp_path, place):
    """There the process that has the file's lock lives; who came for its job goes on with others."""
    build = made(root, place)
    with agent(tmp_path, root, database.url, **FOLD):
        with worker(tmp_path, database.url, **FOLD | held_at(place)) as first:
            first.until_held()
            [job] = database.jobs("state = 'running'")
            first.freeze()
            lapse(database)
            with worker(tmp_path, database.url, **FOLD):
                ended = lambda: database.jobs(f"id = '{job['id']}' AND ended_ms IS NOT NULL")
                [ended] = until(ended, "the job does not end")
                assert (ended["attempt"], ended["outcome"]) == (2, "busy")
                first.release()
                first.thaw()
                first.until_said("another worker")
                assert first.stop() == 0
                until_done(database, build, place)
    told(build, place)
    assert agree.unreferenced(build.path) == []
    assert len(commits(build, "memwal_compaction")) == 1
