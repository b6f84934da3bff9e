"""A table that is written all the time, and what a reader may see of it at any moment.

    python tests/py/live.py <folder> <rounds>

Round `g` is two steps. Step 2g-1 updates every seventh base key and inserts one fresh key; step 2g
deletes the fresh key of three rounds before. A finished step adds a byte to `steps` in the folder.
"""

import client  # first: it quiets the libraries

import random
import sys
from pathlib import Path

import lance
import lancedb
import pyarrow as pa
from lancedb.index import FTS, BTree, IvfFlat

from tables import vector

NAME = "live"
BASE = 60
FRESH = 1_000
LIFE = 3
FIELDS = [
    pa.field("id", pa.int64(), False),
    pa.field("v", pa.int64()),
    pa.field("text", pa.string()),
    pa.field("vec", pa.list_(pa.float32(), 8)),
]


def value(key, step):
    """The value of `key` after `step` steps; None when it is not there."""
    rounds = (step + 1) // 2
    if key < BASE:
        return max((g for g in range(1, rounds + 1) if g % 7 == key % 7), default=0)
    born = key - FRESH
    deleted = step >= 2 * (born + LIFE)
    return born if 1 <= born <= rounds and not deleted else None


def keys(step):
    """Every key that lives, or did, by `step`."""
    return [*range(BASE), *range(FRESH + 1, FRESH + (step + 1) // 2 + 1)]


def create(root, indexed):
    """The base, in two buckets, with a BTree, full text and vector index or with none."""
    Path(root).mkdir(parents=True, exist_ok=True)
    table = client.connect(root).create_table(NAME, rows([(k, 0) for k in range(BASE)]))
    if indexed:
        for column, kind in (("id", BTree()), ("text", FTS()), ("vec", IvfFlat(num_partitions=2))):
            table.create_index(column, config=kind)
    table.set_unenforced_primary_key("id")
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.bucket("id", 2))


def rows(pairs):
    rng = random.Random(str(pairs))
    made = [{"id": k, "v": v, "text": f"common word{v}", "vec": vector(rng)} for k, v in pairs]
    return pa.Table.from_pylist(made, schema=pa.schema(FIELDS))


def write(root, rounds):
    table, steps = client.connect(root).open_table(NAME), open(Path(root) / "steps", "ab", buffering=0)
    for g in range(1, rounds + 1):
        updated = [(k, g) for k in range(BASE) if k % 7 == g % 7]
        client.upsert(table, rows([*updated, (FRESH + g, g)]), ["id"])
        steps.write(b".")
        if g > LIFE:
            client.delete(lance.dataset(table.uri), rows([(FRESH + g - LIFE, 0)]), ["id"])
        steps.write(b".")


def steps_done(root):
    file = Path(root) / "steps"
    return file.stat().st_size if file.exists() else 0


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]))
