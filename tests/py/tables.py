"""Tables of many shapes, written by the real client, each with the rows it must hold.

    python tests/py/tables.py <shape>|all <folder>

A shape is a function of a [`Build`] and a random source; what it writes goes to the table and to a
plain dict at once. Every shape leaves at least four SSTables in some shard, so that a fold is due.

What the client or Lance refuses has no shape here: null, float, unsigned and fixed-size binary keys,
a dot in a column name, a column whose type changes, columns in another order inside an SSTable.
"""

import client  # first: it quiets the libraries

import argparse
import random
import sys
from pathlib import Path

import lance
import pyarrow as pa
from lancedb import LsmWriteSpec
from lancedb.index import FTS, Bitmap, BTree, IvfFlat, IvfPq

import expected as expectations
from client import key_field
from expected import Expected, plain

ID = pa.field("id", pa.int64(), False)
WORDS = "amber birch cedar dune ember fjord grove heath islet juniper".split()


class Build:
    """One table under construction beside the rows it must hold."""

    def __init__(self, root, name):
        self.root, self.name = root, name
        self.path = client.path(root, name)

    def create(self, fields, rows, key=("id",), spec=None, maintained=None, storage=None, **indexes):
        """Makes the base, its indexes and the LSM write spec.

        `indexes`: btree and bitmap (lists of columns), text and vector (a column), exact.
        `maintained`: names of indexes the writer keeps in SSTables; bitmaps can't be among them.
        """
        self.expected = Expected(key=list(key), **indexes)
        self.written = {}
        db = client.connect(self.root)
        self.table = db.create_table(self.name, self._arrow(rows, pa.schema(fields)), storage_options=storage)
        self._index()
        if len(key) == 1 and not any(f.metadata for f in fields if f.name == key[0]):
            self.table.set_unenforced_primary_key(list(key))
        spec = spec or LsmWriteSpec.unsharded()
        if maintained is not None:
            spec = spec.with_maintained_indexes(maintained)
        self.table.set_lsm_write_spec(spec)
        self._remember(rows)

    def put(self, rows):
        """One SSTable a shard. A key that comes twice keeps its last row."""
        client.upsert(self.table, self._arrow(rows), self.expected.key)
        self._remember(rows)

    def put_with_blobs(self, rows):
        """As `put`, through pylance: the client can't send blob columns to the LSM path."""
        client.put(lance.dataset(self.path), self._arrow(rows))
        self._remember(rows)

    def delete(self, rows):
        """One SSTable of tombstones a shard, for the keys of `rows` (the rest tells their shard)."""
        dataset = lance.dataset(self.path)
        client.delete(dataset, self._arrow(rows, dataset.schema), self.expected.key)
        for row in rows:
            key = self.expected.key_of(plain(row))
            self.expected.rows.pop(key, None)
            if key not in self.expected.gone:
                self.expected.gone.append(key)

    def add_column(self, name, sql_type):
        """Adds a column of nulls, the only kind Lance allows beside SSTables."""
        self.table.add_columns({name: f"cast(null as {sql_type})"})
        for row in self.expected.rows.values():
            row[name] = None

    @classmethod
    def of(cls, shape, root, seed=1):
        """A finished table of `shape` under `root`."""
        Path(root).mkdir(parents=True, exist_ok=True)
        build = cls(root, shape)
        SHAPES[shape](build, random.Random(f"{shape} {seed}"))
        build.done()
        return build

    def done(self):
        """Leaves what the table must hold beside it."""
        self.expected.seen = {c: list(seen.values()) for c, seen in self.written.items()}
        expectations.save(self.root, self.name, self.expected)

    def _index(self):
        e = self.expected
        wanted = [(c, BTree()) for c in e.btree] + [(c, Bitmap()) for c in e.bitmap]
        if e.text:
            wanted.append((e.text, FTS()))
        if e.vector:
            kind = IvfFlat(num_partitions=4) if e.exact else IvfPq(num_partitions=2, num_sub_vectors=4)
            wanted.append((e.vector, kind))
        for column, config in wanted:
            self.table.create_index(column, config=config)

    def _arrow(self, rows, schema=None):
        schema = schema or self.table.schema
        arrays = []
        for field in schema:
            values = [row.get(field.name) for row in rows]
            blobs = getattr(field.type, "extension_name", None) == "lance.blob.v2"
            arrays.append(lance.blob_array(values) if blobs else pa.array(values, field.type))
        return pa.Table.from_arrays(arrays, schema=schema)

    def _remember(self, rows):
        e, names = self.expected, self.table.schema.names
        for row in rows:
            row = {name: plain(row.get(name)) for name in names}
            e.rows[e.key_of(row)] = row
            for column in [*e.btree, *e.bitmap, *filter(None, [e.text, e.vector])]:
                self.written.setdefault(column, {})[str(row[column])] = row[column]
        e.gone = [key for key in e.gone if key not in e.rows]


