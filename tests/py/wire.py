"""The remote client's two faces as one, for tests that hold for both, and tables of each kind."""

import client  # first: it quiets the libraries

import asyncio
import functools
import inspect
import itertools
from datetime import timedelta

import lancedb
import numpy as np
import pyarrow as pa

import remote
from remote import MINUTE

WAIT = timedelta(seconds=MINUTE)
# Nothing is folded unless somebody asks.
IDLE = {"WAL_COMPACT_TRIGGER_COUNT": "100", "WAL_MAX_DATA_AGE_SECS": "3600"}
FACES = ["sync", "async"]
SPECS = {
    "unsharded": lancedb.LsmWriteSpec.unsharded,
    "bucket": lambda: lancedb.LsmWriteSpec.bucket("id", 3),
    "identity": lambda: lancedb.LsmWriteSpec.identity("kind"),
}
PLAIN = "plain"
KINDS = [PLAIN, *SPECS]
# Each face with half of the kinds of tables, and with the other half where another version of the client is tested.
NEW = tuple(map(int, lancedb.__version__.split(".")[:2])) >= (0, 40)
TURNS = FACES if NEW else FACES[::-1]
PAIRS = [(TURNS[at % 2], kind) for at, kind in enumerate(KINDS)]
DIMENSION = 8
SCHEMA = pa.schema(
    [
        client.key_field("id", pa.int64()),
        pa.field("kind", pa.int32()),
        pa.field("n", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)
names = (f"t{number}" for number in itertools.count())


class Waited:
    """An asynchronous object of the client, whose calls are waited for."""

    loop = asyncio.new_event_loop()

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        value = getattr(self._inner, name)
        if not callable(value) or isinstance(value, type):
            return self._of(value)

        @functools.wraps(value)
        def call(*args, **kwargs):
            done = value(*args, **kwargs)
            return self._of(self.loop.run_until_complete(done) if inspect.isawaitable(done) else done)

        return call

    @staticmethod
    def _of(value):
        known = type(value).__name__.startswith(("Async", "LanceMerge"))
        return Waited(value) if known else value


def connect(url, face):
    config = {"api_key": "dev", "host_override": url, "client_config": remote.ONCE}
    if face == "sync":
        return lancedb.connect("db://dev", **config)
    return Waited(Waited.loop.run_until_complete(lancedb.connect_async("db://dev", **config)))


def query(table, vector=None, text=None, **options):
    """A query of either face; `text` is words or a structured query."""
    if isinstance(table, Waited):
        found = table.query()
        if vector is not None:
            found = found.nearest_to(vector)
        if text is not None:
            found = found.nearest_to_text(text, **options)
        return found
    if vector is not None and text is not None:
        return table.search(query_type="hybrid").vector(vector).text(text)
    if text is not None:
        options = {"fts_columns": options["columns"]} if options else {}
        return table.search(text, query_type="fts", **options)
    return table.search(vector) if vector is not None else table.search()


def late(found, which):
    """Filters what was found, and not what is searched."""
    return found.where(which).postfilter() if isinstance(found, Waited) else found.where(which, prefilter=False)


def rows(ids, seed=0, n=None):
    """Rows whose every value follows from their id, the seed and `n`; what names an identity shard from the id alone."""
    ids = list(ids)
    words = ["ape", "bear", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "koi"]
    made = []
    for id in ids:
        random = np.random.default_rng([seed, abs(id), 17])
        made.append(
            {
                "id": id,
                "kind": id % 3,
                "n": int(random.integers(0, 20)) if n is None else n,
                "text": " ".join(random.choice(words, int(random.integers(2, 7)))) + f" row{id}",
                "tags": [f"tag{value}" for value in random.integers(0, 4, int(random.integers(0, 3)))],
                "vector": random.random(DIMENSION, dtype=np.float32),
            }
        )
    return pa.Table.from_pylist(made, schema=SCHEMA)


def create(db, kind, data, **options):
    table = db.create_table(next(names), data, **options)
    if kind != PLAIN:
        table.set_lsm_write_spec(SPECS[kind]())
    return table


def upsert(table, data, lsm=None):
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return (merge if lsm is None else merge.use_lsm(lsm)).execute(data)


def values(table, lsm=None, columns=("id", "n"), where=None):
    """All rows, by their first column, which no two share."""
    found = query(table).select(list(columns)).limit(1_000_000)
    found = found if lsm is None else found.use_lsm(lsm)
    found = found if where is None else found.where(where)
    lines = [tuple(line[name] for name in columns) for line in found.to_list()]
    assert len({line[0] for line in lines}) == len(lines), "a key is read twice"
    return {line[0]: line[1] if len(columns) == 2 else line[1:] for line in lines}
