"""The base's own jobs on real tables: after each of them every way to read gives the same rows."""

import json
import subprocess
import threading
import time

import lance
import pyarrow as pa
import pytest

import check
import state
from conftest import command, environment, table_path
from tables import SHAPES, Build

FOLD = {"WAL_COMPACT_TRIGGER_COUNT": "1"}
TIDY = FOLD | {"COMPACTION_SMALL_FRAGMENTS_MIN": "2"}
DEFER = TIDY | {"COMPACTION_DEFER_REMAP": "1"}
REMAP = DEFER | {"REMAP_REWRITES_MIN": "1"}
CLEAN = TIDY | {
    "CLEANUP_MIN_VERSION_AGE_SECS": "1",
    "CLEANUP_INITIAL_VERSION": "1",
    "CLEANUP_VERSION_INTERVAL": "1",
}
MINUTE = 60


def verdicts(caretaker, path, **settings):
    """The table's verdicts by decision."""
    planned = json.loads(caretaker("plan", path, "--json", **settings).stdout)
    return {v["decision"]: v for v in planned["verdicts"] if "shard" not in v}


def jobs(done):
    """The jobs of `run --json`, by type."""
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    return [job["job"] for report in reports for job in report.get("jobs", [])]


def rewrites(caretaker, path):
    """How many rewrites wait for a remap."""
    return json.loads(caretaker("facts", path, "--json").stdout)["remap"]["rewrites"]