def vector(rng, size=8):
    # Sixteenths are exact in 32 bits, so that a row reads back as it was written.
    return [rng.randrange(1 << 12) / (1 << 4) for _ in range(size)]


# Keys


def plain_int64(build, rng):
    """Updates, new keys, a key in every generation, a key twice in one call."""
    build.create([ID, pa.field("v", pa.string())], [{"id": i, "v": "base"} for i in range(300)])
    for gen in range(1, 7):
        ids = [*rng.sample(range(300), 40), *range(1000 + gen, 1004 + gen), 7]
        rows = [{"id": i, "v": f"gen {gen}"} for i in ids]
        build.put([*rows, {"id": 7, "v": f"gen {gen}, second"}])


def int32_key(build, rng):
    keys = [0, -1, 2**31 - 1, -(2**31), *rng.sample(range(10**6), 50)]
    any_type(build, pa.int32(), keys, 5)


def string_key(build, rng):
    any_type(build, pa.string(), [f"{rng.choice(WORDS)}/{i:04}" for i in range(80)], 4)


def large_string_key(build, rng):
    any_type(build, pa.large_string(), [f"{rng.choice(WORDS)}/{i:04}" for i in range(40)], 4)


def binary_key(build, rng):
    keys = [b"", b"\0", b"\0\0", b"\xff", b"\xff\0", *(rng.randbytes(12) for _ in range(60))]
    any_type(build, pa.binary(), keys, 4)


def any_type(build, data_type, keys, gens):
    """A third of the keys in the base, the rest in SSTables; every fifth deleted at last."""
    fields = [pa.field("k", data_type, False), pa.field("v", pa.int32())]
    btree = ["k"] if data_type in (pa.int32(), pa.string()) else []  # the client refuses the others
    build.create(fields, [{"k": k, "v": 0} for k in keys[::3]], key=["k"], btree=btree)
    for gen in range(1, gens):
        build.put([{"k": k, "v": gen} for k in keys[gen - 1 :: 2]])
    build.delete([{"k": k} for k in keys[::5]])


def lookalike_keys(build, rng):
    """FLD-36: keys that look alike are compared as bytes."""
    accents = ["\u00e9", "e\u0301", "\u00c5", "\u212b", "A\u030a", "\u0130", "i", "I", "\u017f", "s", "\u0430"]
    keys = [*accents, "a", "a ", "", "a\0", "\u200ba", "A"]
    build.create([pa.field("k", pa.string(), False), pa.field("v", pa.int32())], [], key=["k"])
    build.put([{"k": k, "v": i} for i, k in enumerate(keys)])
    build.put([{"k": k, "v": i + 100} for i, k in enumerate(keys)])
    build.delete([{"k": k} for k in ("A", "\u200ba")])
    build.put([{"k": "A", "v": 1}])


def composite_key(build, rng):
    """The key (tenant, id) stands in another order in the schema; each part has an index (FLD-09)."""
    fields = [
        pa.field("v", pa.string()),
        key_field("id", pa.int64(), 2),
        pa.field("n", pa.int32()),
        key_field("tenant", pa.string(), 1),
    ]
    keys = [(tenant, i) for tenant in ("a", "b", "", "ab") for i in range(25)]
    row = lambda k, v: {"tenant": k[0], "id": k[1], "v": v, "n": k[1]}
    build.create(fields, [row(k, "base") for k in keys], key=["tenant", "id"], btree=["tenant", "id"])
    for gen in range(1, 5):
        build.put([row(k, f"gen {gen}") for k in rng.sample(keys, 30)] + [row(("c", gen), "new")])
    build.delete([row(k, None) for k in rng.sample(keys, 20)])


