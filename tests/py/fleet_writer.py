"""Writes to many tables in turn with the real client, for as long as nobody says stop.

    python tests/py/fleet_writer.py <folder> <tables> <rounds>

A round is one `merge_insert` to each table: some keys anew, one fresh key. It ends after so many rounds at
least, and when a file `stop` is in the folder; then `rounds` there says how many there were, for `value` to
say what each table must hold. The tables lie in `db` there.
"""

import client  # first: it quiets the libraries

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from lancedb import LsmWriteSpec
from lancedb.index import BTree

AT_ONCE = 4
KEYS = 20
FRESH = 1_000
FIELDS = [pa.field("id", pa.int64(), False), pa.field("n", pa.int64()), pa.field("v", pa.string())]


def name(number):
    return f"t{number:03}"


def rows(pairs):
    made = [{"id": key, "n": turn, "v": f"key {key} of round {turn}"} for key, turn in pairs]
    return pa.Table.from_pylist(made, schema=pa.schema(FIELDS))


def written(turn):
    """What round `turn` writes: keys and values."""
    return [(key, turn) for key in range(KEYS) if key % 3 == turn % 3] + [(FRESH + turn, turn)]


def held(rounds):
    """What a table holds after so many rounds."""
    pairs = {key: 0 for key in range(KEYS)}
    for turn in range(1, rounds + 1):
        pairs.update(written(turn))
    return sorted(rows(sorted(pairs.items())).to_pylist(), key=lambda row: row["id"])


def create(root, tables):
    """The tables; two in three are in two buckets, one in three has an index."""
    root.mkdir(parents=True)
    for number in range(min(3, tables)):
        table = client.connect(root).create_table(name(number), rows([(key, 0) for key in range(KEYS)]))
        if number == 0:
            table.create_index("n", config=BTree())
        table.set_unenforced_primary_key("id")
        table.set_lsm_write_spec(LsmWriteSpec.bucket("id", 2) if number else LsmWriteSpec.unsharded())
    for number in range(3, tables):
        shutil.copytree(client.path(root, name(number % 3)), client.path(root, name(number)))


def write(root, folder, tables, rounds):
    connection = client.connect(root)
    opened = [connection.open_table(name(number)) for number in range(tables)]
    turn = 0
    # The client waits for its log most of the time.
    with ThreadPoolExecutor(AT_ONCE) as threads:
        while turn < rounds or not (folder / "stop").exists():
            turn += 1
            said = rows(written(turn))
            list(threads.map(lambda table: client.upsert(table, said, ["id"]), opened))
            (folder / "rounds").write_text(str(turn))


if __name__ == "__main__":
    write(Path(sys.argv[1]) / "db", Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
