"""Ended as by kill -9 between any two steps, started again: the same rows, each key once, by every way to read."""

import datetime
import subprocess
from pathlib import Path

import lance
import pytest

import check
import state
from conftest import command, environment
from tables import Build

SHAPES = ["indexed", "tombstones", "buckets", "stable_row_ids"]
PLACES = [
    "fold.scanned",
    "fold.written",
    "fold.before_commit",
    "fold.committed",
    "catchup.after",
    "retire.before",
    "retire.after",
]
EAGER = {"WAL_COMPACT_TRIGGER_COUNT": "1", "WAL_COMPACT_PREFIX_MAX": "2"}


def crash(root, place, **settings):
    """One `run` that ends at `place`; False if it never came by."""
    settings = environment(CARETAKER_CRASH_AT=place, **settings)
    done = subprocess.run(command("run", root), env=settings, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, -6), done.stderr
    return done.returncode != 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", PLACES)
def test_a_pass_killed_anywhere_is_finished_by_the_next(caretaker, root, shape, place):
    build = Build.of(shape, root)
    if place == "catchup.after" and not [i for i in lance.dataset(build.path).list_indices() if "mem_wal" not in i["name"]]:
        pytest.skip("this shape has no index")
    assert crash(root, place, **EAGER)
    check.table(root, build.name, build.expected, waiting=True)
    caretaker("run", root, **EAGER)
    check.table(root, build.name, build.expected)
    assert all(shard.sstables == [] for shard in state.read(build.path).shards.values())


def test_a_run_killed_after_every_single_catch_up_gets_there_one_index_a_time(caretaker, root):
    build = Build.of("indexed", root)
    crashes = 0
    while crash(root, "catchup.after", WAL_COMPACT_TRIGGER_COUNT="1"):
        crashes += 1
        check.table(root, build.name, build.expected, waiting=True)
        assert crashes < 50
    assert crashes >= 3, "one an index at least"
    check.table(root, build.name, build.expected)


def test_a_collection_killed_in_the_middle_is_finished_by_the_next(caretaker, root):
    build = Build.of("tombstones", root)
    caretaker("run", root, **EAGER)
    dataset = lance.dataset(build.path)
    dataset.cleanup_old_versions(older_than=datetime.timedelta(0), delete_unverified=True)
    keep_nothing = {"COLLECT_GRACE_SECS": "0", **EAGER}
    crashes = 0
    while crash(root, "collect.file", **keep_nothing):
        crashes += 1
        check.table(root, build.name, build.expected)
        assert crashes < 100
    assert crashes >= 2, "more than one file to delete"
    folders = [p.name for p in Path(build.path).glob("_mem_wal/*/*_gen_*")]
    assert folders == []
    check.table(root, build.name, build.expected)
    # The client goes on writing where it left off.
    build.delete([dict(row) for row in list(build.expected.rows.values())[:1]])
    caretaker("run", root, **EAGER)
    check.table(root, build.name, build.expected)