def scattered(root, name="scattered", rows=400, parts=20, **storage):
    """A table in many small fragments, some rows deleted, no LSM writes."""
    path = str(table_path(root, name))
    for part in range(parts):
        ids = range(part * rows // parts, (part + 1) * rows // parts)
        data = pa.table({"id": list(ids), "word": [f"word{i % 7}" for i in ids], "x": [float(i) for i in ids]})
        lance.write_dataset(data, path, mode="append" if part else "create", **storage)
    dataset = lance.dataset(path)
    dataset.delete("id % 10 = 3")
    return path


def rows_of(path):
    return sorted(lance.dataset(path).to_table().to_pylist(), key=lambda row: row["id"])


def until(done, what):
    """Waits for something that only time brings about."""
    end = time.monotonic() + MINUTE
    while not done():
        assert time.monotonic() < end, what


@pytest.mark.parametrize("settings", [TIDY, DEFER], ids=["inline", "deferred"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_compacted_table_reads_the_same_every_way_and_is_left_alone(caretaker, root, shape, settings):
    build = Build.of(shape, root)
    caretaker("run", root, **settings)
    check.table(root, build.name, build.expected)
    before = state.files(root)
    caretaker("run", root, **settings)
    assert state.files(root) == before
    assert verdicts(caretaker, build.path, **settings)["compaction"]["outcome"] == "not_due"


@pytest.mark.parametrize("shape", ["indexed", "quantized", "indexes_not_maintained"])
def test_rmp_05_a_deferred_remap_is_made_up_for_by_every_index_and_the_list_is_trimmed(caretaker, root, shape):
    build = Build.of(shape, root)
    caretaker("run", root, **DEFER)
    assert rewrites(caretaker, build.path) > 0
    check.table(root, build.name, build.expected)
    assert "remap" in jobs(caretaker("run", root, "--json", **REMAP))
    assert rewrites(caretaker, build.path) == 0
    check.table(root, build.name, build.expected)


@pytest.mark.parametrize(
    ("shape", "place"),
    [
        ("indexed", "compact.rewritten"),
        ("indexed", "compact.committed"),
        ("indexed", "index.after"),
        ("indexed", "remap.after"),
        # With stable row ids nothing is deferred (RMP-09), and catch-up finds the rows first.
        ("stable_row_ids", "compact.rewritten"),
        ("stable_row_ids", "compact.committed"),
    ],
)
def test_a_base_job_killed_anywhere_is_finished_by_the_next(caretaker, root, shape, place):
    settings = REMAP | {"INDEX_UNINDEXED_ROWS_MIN": "1", "INDEX_UNINDEXED_PERMILLE": "0"}
    build = Build.of(shape, root)
    caretaker("run", root, COMPACTION_SMALL_FRAGMENTS_MIN="1000", COMPACTION_DELETED_PERMILLE="1000", **FOLD)
    if place == "index.after":
        # Rows that no fold brought: catch-up has no part in them.
        dataset = lance.dataset(build.path)
        fresh = {**next(iter(build.expected.rows.values())), "id": 90_000}
        dataset.insert(pa.Table.from_pylist([fresh], schema=dataset.schema))
        build.expected.rows[build.expected.key_of(fresh)] = fresh
    died = subprocess.run(
        command("run", root), env=environment(CARETAKER_CRASH_AT=place, **settings), capture_output=True, timeout=300
    )
    assert died.returncode < 0, f"`{place}` was never passed: {died.stdout.decode()}"
    full = lance.dataset(build.path).to_table().num_rows
    assert full == len(build.expected.rows)
    caretaker("run", root, **settings)
    check.table(root, build.name, build.expected)


def test_wide_rows_come_to_rest(caretaker, root):
    """CMP-14: rows so wide that a fragment never reaches Lance's row target."""
    path = str(table_path(root, "wide"))
    for part in range(24):
        text = [f"{part}-{i}-" + "x" * 20_000 for i in range(10)]
        data = pa.table({"id": [part * 10 + i for i in range(10)], "text": text})
        lance.write_dataset(data, path, mode="append" if part else "create", data_storage_version="2.1")
    before = rows_of(path)
    settings = TIDY | {"COMPACTION_TARGET_BYTES": "64KiB"}
    caretaker("run", root, **settings)
    assert rows_of(path) == before
    files = state.files(root)
    caretaker("run", root, **settings)
    assert state.files(root) == files


def test_deleted_rows_are_materialized(caretaker, root):
    """PLN-12: more than a tenth of a fragment, and then never again."""
    path = scattered(root, parts=1)
    before = rows_of(path)
    assert verdicts(caretaker, path)["compaction"]["outcome"] == "not_due", "exactly a tenth is not more"
    lance.dataset(path).delete("id = 0")
    caretaker("run", root)
    fragments = lance.dataset(path).get_fragments()
    assert [f.num_deletions for f in fragments] == [0]
    assert rows_of(path) == before[1:]


@pytest.mark.parametrize("kind", ["ZONEMAP", "BLOOMFILTER"])
def test_a_type_whose_entries_a_compaction_withdraws_is_indexed_anew(caretaker, root, kind):
    path = scattered(root)
    lance.dataset(path).create_scalar_index("x", index_type=kind)
    before = rows_of(path)
    caretaker("run", root, **TIDY)
    dataset = lance.dataset(path)
    assert len(dataset.get_fragments()) == 1
    covered = {i.name: i.num_rows_indexed for i in dataset.describe_indices() if not i.name.startswith("__")}
    assert covered == {"x_idx": len(before)}
    for row in before[::37]:
        assert dataset.to_table(filter=f"x = {row['x']}").to_pylist() == [row]
    files = state.files(root)
    caretaker("run", root, **TIDY)
    assert state.files(root) == files


def test_a_writer_that_appends_and_deletes_meanwhile_loses_nothing(caretaker, root):
    """CMP-01: a delete between plan and commit is not undone by the rewrite."""
    path = scattered(root)
    lance.dataset(path).create_scalar_index("id", index_type="BTREE")
    alive = {row["id"]: row for row in rows_of(path)}
    stop, failed = threading.Event(), []

    def write():
        at = 10_000
        try:
            while not stop.is_set():
                dataset = lance.dataset(path)
                row = {"id": at, "word": "new", "x": 0.5}
                dataset.insert(pa.Table.from_pylist([row], schema=dataset.schema))
                alive[at] = row
                victim = next(iter(alive))
                lance.dataset(path).delete(f"id = {victim}")
                del alive[victim]
                at += 1
        except Exception as error:  # noqa: BLE001 - told to the main thread
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            caretaker("run", root, **REMAP)
    finally:
        stop.set()
        writer.join()
    assert not failed, failed
    caretaker("run", root, **REMAP)
    assert rows_of(path) == sorted(alive.values(), key=lambda row: row["id"])
    dataset = lance.dataset(path)
    for key in list(alive)[::25]:
        assert dataset.to_table(filter=f"id = {key}").num_rows == 1


def test_r4_1_without_a_minimum_age_nothing_is_cleaned(caretaker, root):
    path = scattered(root)
    caretaker("run", root, **TIDY)
    assert verdicts(caretaker, path)["cleanup"]["outcome"] == "disabled"
    assert lance.dataset(path).versions()[0]["version"] == 1


def test_r4_5_cleanup_keeps_tags_what_sstables_need_and_the_current_version(caretaker, root):
    build = Build.of("indexed", root)
    tagged = lance.dataset(build.path)
    tagged.tags.create("before", tagged.version)
    rows, kept = tagged.to_table().to_pylist(), tagged.version
    versions = lambda: [v["version"] for v in lance.dataset(build.path).versions()]
    build.put([next(iter(build.expected.rows.values()))])
    caretaker("run", root, **FOLD)
    build.put([next(iter(build.expected.rows.values()))])

    def cleaned():
        caretaker("run", root, WAL_COMPACT_TRIGGER_COUNT="100", **{k: v for k, v in CLEAN.items() if k not in FOLD})
        return len(versions()) <= 3

    until(cleaned, "old versions are never removed")
    assert kept in versions()
    assert lance.dataset(build.path, version="before").to_table().to_pylist() == rows
    check.table(root, build.name, build.expected, waiting=True)
    caretaker("run", root, **TIDY)
    check.table(root, build.name, build.expected)


def test_r4_1_a_table_can_opt_out(caretaker, root):
    path = scattered(root)
    lance.dataset(path).update_config({"caretaker.cleanup.enabled": "false"})
    caretaker("run", root, **CLEAN)
    assert verdicts(caretaker, path, **CLEAN)["cleanup"]["outcome"] == "disabled"
    assert lance.dataset(path).versions()[0]["version"] == 1


@pytest.mark.parametrize("place", ["cleanup.before", "cleanup.after"])
def test_a_cleanup_that_is_killed_leaves_a_readable_table(caretaker, root, place):
    path = scattered(root)
    before = rows_of(path)
    env = environment(CARETAKER_CRASH_AT=place, **CLEAN)
    until(
        lambda: subprocess.run(command("run", root), env=env, capture_output=True, timeout=300).returncode < 0,
        "cleanup never ran",
    )
    assert rows_of(path) == before
    caretaker("run", root, **CLEAN)
    assert rows_of(path) == before


@pytest.mark.parametrize("value", ["true", "True", "TRUE", "yes", "1", " true", ""])
def test_a_paused_table_is_left_alone_whatever_the_word(caretaker, root, value):
    build = Build.of("indexed", root)
    lance.dataset(build.path).update_config({"caretaker.paused": value})
    before = state.files(root)
    done = caretaker("run", root, **CLEAN)
    assert state.files(root) == before
    assert "paused" in done.stdout
    lance.dataset(build.path).update_config({"caretaker.paused": "false"})
    caretaker("run", root, **TIDY)
    check.table(root, build.name, build.expected)


def test_a_key_that_means_nothing_is_said_aloud(caretaker, root):
    path = scattered(root)
    lance.dataset(path).update_config({"caretaker.compaction_smal_fragments_min": "3"})
    assert "caretaker.compaction_smal_fragments_min" in caretaker("run", root).stdout
    assert "caretaker.compaction_smal_fragments_min" in caretaker("plan", root).stdout


def test_a_table_chooses_its_own_thresholds(caretaker, root):
    path = scattered(root, parts=4)
    lance.dataset(path).update_config({"caretaker.compaction_small_fragments_min": "100"})
    caretaker("run", root)
    assert len(lance.dataset(path).get_fragments()) == 4
    lance.dataset(path).update_config({"caretaker.compaction_small_fragments_min": "2"})
    caretaker("run", root)
    assert len(lance.dataset(path).get_fragments()) == 1


@pytest.mark.parametrize("shape", ["buckets", "indexed", "stable_row_ids"])
def test_writes_folds_and_compactions_take_turns(caretaker, root, shape):
    """A rewrite that waits for its remap changes what may be rewritten together next."""
    build = Build.of(shape, root)
    for turn in range(4):
        caretaker("run", root, **TIDY)
        check.table(root, build.name, build.expected)
        rows = list(build.expected.rows.values())
        build.put(rows[turn::5])
        build.delete(rows[turn : turn + 2])
    caretaker("run", root, **REMAP)
    check.table(root, build.name, build.expected)