def capital_names(build, rng):
    """FLD-20: `ID` and `id` are two columns, `aAAAa` is the key."""
    fields = [pa.field("aAAAa", pa.int64(), False), pa.field("ID", pa.int32()), pa.field("id", pa.int32())]
    row = lambda k, v: {"aAAAa": k, "ID": v, "id": -v}
    indexes = {"btree": ["aAAAa", "ID", "id"]}
    build.create(fields, [row(k, 1) for k in range(50)], key=["aAAAa"], **indexes)
    for gen in range(2, 6):
        build.put([row(k, gen * 100 + k) for k in rng.sample(range(60), 20)])
    build.delete([row(k, 0) for k in (3, 4, 55)])


def odd_names(build, rng):
    """FLD-22: names that are not ASCII, reserved, spaced, quoted. A dot is refused by Lance itself."""
    key, number = "訂單-編號", "naïve:col"
    rest = ["with space", "select", "🚀", "source", "target", "'\"", "_rowid2", "order by"]
    fields = [pa.field(key, pa.string(), False), pa.field(number, pa.int32())]
    fields += [pa.field(name, pa.string()) for name in rest]
    row = lambda k, n: {key: k, number: n} | {name: f"{name} {n}" for name in rest}
    build.create(fields, [row("A一", 1), row("Б", 1), row("c", 1)], key=[key], btree=[key, number])
    for gen in range(2, 6):
        build.put([row("A一", gen), row(f"Б{gen}", gen)])
    build.delete([row("c", 0), row("Б3", 0)])


# Shards


def buckets(build, rng):
    """Four buckets, each with SSTables of its own."""
    fields = [ID, pa.field("v", pa.string()), pa.field("n", pa.int32())]
    row = lambda i, gen: {"id": i, "v": f"gen {gen}", "n": i % 10}
    base = [row(i, 0) for i in range(200)]
    build.create(fields, base, spec=LsmWriteSpec.bucket("id", 4), btree=["id"])
    for gen in range(1, 5):
        build.put([row(i, gen) for i in rng.sample(range(260), 60)])
    build.delete([row(i, 0) for i in rng.sample(range(260), 25)])
    build.put([row(i, 6) for i in rng.sample(range(260), 25)])


def identity(build, rng):
    """One shard a region. Keys stay in their region: the client itself reads one that moves twice."""
    region = lambda i: ("eu", "us", "ap")[i % 3]
    fields = [ID, pa.field("region", pa.string()), pa.field("v", pa.int32())]
    row = lambda i, v: {"id": i, "region": region(i), "v": v}
    build.create(fields, [row(i, 0) for i in range(90)], spec=LsmWriteSpec.identity("region"))
    for gen in range(1, 5):
        build.put([row(i, gen) for i in rng.sample(range(120), 40)])
    build.delete([row(i, 0) for i in rng.sample(range(90), 15)])


# Values and deletes


def tombstones(build, rng):
    """Deletes of base rows, of fresh rows, of nothing, twice, and keys that come back (FLD-13, FLD-14)."""
    row = lambda i, v: {"id": i, "v": v}
    build.create([ID, pa.field("v", pa.string())], [row(i, "base") for i in range(60)], btree=["id"])
    build.put([row(5, "short-lived"), row(100, "fresh"), row(101, "fresh")])
    build.delete([row(i, None) for i in (5, 6, 100, 999)])
    build.put([row(6, "back"), row(102, "fresh")])
    build.delete([row(i, None) for i in (5, 7, 102, 101)])
    build.put([row(7, "back"), row(101, None)])
    build.delete([row(i, None) for i in (7, 8)])
    build.put([row(8, "back at last")])


def tombstone_only(build, rng):
    """FLD-12: a pass of nothing but tombstones, one of them for a key that never was."""
    row = lambda i: {"id": i, "v": "base"}
    build.create([ID, pa.field("v", pa.string())], [row(i) for i in range(8)], btree=["id"])
    for i in (1, 2, 3, 99):
        build.delete([row(i)])


def random_history(build, rng):
    """Puts and deletes of random size in random order, over two shards; `SEED` gives another history."""
    row = lambda i, v: {"id": i, "v": v}
    spec = LsmWriteSpec.bucket("id", 2)
    build.create([ID, pa.field("v", pa.int32())], [row(i, None) for i in range(0, 80, 2)], spec=spec, btree=["id"])
    for step in range(16):
        keys = rng.choices(range(-20, 80), k=rng.choice([1, 2, 10, 60]))
        if rng.random() < 0.3:
            build.delete([row(i, None) for i in keys])
        else:
            build.put([row(i, rng.choice([None, step, step + 1])) for i in keys])


