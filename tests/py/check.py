"""Reads tables three ways and says where they differ from what was written.

    python tests/py/check.py <folder> [--waiting]

The folder holds tables and the `expected.json` their builder left. The ways are: a full scan of the
base, the LSM path, and every index. `--waiting` is for tables nobody has folded yet: their newest
rows are not in the base, so only the LSM path is read.
"""

import client  # first: it quiets the libraries

import argparse
import sys
from collections import Counter

import lance
import numpy as np
import pyarrow as pa

import expected as expectations
from expected import plain

MANY = 1_000_000
LOOKUPS_MAX = 60
NEIGHBOURS = 5
# What a product-quantized index of such small tables finds with ease.
RECALL_MIN = 0.7


class Difference(Exception):
    """A read that does not give what was written, as a sentence."""


def table(root, name, expected, waiting=False):
    """Checks one table every way it can be read; returns a sentence for each way.

    Raises:
        Difference: at the first way that gives anything else than the expected rows.
    """
    handle = client.connect(root).open_table(name)
    dataset = lance.dataset(client.path(root, name))
    ways = [lambda: lsm_path(handle, expected)]
    if not waiting:
        ways.insert(0, lambda: full_scan(dataset, expected))
        ways.append(lambda: covered(dataset, expected))
        ways += [lambda c=c: scalar("BTree", handle, dataset, expected, c) for c in expected.btree]
        ways += [lambda c=c: scalar("bitmap", handle, dataset, expected, c) for c in expected.bitmap]
        if expected.text:
            ways.append(lambda: words(handle, expected))
        if expected.vector:
            ways.append(lambda: neighbours(handle, expected))
    return [said for said in (way() for way in ways) if said]


def same(way, got, expected, columns=None):
    """Compares rows with the expected ones: each key once, newest value, nothing deleted."""
    want = expected.rows
    if columns is not None:
        want = {key: {c: row[c] for c in columns} for key, row in want.items()}
    got = [plain(row) for row in got]
    count = Counter(expected.key_of(row) for row in got)
    by_key = {expected.key_of(row): row for row in got}
    gone = set(expected.gone)
    troubles = {
        "read twice": [key for key, times in count.items() if times > 1],
        "missing": [key for key in want if key not in count],
        "back although deleted": [key for key in count if key in gone],
        "never written": [key for key in count if key not in want and key not in gone],
        "not at their newest value": [key for key in want if key in by_key and by_key[key] != want[key]],
    }
    for what, keys in troubles.items():
        if keys:
            detail = f"; read {by_key[keys[0]]}, wrote {want[keys[0]]}" if what.startswith("not") else ""
            raise Difference(f"{way}: {len(keys)} of {len(want)} keys {what}, such as {keys[0]}{detail}")


def full_scan(dataset, expected):
    """The base alone, as any Lance reader sees it."""
    rows = dataset.scanner(blob_handling="all_binary").to_table().to_pylist()
    same("full scan of the base", rows, expected)
    counted = dataset.count_rows()
    if counted != len(expected.rows):
        raise Difference(f"full scan of the base: counts {counted} rows, {len(expected.rows)} were written")
    return f"full scan of the base: {counted:,} rows, each key once, newest values"


def lsm_path(handle, expected):
    """Base, SSTables and the rule that the newest wins, as the LSM reader of the client sees them."""
    columns = [c for c in handle.schema.names if c not in expected.blobs]
    query = handle.search().use_lsm(True).limit(MANY).select(columns)
    same("LSM path", query.to_arrow().to_pylist(), expected, columns)
    return f"LSM path: {len(expected.rows):,} rows, each key once, newest values"


def covered(dataset, expected):
    """Every index covers every row of the base."""
    behind = [
        f"`{index.name}` covers {index.num_rows_indexed:,}"
        for index in dataset.describe_indices()
        if not index.name.startswith("__lance_") and index.num_rows_indexed < dataset.count_rows()
    ]
    if behind:
        raise Difference(f"index coverage: {', '.join(behind)} of {dataset.count_rows():,} rows")
    return None


def scalar(kind, handle, dataset, expected, column):
    """One filter for each value that is or ever was in the column: old values find nothing."""
    live = {}
    for key, row in expected.rows.items():
        live.setdefault(row[column], []).append(key)
    old = [value for value in expected.seen[column] if value not in live]
    way = f"{kind} lookup in `{column}`"
    uses_index(way, dataset, column, next(iter(thinned(expected.seen[column]))))
    for value in thinned(live) + thinned(old):
        by_filter(way, handle, dataset, expected, column, value, live.get(value, []))
    return f"{kind} on `{column}`: {len(thinned(live))} values found{and_not(thinned(old))}"


def and_not(old):
    return f", {len(old)} old ones not" if old else ""


