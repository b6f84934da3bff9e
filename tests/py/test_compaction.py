"""What a compaction must carry over, by reports from the field: values, columns, each row once."""

import decimal
import subprocess
import sys

import lance
import pyarrow as pa
import pytest

import check
import state
from conftest import command, environment, table_path
from tables import ID, Build
from test_base import TIDY, rows_of, verdicts

MIB = 1 << 20
BLOBS = [b"P0", None, b"", b"P3" * 100_000, b"P4", b"P5"]


def fragments(root, name, parts, **options):
    """A table with one fragment for each of `parts`; returns its path."""
    path = str(table_path(root, name))
    for at, part in enumerate(parts):
        lance.write_dataset(part, path, mode="append" if at else "create", **options)
    return path


def count(path):
    return len(lance.dataset(path).get_fragments())


def blobs(kind, ids):
    column = lance.blob_field("b")
    if kind == "old":
        column = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = [BLOBS[i] for i in ids]
    values = lance.blob_array(values) if kind == "new" else pa.array(values, column.type)
    return pa.Table.from_arrays([pa.array(ids), values], schema=pa.schema([ID, column]))


def blobs_read(path):
    """Every value by a scan and by its own handle, by key."""
    dataset = lance.dataset(path)
    scanned = dataset.scanner(blob_handling="all_binary").to_table()
    handles = dataset.take_blobs("b", indices=range(len(scanned)))
    taken = [handle and handle.readall() for handle in handles]
    keys = scanned["id"].to_pylist()
    return dict(zip(keys, scanned["b"].to_pylist())), dict(zip(keys, taken))


@pytest.mark.parametrize("gone", [None, 1, 3])
@pytest.mark.parametrize(
    ("kind", "version"), [("old", "2.0"), ("old", "2.1"), ("old", "2.2"), ("new", "2.2")]
)
def test_cmp_07_blobs_with_null_and_empty_values_survive(caretaker, root, kind, version, gone):
    path = fragments(
        root,
        "blobs",
        [blobs(kind, [0, 1, 2]), blobs(kind, [3, 4, 5])],
        data_storage_version=version,
    )
    lance.dataset(path).delete(f"id = {gone}" if gone is not None else "false")
    want = {i: blob for i, blob in enumerate(BLOBS) if i != gone}
    caretaker("run", root, **TIDY)
    assert count(path) == 1
    scanned, taken = blobs_read(path)
    assert scanned == want
    assert {key: blob or None for key, blob in taken.items()} == {
        key: blob or None for key, blob in want.items()
    }


POINT = pa.struct([pa.field("x", pa.float64(), False), pa.field("y", pa.float64(), False)])
NESTED = [
    ID,
    pa.field("pt", POINT),
    pa.field("l", pa.list_(pa.struct([pa.field("a", pa.int32())]))),
]


def test_cmp_09_a_null_struct_an_empty_and_a_null_list_stay_different(caretaker, root):
    rows = [
        {"id": 1, "pt": {"x": 1.0, "y": 2.0}, "l": []},
        {"id": 2, "pt": None, "l": None},
        {"id": 3, "pt": {"x": 3.0, "y": 4.0}, "l": [{"a": None}]},
        {"id": 4, "pt": None, "l": [None]},
    ]
    root.mkdir()
    build = Build(root, "nested")
    build.create(NESTED, rows[:1])
    for row in rows[1:]:
        lance.dataset(build.path).insert(build._arrow([row]))
    build._remember(rows)
    build.done()
    caretaker("run", root, **TIDY)
    assert count(build.path) == 1
    check.table(root, build.name, build.expected)
    for changed in (
        {"id": 2, "pt": {"x": 5.0, "y": 6.0}, "l": []},
        {"id": 1, "pt": None, "l": None},
    ):
        build.put([changed])
    caretaker("run", root, **TIDY)
    check.table(root, build.name, build.expected)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_cmp_10_columns_added_and_dropped_between_compactions_stay_readable(
    caretaker, root, version
):
    two = lambda at: pa.table({"id": [at, at + 1], "v": [f"v{at}", None]})
    path = fragments(root, "drift", [two(0), two(2)], data_storage_version=version)
    added = [pa.field("w", pa.int32()), pa.field("d", pa.dictionary(pa.int32(), pa.string()))]
    lance.dataset(path).add_columns(added)
    dataset = lance.dataset(path)
    last = {
        "id": [4],
        "v": ["v4"],
        "w": pa.array([9], pa.int32()),
        "d": pa.array(["x"]).dictionary_encode(),
    }
    lance.write_dataset(pa.table(last), path, mode="append")
    before = rows_of(path)
    assert [(row["w"], row["d"]) for row in before] == [(None, None)] * 4 + [(9, "x")]
    caretaker("run", root, **TIDY)
    assert count(path) == 1
    assert rows_of(path) == before
    lance.dataset(path).drop_columns(["v"])
    lance.write_dataset(pa.table(last | {"id": [5]}).drop_columns(["v"]), path, mode="append")
    caretaker("run", root, **TIDY)
    assert count(path) == 1
    want = [{k: row[k] for k in ("id", "w", "d")} for row in before]
    assert rows_of(path) == want + [want[-1] | {"id": 5}]
    assert dataset.schema.names == ["id", "v", "w", "d"], "the version before stays as it was"


