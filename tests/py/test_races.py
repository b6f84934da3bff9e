"""Reports from the field of writers and jobs that came exactly between two steps of a job."""

import lance
import pyarrow as pa
import pytest

import agree
import check
from stage import Held
from tables import ID, Build
from test_base import FOLD, TIDY, rows_of
from test_compaction import fragments

INLINE = TIDY | {"COMPACTION_DEFER_REMAP": "0"}
DEFERRED = TIDY | {"COMPACTION_DEFER_REMAP": "1"}


def numbers(first, last):
    return pa.table({"id": pa.array(range(first, last + 1), pa.int64())})


def ends(jobs, kind="compact"):
    return [job["end"] for job in jobs if job["job"] == kind]


@pytest.mark.parametrize("settings", [DEFERRED, INLINE], ids=["deferred", "inline"])
@pytest.mark.parametrize("stable", [False, True])
def test_cmp_01_a_delete_between_plan_and_commit_stays(caretaker, root, settings, stable):
    parts = [numbers(at, at + 9) for at in range(1, 101, 10)]
    path = fragments(root, "deleted", parts, enable_stable_row_ids=stable)
    lance.dataset(path).create_scalar_index("id", index_type="BTREE")
    with Held(root, "compact.rewritten", **settings) as held:
        lance.dataset(path).delete("id IN (5, 15, 25)")
        lance.write_dataset(numbers(101, 110), path, mode="append")
        assert ends(held.release()) == ["superseded", "compacted"]
    want = [i for i in range(1, 111) if i not in (5, 15, 25)]
    assert [row["id"] for row in rows_of(path)] == want
    agree.indexes(path, {"id": [5, 15, 25]})
    caretaker("run", root, **settings)
    assert [row["id"] for row in rows_of(path)] == want
    agree.indexes(path, {"id": [5, 15, 25]})


def small(root, **storage):
    """Three rows in three fragments, and an SSTable that deletes the second and brings a fourth."""
    root.mkdir()
    build = Build(root, "small")
    row = lambda i, v: {"id": i, "v": v}
    build.create(
        [ID, pa.field("v", pa.string())], [row(1, "a")], btree=["id"], storage=storage or None
    )
    for other in (row(2, "b"), row(3, "c")):
        lance.dataset(build.path).insert(build._arrow([other]))
        build._remember([other])
    build.delete([row(2, None)])
    build.put([row(4, "d")])
    build.done()
    return build


STABLE = {"new_table_enable_stable_row_ids": "true"}
COMPACT_ONLY = {"WAL_COMPACT_TRIGGER_COUNT": "100"}
FOLD_ONLY = FOLD | {"COMPACTION_SMALL_FRAGMENTS_MIN": "100", "COMPACTION_DELETED_PERMILLE": "1000"}


@pytest.mark.parametrize("storage", [{}, STABLE], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("settings", [DEFERRED, INLINE], ids=["deferred", "inline"])
def test_cmp_02_a_fold_during_a_compaction_is_not_undone(caretaker, root, settings, storage):
    build = small(root, **storage)
    with Held(root, "compact.rewritten", **settings | COMPACT_ONLY) as held:
        caretaker("run", root, **FOLD_ONLY)
        held.release()
    caretaker("run", root, **settings)
    check.table(root, build.name, build.expected)


@pytest.mark.parametrize("storage", [{}, STABLE], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("settings", [DEFERRED, INLINE], ids=["deferred", "inline"])
@pytest.mark.parametrize("place", ["fold.scanned", "fold.before_commit"])
def test_cmp_02_a_compaction_during_a_fold_is_not_undone(caretaker, root, place, settings, storage):
    build = small(root, **storage)
    with Held(root, place, **FOLD_ONLY) as held:
        caretaker("run", root, **settings | COMPACT_ONLY)
        held.release()
    caretaker("run", root, **settings)
    check.table(root, build.name, build.expected)


def wide(first, last):
    blobs = lance.blob_array([bytes([i]) * 300_000 for i in range(first, last + 1)])
    ids = pa.array(range(first, last + 1), pa.int64())
    return pa.Table.from_arrays([ids, blobs], schema=pa.schema([ID, lance.blob_field("b")]))


@pytest.mark.parametrize("rows", [numbers, wide])
@pytest.mark.parametrize("settings", [DEFERRED, INLINE], ids=["deferred", "inline"])
def test_cmp_16_a_lost_race_leaves_nothing_on_the_disk(root, settings, rows):
    path = fragments(root, "lost", [rows(0, 3)], data_storage_version="2.2")
    alive = set(range(4))
    for first in (10, 20, 30):
        lance.write_dataset(rows(first, first + 3), path, mode="append")
        lance.dataset(path).create_scalar_index("id", index_type="BTREE")
        with Held(root, "compact.rewritten", **settings) as held:
            lance.dataset(path).delete(f"id = {first}")
            assert ends(held.release()) == ["superseded", "compacted"]
        alive |= {first + 1, first + 2, first + 3}
        assert agree.unreferenced(path) == []
    assert {row["id"] for row in lance.dataset(path).to_table(columns=["id"]).to_pylist()} == alive
    agree.indexes(path, {"id": [10, 20, 30]})