def everything_deleted(build, rng):
    row = lambda i: {"id": i, "v": "base"}
    build.create([ID, pa.field("v", pa.string())], [row(i) for i in range(20)])
    build.put([row(i) for i in range(10, 40)])
    for some in (range(0, 15), range(15, 25), range(25, 40)):
        build.delete([row(i) for i in some])


def null_values(build, rng):
    """FLD-02: null is a value: a row that becomes null, one that stops being null, twice in one call."""
    fields = [ID, pa.field("a", pa.string()), pa.field("b", pa.int32()), pa.field("c", pa.list_(pa.int32()))]
    row = lambda i, a, b, c: {"id": i, "a": a, "b": b, "c": c}
    build.create(fields, [row(i, "base", i, [i]) if i % 2 else row(i, None, None, None) for i in range(40)])
    build.put([row(i, None, i, [None]) for i in range(10)])
    build.put([row(i, "set", None, None) for i in range(5, 15)])
    build.put([row(20, "first", 1, [1]), row(20, None, None, None), row(21, None, None, []), row(50, None, None, None)])
    build.put([row(22, None, None, None), row(22, "last", 2, [2])])


def not_null_columns(build, rng):
    """Columns that may not be null: SSTables relax them so that tombstones fit."""
    inner = pa.struct([pa.field("a", pa.int32(), False)])
    fields = [ID, pa.field("v", pa.int32(), False), pa.field("s", inner, False)]
    row = lambda i, v: {"id": i, "v": v, "s": {"a": v}}
    build.create(fields, [row(i, 0) for i in range(30)])
    for gen in range(1, 4):
        build.put([row(i, gen) for i in rng.sample(range(40), 12)])
    build.delete([row(i, 0) for i in rng.sample(range(30), 6)])


# Columns


def nested(build, rng):
    """List, list of struct, struct in struct, fixed-size list, map, half floats, a dictionary."""
    point = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.list_(pa.float32()))])
    fields = [
        ID,
        pa.field("tags", pa.list_(pa.string())),
        pa.field("points", pa.list_(point)),
        pa.field("deep", pa.struct([pa.field("a", pa.int32()), pa.field("in", pa.struct([pa.field("b", pa.string())]))])),
        pa.field("fixed", pa.list_(pa.float32(), 3)),
        pa.field("pair", pa.list_(pa.int64(), 2)),
        pa.field("map", pa.map_(pa.string(), pa.int32())),
        pa.field("half", pa.float16()),
        pa.field("raw", pa.large_binary()),
        pa.field("word", pa.dictionary(pa.int32(), pa.string())),
    ]

    def row(i, n):
        if n is None:
            return {"id": i}
        points = [{"x": i, "y": [1.5, None]}, None, {"x": None, "y": []}]
        return {
            "id": i, "tags": [n, None, ""], "points": points, "deep": {"a": i, "in": {"b": n}},
            "fixed": [i, 0.5, 2], "pair": [i, -i], "map": [("k", i), (n, None)], "half": 1.5,
            "raw": n.encode(), "word": n,
        }  # fmt: skip

    build.create(fields, [row(i, "base") if i % 4 else row(i, None) for i in range(40)])
    for gen in range(1, 4):
        build.put([row(i, f"gen{gen}") if i % 5 else row(i, None) for i in rng.sample(range(50), 15)])
    build.delete([row(i, None) for i in rng.sample(range(40), 6)])


def blob(build, rng):
    """A blob column of the older kind: large values beside the row, written by pylance."""
    column = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    blobs(build, rng, column, {"new_table_data_storage_version": "2.1"})


def blob_v2(build, rng):
    """A blob column of the newer kind; values of some size get files of their own."""
    blobs(build, rng, lance.blob_field("b"), None)


def blobs(build, rng, column, storage):
    fields = [key_field("id", pa.int64()), column, pa.field("v", pa.string())]
    row = lambda i, v: {"id": i, "b": v.encode() * (20_000 if i % 5 == 0 else i + 1), "v": v}
    build.create(fields, [row(i, "base") for i in range(12)], storage=storage, blobs=["b"])
    for gen in range(1, 4):
        build.put_with_blobs([row(i, f"gen{gen}") for i in rng.sample(range(16), 6)])
    build.delete([row(i, "") for i in (0, 5)])


