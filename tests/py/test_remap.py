"""Indexes whose rows a compaction moved: at every step they answer as a full scan does."""

import random
import subprocess

import lance
import pyarrow as pa
import pytest

import agree
import client
import ripe
import state
from conftest import command, environment
from stage import Held
from tables import vector
from test_base import REMAP, TIDY, jobs, rewrites, rows_of, verdicts
from test_compaction import count, fragments
from test_races import DEFERRED, INLINE, ends, numbers
from test_reports import killed

WAYS = pytest.mark.parametrize("settings", [DEFERRED, INLINE], ids=["deferred", "inline"])


def with_vectors(first, last):
    rng = random.Random(first)
    ids = pa.array(range(first, last + 1), pa.int64())
    cat = pa.array([f"cat{i % 5}" for i in range(first, last + 1)])
    vectors = [vector(rng) for _ in range(first, last + 1)]
    return pa.table({"id": ids, "cat": cat, "vec": pa.array(vectors, pa.list_(pa.float32(), 8))})


def indexed(path, vectors="IVF_PQ"):
    """Gives the table a BTree, a bitmap and a vector index."""
    dataset = lance.dataset(path)
    dataset.create_scalar_index("id", index_type="BTREE")
    dataset.create_scalar_index("cat", index_type="BITMAP")
    how = {"num_sub_vectors": 4, "num_bits": 4} if vectors == "IVF_PQ" else {}
    dataset.create_index("vec", index_type=vectors, num_partitions=2, **how)


def found(path, key):
    return lance.dataset(path).count_rows(f"id = {key}")


@pytest.mark.parametrize("vectors", ["IVF_PQ", "IVF_FLAT"])
@WAYS
def test_rmp_01_a_fragment_emptied_before_a_compaction_stays_empty(
    caretaker, root, settings, vectors
):
    path = fragments(root, "emptied", [with_vectors(at, at + 99) for at in range(0, 1000, 100)])
    indexed(path, vectors)
    lance.dataset(path).delete("id >= 400 AND id < 500")
    want = [*range(400), *range(500, 1000)]

    def holds():
        assert [row["id"] for row in rows_of(path)] == want
        assert (found(path, 450), found(path, 550)) == (0, 1)
        agree.indexes(path, {"id": range(400, 500)})

    caretaker("run", root, **settings)
    holds()
    lance.write_dataset(with_vectors(1000, 1099), path, mode="append")
    want += range(1000, 1100)
    caretaker("run", root, **settings, INDEX_UNINDEXED_ROWS_MIN="1", INDEX_UNINDEXED_PERMILLE="0")
    holds()
    caretaker("run", root, **REMAP)
    assert rewrites(caretaker, path) == 0
    holds()


ZERO = {"all but the second fragment": "id < 10", "only 0": "id = 0", "all but 0": "id != 0"}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize(("gone", "left"), zip(ZERO.values(), (0, 0, 1)), ids=ZERO)
@WAYS
def test_rmp_02_address_zero_is_a_row_like_any_other(caretaker, root, settings, gone, left, stable):
    path = fragments(root, "zero", [numbers(0, 9), numbers(10, 19)], enable_stable_row_ids=stable)
    lance.dataset(path).create_scalar_index("id", index_type="BTREE")
    lance.dataset(path).delete(gone)
    before = rows_of(path)
    for when in (settings, REMAP):
        caretaker("run", root, **when)
        assert rows_of(path) == before
        assert found(path, 0) == left
        agree.indexes(path, {"id": range(20)})


@pytest.mark.parametrize("place", ["compact.rewritten", "compact.committed", "remap.after"])
def test_rmp_03_what_was_not_rewritten_is_found_after_a_run_that_died(caretaker, root, place):
    path = fragments(root, "half", [numbers(at, at + 9) for at in range(0, 40, 10)])
    lance.dataset(path).create_scalar_index("id", index_type="BTREE")
    # One task of two fragments a job, so that a run which dies leaves the other two as they were.
    settings = DEFERRED | REMAP | {"COMPACTION_FRAGMENTS_MAX": "2", "COMPACTION_TARGET_ROWS": "20"}
    env = environment(CARETAKER_CRASH_AT=place, **settings)
    assert subprocess.run(command("run", root), env=env, capture_output=True).returncode < 0
    assert count(path) == {"compact.rewritten": 4, "compact.committed": 3, "remap.after": 2}[place]
    for _ in range(2):
        assert [found(path, i) for i in range(40)] == [1] * 40
        caretaker("run", root, **settings)
    assert (count(path), rewrites(caretaker, path)) == (2, 0)
    agree.indexes(path)


def test_rmp_05_rounds_of_appends_and_deferred_rewrites_leave_no_list(caretaker, root):
    path = fragments(root, "rounds", [with_vectors(at, at + 49) for at in range(0, 400, 50)])
    indexed(path)
    index = {"INDEX_UNINDEXED_ROWS_MIN": "1", "INDEX_UNINDEXED_PERMILLE": "0"}
    for first in (400, 500, 600):
        for at in (first, first + 50):
            lance.write_dataset(with_vectors(at, at + 49), path, mode="append")
        caretaker("run", root, **DEFERRED, **index)
        agree.indexes(path)
    assert rewrites(caretaker, path) > 0
    caretaker("run", root, **REMAP, **index)
    assert rewrites(caretaker, path) == 0
    assert [row["id"] for row in rows_of(path)] == list(range(700))
    agree.indexes(path)
    before = state.files(root)
    caretaker("run", root, **REMAP, **index)
    assert state.files(root) == before