def thinned(values):
    """At most about LOOKUPS_MAX of `values`, evenly spread, without null."""
    some = sorted((v for v in values if v is not None), key=str)
    return some[:: 1 + len(some) // LOOKUPS_MAX]


def uses_index(way, dataset, column, value):
    """Without this, the lookups would prove nothing about the index."""
    condition = f"`{column}` = {literal(dataset.schema.field(column).type, value)}"
    if "ScalarIndexQuery" not in dataset.scanner(filter=condition).explain_plan():
        raise Difference(f"{way}: the index is not used for {condition}")


def by_filter(way, handle, dataset, expected, column, value, want):
    """Compares the keys a filter finds: base by index, base by scan, LSM path."""
    condition = f"`{column}` = {literal(dataset.schema.field(column).type, value)}"
    lsm = condition
    if column != column.lower():
        # The client's point lookup folds capitals and then finds no such column: ask by range.
        lsm = condition.replace(" = ", " >= ") + " AND " + condition.replace(" = ", " <= ")
    scan = {"filter": condition, "columns": expected.key}
    found = {
        "base by index": dataset.scanner(**scan).to_table(),
        "base by scan": dataset.scanner(**scan, use_scalar_index=False).to_table(),
        "LSM path": handle.search().where(lsm).use_lsm(True).limit(MANY).select(expected.key).to_arrow(),
    }
    for reader, rows in found.items():
        same_keys(f"{way}, {reader}, {condition}", rows.to_pylist(), expected, want)


def words(handle, expected):
    """One full text search for each word that is in a live row, and for each that no longer is."""
    wanted = {}
    for key, row in expected.rows.items():
        for word in (row[expected.text] or "").split():
            wanted.setdefault(word, set()).add(key)
    old = {word for text in expected.seen[expected.text] for word in (text or "").split()} - set(wanted)
    for word in thinned(wanted) + thinned(old):
        for lsm in (False, True):
            query = handle.search(word, query_type="fts", fts_columns=expected.text).use_lsm(lsm)
            rows = query.limit(MANY).select(expected.key).to_list()
            way = f"full text search in `{expected.text}`, {'LSM path' if lsm else 'base'}, `{word}`"
            same_keys(way, rows, expected, wanted.get(word, []))
    return f"full text on `{expected.text}`: {len(thinned(wanted))} words found{and_not(thinned(old))}"


def neighbours(handle, expected):
    """Nearest rows by the index against the true ones, around live vectors and around old ones."""
    live = [(key, row[expected.vector]) for key, row in expected.rows.items() if row[expected.vector]]
    keys, vectors = [key for key, _ in live], np.array([v for _, v in live], dtype=np.float32)
    old = [v for v in expected.seen[expected.vector] if v]
    points = [*vectors[:: 1 + len(live) // 20], *np.array(old[:: 1 + len(old) // 20], dtype=np.float32)]
    for lsm in (False, True):
        way = f"nearest {NEIGHBOURS} by `{expected.vector}`, {'LSM path' if lsm else 'base'}"
        right = 0
        for point in points:
            order = np.argsort(((vectors - point) ** 2).sum(axis=1), kind="stable")[:NEIGHBOURS]
            true = {keys[i] for i in order}
            query = handle.search(point.tolist(), vector_column_name=expected.vector).use_lsm(lsm)
            query = query.distance_type("l2").nprobes(256).refine_factor(20).limit(NEIGHBOURS)
            rows = query.select([*expected.key, "_distance"]).to_list()
            found = {expected.key_of(plain(row)) for row in rows}
            same_keys(way, rows, expected, true if expected.exact else found & set(keys))
            right += len(found & true)
        recall = right / len(points) / NEIGHBOURS
        if recall < RECALL_MIN:
            raise Difference(f"{way}: finds {recall:.0%} of the true neighbours")
    return f"vectors in `{expected.vector}`: {len(points)} nearest-neighbour searches"


def same_keys(way, rows, expected, want):
    """Compares found keys with the wanted ones, as sets, and refuses one that comes twice."""
    got = [expected.key_of(plain(row)) for row in rows]
    twice = [key for key, times in Counter(got).items() if times > 1]
    if twice:
        raise Difference(f"{way}: {twice[0]} is found twice")
    if missing := set(want) - set(got):
        raise Difference(f"{way}: {len(missing)} of {len(want)} keys missing, such as {min(missing, key=str)}")
    if wrong := set(got) - set(want):
        raise Difference(f"{way}: {len(wrong)} keys too many, such as {min(wrong, key=str)}")


def literal(data_type, value):
    """`value`, which is plain, as SQL text."""
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return f"X'{value[2:]}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def main():
    parser = argparse.ArgumentParser(description="check tables against the rows that were written")
    parser.add_argument("folder")
    parser.add_argument("--waiting", action="store_true", help="nothing was folded yet: read the LSM path only")
    args = parser.parse_args()
    try:
        tables = expectations.load(args.folder)
    except FileNotFoundError:
        sys.exit(f"no expected.json in {args.folder}: build a table there first, with tests/py/tables.py")
    failed = False
    for name, expected in tables.items():
        print(name)
        try:
            for said in table(args.folder, name, expected, args.waiting):
                print(f"  ✓ {said}")
        except Difference as difference:
            failed = True
            print(f"  ✗ {difference}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