def growth(build, rng):
    """FLD-24: columns added between generations. The first is a bool, and it takes the field id that
    `_tombstone` has in the SSTables written before it."""
    build.create([ID, pa.field("v", pa.string())], [{"id": i, "v": "base"} for i in range(30)], btree=["id"])
    build.put([{"id": i, "v": "gen 1"} for i in range(5, 35)])
    build.delete([{"id": i} for i in (1, 2)])
    build.add_column("flag", "boolean")
    build.put([{"id": i, "v": "gen 3", "flag": i % 2 == 0} for i in range(10, 40)])
    build.add_column("w", "int")
    build.add_column("tag", "string")
    build.put([{"id": i, "v": "gen 4", "flag": None, "w": i, "tag": "new"} for i in range(20, 45)])
    build.delete([{"id": i} for i in (3, 21)])


def renamed(build, rng):
    """A column renamed between generations keeps its field id."""
    build.create([ID, pa.field("v", pa.string()), pa.field("n", pa.int32())], [{"id": i, "v": "base", "n": i} for i in range(20)])
    build.put([{"id": i, "v": "gen 1", "n": -i} for i in range(5, 25)])
    build.put([{"id": i, "v": "gen 2", "n": 0} for i in range(8, 12)])
    build.table.alter_columns({"path": "v", "rename": "title"})
    for row in build.expected.rows.values():
        row["title"] = row.pop("v")
    build.put([{"id": i, "title": "gen 3", "n": 1} for i in range(15, 30)])
    build.delete([{"id": i} for i in (2, 16)])


# Indexes


def indexed(build, rng, storage=None, exact=True, rows=300):
    """BTree, bitmap, full text and vector at once; every indexed value changes with an update."""
    fields = [
        ID,
        pa.field("n", pa.int32()),
        pa.field("state", pa.string()),
        pa.field("text", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 8)),
    ]

    def row(i, gen):
        text = f"{rng.choice(WORDS)} gen{gen} item{i % 50}"
        return {"id": i, "n": gen * 10_000 + i, "state": f"state{gen}", "text": text, "vec": vector(rng)}

    indexes = {"btree": ["id", "n"], "bitmap": ["state"], "text": "text", "vector": "vec", "exact": exact}
    kept = ["id_idx", "n_idx", "text_idx", "vec_idx"]
    build.create(fields, [row(i, 0) for i in range(rows)], storage=storage, maintained=kept, **indexes)
    for gen in range(1, 5):
        build.put([row(i, gen) for i in rng.sample(range(rows + 40), 50)])
    build.delete([row(i, 0) for i in rng.sample(range(rows), 20)])
    build.put([row(i, 6) for i in rng.sample(range(rows), 10)])


def stable_row_ids(build, rng):
    """As `indexed`, on a table whose rows keep their ids through an update (CAT-04)."""
    indexed(build, rng, storage={"new_table_enable_stable_row_ids": "true"})


def quantized(build, rng):
    """As `indexed`, with a product-quantized vector index (CAT-06)."""
    indexed(build, rng, exact=False, rows=400)


def indexes_not_maintained(build, rng):
    """Indexes that SSTables know nothing of, two of them on columns with nulls."""
    fields = [ID, pa.field("n", pa.int32()), pa.field("state", pa.string())]
    row = lambda i, gen: {"id": i, "n": None if i % 4 == 0 else i + gen, "state": None if i % 3 == 0 else f"s{gen}"}
    build.create(fields, [row(i, 0) for i in range(120)], maintained=[], btree=["n"], bitmap=["state"])
    for gen in range(1, 5):
        build.put([row(i, gen) for i in rng.sample(range(150), 30)])
    build.delete([row(i, 0) for i in rng.sample(range(120), 10)])


SHAPES = {
    shape.__name__: shape
    for shape in (
        plain_int64, int32_key, string_key, large_string_key, binary_key, lookalike_keys, composite_key,
        capital_names, odd_names, buckets, identity, tombstones, tombstone_only, random_history,
        everything_deleted, null_values, not_null_columns, nested, blob, blob_v2, growth, renamed, indexed,
        stable_row_ids, quantized, indexes_not_maintained,
    )
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description="write a table, or all, with the LanceDB client")
    parser.add_argument("shape", help=f"all, or one of {', '.join(SHAPES)}")
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.shape != "all" and args.shape not in SHAPES:
        sys.exit(f"unknown shape `{args.shape}`: choose all, or one of {', '.join(SHAPES)}")
    for shape in SHAPES if args.shape == "all" else [args.shape]:
        build = Build.of(shape, args.folder, args.seed)
        print(f"{shape}: {len(build.expected.rows)} rows")


if __name__ == "__main__":
    main()