@pytest.mark.parametrize("write", ["append", "delete", "update", "config"])
def test_rmp_05_a_write_after_the_rewrite_does_not_hide_it_from_the_remap(caretaker, root, write):
    path = fragments(root, "written", [numbers(0, 9), numbers(10, 19)])
    lance.dataset(path).create_scalar_index("id", index_type="BTREE")
    caretaker("run", root, **DEFERRED)
    assert rewrites(caretaker, path) == 1
    dataset = lance.dataset(path)
    match write:
        case "append":
            dataset.insert(numbers(20, 20))
        case "delete":
            dataset.delete("id = 3")
        case "update":
            dataset.update({"id": "30"}, where="id = 3")
        case "config":
            dataset.update_config({"any": "thing"})
    caretaker("run", root, **REMAP)
    assert rewrites(caretaker, path) == 0
    agree.indexes(path, {"id": [3]})


WORDS = pa.array([f"word{i} common" for i in range(20)])


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "INVERTED", "IVF_FLAT"])
@pytest.mark.parametrize("how", ["another setting", "the table's own key", "the client"])
def test_a_rewrite_that_remaps_at_once_keeps_the_entries_that_still_wait(
    caretaker, root, how, kind
):
    """A deferred rewrite, deletions, then one in which nothing is deferred. A client that compacts
    by itself knows nothing of entries that wait: the default leaves none."""
    whole = with_vectors(0, 19).append_column("text", WORDS)
    path = fragments(root, "waiting", [whole.slice(0, 10), whole.slice(10)])
    column = {"INVERTED": "text", "IVF_FLAT": "vec"}.get(kind, "id")
    if kind == "IVF_FLAT":
        lance.dataset(path).create_index(column, index_type=kind, num_partitions=1)
    else:
        lance.dataset(path).create_scalar_index(column, index_type=kind)
    caretaker("run", root, **TIDY if how == "the client" else DEFERRED)
    lance.dataset(path).delete("id IN (1, 2, 3, 15)")
    match how:
        case "another setting":
            caretaker("run", root, **INLINE)
        case "the table's own key":
            lance.dataset(path).update_config({"lance.compaction.defer_index_remap": "false"})
            caretaker("run", root, **DEFERRED)
        case "the client":
            client.connect(root).open_table("waiting").optimize()
    agree.indexes(path, {"id": range(20)})
    caretaker("run", root, **REMAP)
    agree.indexes(path, {"id": range(20)})


def test_rmp_05_a_remap_that_died_and_the_next_rewrite_are_made_up_for_at_once(caretaker, root):
    """What still needs the older rewrite keeps Lance from trimming the younger one as well."""
    build = ripe.ripe(caretaker, root)
    killed(root, "remap.after", **ripe.only("remap"))
    lance.dataset(build.path).delete("id IN (3, 41)")
    caretaker("run", root, **ripe.only("compact"))
    caretaker("run", root, **ripe.only("remap"))
    assert rewrites(caretaker, build.path) == 0
    agree.indexes(build.path)


def test_rmp_06_rewrites_that_no_index_covers_are_not_recorded(caretaker, root):
    path = fragments(root, "unindexed", [numbers(0, 9), numbers(10, 19)])
    lance.dataset(path).create_scalar_index("id", index_type="BTREE")
    for turn in range(10):
        for at in (100 + turn * 10, 105 + turn * 10):
            lance.write_dataset(numbers(at, at + 4), path, mode="append")
        caretaker("run", root, **DEFERRED)
        assert rewrites(caretaker, path) <= 1
    assert count(path) == 2
    assert [row["id"] for row in rows_of(path)] == [*range(20), *range(100, 200)]
    agree.indexes(path)


@pytest.mark.parametrize("place", ["compact.rewritten", "compact.committed"])
@WAYS
def test_rmp_07_an_index_extended_from_an_old_handle_beside_a_compaction(
    caretaker, root, settings, place
):
    path = fragments(root, "straddle", [with_vectors(0, 49)])
    indexed(path)
    stale = lance.write_dataset(with_vectors(50, 99), path, mode="append")
    lance.write_dataset(with_vectors(100, 149), path, mode="append")
    with Held(root, place, **settings) as held:
        try:
            stale.optimize.optimize_indices()
        except OSError as refused:
            assert "conflict" in str(refused)
        lost = ends(held.release())
    assert set(lost) <= {"compacted", "superseded"}
    for when in ({}, settings, REMAP):
        caretaker("run", root, **when)
        assert len(lance.dataset(path).describe_indices()) >= 3
        assert [row["id"] for row in rows_of(path)] == list(range(150))
        agree.indexes(path)


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_rmp_09_with_stable_row_ids_nothing_is_deferred_and_nothing_tried_in_vain(
    caretaker, root, kind
):
    parts = [numbers(at, at + 9) for at in range(0, 100, 10)]
    path = fragments(root, "stable", parts, enable_stable_row_ids=True)
    lance.dataset(path).create_scalar_index("id", index_type=kind)
    lance.write_dataset(numbers(100, 109), path, mode="append")
    both = DEFERRED | {"INDEX_UNINDEXED_ROWS_MIN": "1", "INDEX_UNINDEXED_PERMILLE": "0"}
    planned = verdicts(caretaker, path, **both)
    assert [planned[d]["outcome"] for d in ("index", "compaction", "remap")] == [
        "held",
        "due",
        "not_due",
    ]
    done = caretaker("run", root, "--json", **both)
    assert jobs(done)[0] == "compact" and rewrites(caretaker, path) == 0
    assert [row["id"] for row in rows_of(path)] == list(range(110))
    agree.indexes(path)
    assert agree.unreferenced(path) == []
    before = state.files(root)
    caretaker("run", root, **both)
    assert state.files(root) == before