@pytest.mark.parametrize("order", [["n", "d", "id"], ["d", "id", "n"], ["id", "n", "d"]])
def test_cmp_11_values_follow_their_column_whatever_the_order_in_the_file(caretaker, root, order):
    schema = pa.schema([ID, pa.field("d", pa.decimal128(38, 10)), pa.field("n", pa.int32())])
    number = decimal.Decimal
    first = pa.Table.from_pylist([{"id": 10, "d": number("1.5"), "n": 1}], schema=schema)
    second = pa.Table.from_pylist([{"id": 20, "d": number("2.5"), "n": 2}], schema=schema)
    path = fragments(root, "order", [first, second.select(order)])
    before = rows_of(path)
    assert [(row["id"], row["d"], row["n"]) for row in before] == [
        (10, number("1.5"), 1),
        (20, number("2.5"), 2),
    ]
    caretaker("run", root, **TIDY)
    assert count(path) == 1
    assert rows_of(path) == before


# A process that has read much passes its own peak on to what it starts: a small one goes between.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def peak_of_run(root, **settings):
    """Most memory a `run` used."""
    args = [sys.executable, "-c", MEASURE, *command("run", root)]
    done = subprocess.run(
        args, env=environment(**settings), capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def wide(first, last):
    return pa.table(
        {"id": range(first, last), "s": [f"{i:02}" * (4 * MIB) for i in range(first, last)]}
    )


def even(path, rows):
    """So many wide rows, each in a fragment of its own."""
    for i in range(rows):
        lance.write_dataset(wide(i, i + 1), path, mode="append" if i else "create")


def skewed(path, rows):
    """So many wide rows beside a great number of narrow ones, in one fragment with deleted rows."""
    narrow = pa.table({"id": range(1000, 101_000), "s": ["x"] * 100_000})
    batches = [
        *narrow.to_batches(),
        *(batch for i in range(rows) for batch in wide(i, i + 1).to_batches()),
    ]
    lance.write_dataset(pa.RecordBatchReader.from_batches(narrow.schema, batches), path)
    lance.dataset(path).delete("id >= 1000 AND id < 61000")


@pytest.mark.parametrize("shape", [even, skewed])
def test_cmp_12_text_larger_than_any_batch_is_rewritten_in_pieces(root, shape):
    # Of a single fragment Lance holds every wide row once: memory is measured of many alone.
    peaks, sizes = [], (2, 16) if shape is even else (6,)
    for rows in sizes:
        folder = root / str(rows)
        folder.mkdir(parents=True)
        path = str(table_path(folder, "wide"))
        shape(path, rows)
        peaks.append(peak_of_run(folder, **TIDY))
        [fragment] = lance.dataset(path).get_fragments()
        assert fragment.num_deletions == 0
        for batch in lance.dataset(path).to_batches(filter="id < 1000", batch_size=1):
            for row in batch.to_pylist():
                assert row["s"] == f"{row['id']:02}" * (4 * MIB)
    # A rewrite that takes all in one batch holds it twice and more.
    assert peaks[-1] < peaks[0] + 1.5 * 14 * 8 * MIB, f"the whole table was in memory: {peaks}"


@pytest.mark.parametrize(
    ("parts", "rows", "target"),
    [(10, 200, 500), (10, 200, 300), (13, 70, 100), (7, 99, 100), (9, 71, 100)],
)
def test_cmp_14_remainders_come_to_rest(caretaker, root, parts, rows, target):
    table = lambda at: pa.table({"id": range(at * rows, (at + 1) * rows)})
    path = fragments(root, "remainder", [table(at) for at in range(parts)])
    settings = TIDY | {"COMPACTION_TARGET_ROWS": str(target)}
    caretaker("run", root, **settings)
    assert [row["id"] for row in rows_of(path)] == list(range(parts * rows))
    left = [f.count_rows() for f in lance.dataset(path).get_fragments()]
    assert sum(size < target * 0.7 for size in left) <= 1 and len(left) <= parts
    assert verdicts(caretaker, path, **settings)["compaction"]["outcome"] == "not_due"
    before = state.files(root)
    caretaker("run", root, **settings)
    assert state.files(root) == before


def test_cmp_17_a_rewrite_has_as_many_rows_as_were_alive(caretaker, root):
    path = fragments(
        root, "counted", [pa.table({"id": range(at * 100, at * 100 + 100)}) for at in range(5)]
    )
    gone = list(range(3, 500, 13))[:37]
    lance.dataset(path).delete(f"id IN ({', '.join(map(str, gone))})")
    caretaker("run", root, **TIDY)
    assert [row["id"] for row in rows_of(path)] == [i for i in range(500) if i not in gone]
    assert lance.dataset(path).count_rows() == 463
    assert [f.num_deletions for f in lance.dataset(path).get_fragments()] == [0]
