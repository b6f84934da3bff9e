"""Tables of every shape, folded: the same rows by every way to read, and then nothing more to do."""

import json
import os
from types import SimpleNamespace

import lance
import pytest

import check
import client
import state
from conftest import table_path
from tables import SHAPES, Build

SEED = os.environ.get("SEED", "1")


@pytest.fixture(scope="module", params=SHAPES)
def folded(request, caretaker, tmp_path_factory):
    """A table of one shape after one `run`."""
    root = tmp_path_factory.mktemp(request.param)
    build = Build.of(request.param, root, SEED)
    check.table(root, build.name, build.expected, waiting=True)
    caretaker("run", root)
    return SimpleNamespace(root=root, name=build.name, path=build.path, build=build)


def test_folded_rows_read_the_same_every_way(folded):
    check.table(folded.root, folded.name, folded.build.expected)


def test_all_sstables_are_folded_indexes_caught_up_and_nothing_is_listed(folded):
    seen = state.read(folded.path)
    indexes = {i.name for i in lance.dataset(folded.path).describe_indices() if not i.name.startswith("__lance_")}
    assert seen.shards
    for shard in seen.shards.values():
        last = shard.next_generation - 1
        assert seen.compacted[shard.id] == last
        assert shard.sstables == []
        assert {name: seen.caught_up[name][shard.id] for name in indexes} == dict.fromkeys(indexes, last)


def test_a_second_run_writes_nothing(folded, caretaker):
    before = state.files(folded.root)
    caretaker("run", folded.root)
    assert state.files(folded.root) == before


def test_the_folded_table_takes_writes_and_folds_again(folded, caretaker):
    build = folded.build
    dataset = lance.dataset(folded.path)
    rows = dataset.scanner(blob_handling="all_binary", limit=12).to_table().to_pylist()
    rows = rows or [{"id": 1, "v": "again"}, {"id": 2, "v": "again"}]
    put = build.put_with_blobs if build.expected.blobs else build.put
    put(rows)
    build.delete(rows[:3])
    check.table(folded.root, folded.name, build.expected, waiting=True)
    caretaker("compact", folded.path)
    caretaker("run", folded.root)
    check.table(folded.root, folded.name, build.expected)


def test_plan_and_facts_write_nothing_and_speak_json(caretaker, root):
    for shape in ("buckets", "indexed"):
        Build.of(shape, root)
    before = state.files(root)
    plans = [json.loads(line) for line in caretaker("plan", root, "--json").stdout.splitlines()]
    due = {p["table"]: {v["decision"] for v in p["verdicts"] if v["outcome"] == "due"} for p in plans}
    assert due == {"buckets": {"fold"}, "indexed": {"fold"}}
    json.loads(caretaker("facts", table_path(root, "indexed"), "--json").stdout)
    assert state.files(root) == before


def test_one_run_tends_every_table_of_a_database(caretaker, root):
    builds = [Build.of(shape, root) for shape in ("plain_int64", "composite_key", "indexed", "growth")]
    caretaker("run", root)
    for build in builds:
        check.table(root, build.name, build.expected)


def test_few_sstables_wait_for_more_or_for_compact(caretaker, root):
    build = Build.of("plain_int64", root)
    before = state.files(root)
    caretaker("run", root, WAL_COMPACT_TRIGGER_COUNT="7")
    assert state.files(root) == before
    caretaker("compact", build.path, WAL_COMPACT_TRIGGER_COUNT="7")
    check.table(root, build.name, build.expected)


def test_small_passes_end_in_the_same_rows(caretaker, root):
    builds = [Build.of(shape, root) for shape in ("tombstones", "buckets", "indexed")]
    settings = {"WAL_COMPACT_PREFIX_MAX": "1", "WAL_COMPACT_TRIGGER_COUNT": "1"}
    caretaker("run", root, **settings)
    for build in builds:
        check.table(root, build.name, build.expected)


def test_a_table_without_an_lsm_spec_is_left_alone(caretaker, root):
    db = client.connect(root)
    db.create_table("plain", [{"id": 1, "v": "a"}])
    before = state.files(root)
    caretaker("run", root)
    assert state.files(root) == before
