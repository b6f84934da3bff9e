"""The demo's LanceDB side: make a table with the real client, show it, check it.

    python tests/py/demo.py make|show|check|forget <folder>

`make` writes a catalogue with updates, deletes and new rows that only the LSM path can see, `show`
prints what lies in the folder, `check` reads every row the ways there are and compares with what
`make` wrote, `forget` drops the versions of the table that only time travel would read.
"""

import client  # first: it quiets the libraries

import argparse
import random
import sys
from pathlib import Path

import lance
import lancedb
import pyarrow as pa

import check
import expected as expectations
import state
from tables import Build, vector

NAME = "products"
BASE_ROWS = 2_000
ROUNDS = 5
THINGS = "lamp chair kettle desk shelf rug clock vase stool mirror".split()
KINDS = "oak brass linen walnut steel ceramic birch copper wool glass".split()


def make(folder):
    """A table in four buckets with four indexes, five rounds of writes and one of deletes."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    client.connect(folder).drop_table(NAME, ignore_missing=True)
    rng = random.Random(11)

    def row(i, edition):
        name = f"{rng.choice(KINDS)} {rng.choice(THINGS)} edition{edition}"
        return {"id": i, "name": name, "price": rng.randrange(500, 90_000), "shape": vector(rng)}

    fields = [
        pa.field("id", pa.int64(), False),
        pa.field("name", pa.string()),
        pa.field("price", pa.int64()),
        pa.field("shape", pa.list_(pa.float32(), 8)),
    ]
    build = Build(folder, NAME)
    build.create(
        fields,
        [row(i, 1) for i in range(BASE_ROWS)],
        spec=lancedb.LsmWriteSpec.bucket("id", 4),
        btree=["id", "price"],
        text="name",
        vector="shape",
    )
    updated = new = 0
    for edition in range(2, 2 + ROUNDS):
        updates = rng.sample(range(BASE_ROWS), 160)
        news = range(BASE_ROWS + new, BASE_ROWS + new + 60)
        build.put([row(i, edition) for i in [*updates, *news]])
        updated, new = updated + len(updates), new + len(news)
    # The open client can't delete from an LSM table; Lance's own writer can.
    deleted = rng.sample(range(BASE_ROWS + new), 120)
    build.delete([row(i, 0) for i in deleted])
    build.done()
    print(f"{NAME}: {BASE_ROWS:,} rows at first; then {updated} updates, {new} new rows, {len(deleted)} deletes, "
          f"written with the LanceDB client {lancedb.__version__}\n")  # fmt: skip


def show(folder):
    """The numbers of the table: base, shards, indexes."""
    path = client.path(folder, NAME)
    dataset, seen = lance.dataset(path), state.read(path)
    union = client.connect(folder).open_table(NAME).search().use_lsm(True).limit(check.MANY).select(["id"])
    print(f"{NAME}, version {dataset.version}")
    print(f"  {'in the base':<26}{dataset.count_rows():>6,} rows")
    print(f"  {'base and SSTables together':<26}{union.to_arrow().num_rows:>6,} rows\n")
    print(f"  {'shard':<10}{'SSTables':>10}{'not folded':>12}{'rows in them':>14}")
    for shard in seen.shards.values():
        waiting = seen.waiting(shard)
        rows = sum(lance.dataset(f"{path}/_mem_wal/{shard.id}/{s.path}").count_rows() for s in waiting)
        print(f"  {shard.id[:8]:<10}{len(shard.sstables):>10}{len(waiting):>12}{rows:>14,}")
    print(f"\n  {'index':<14}{'type':<10}{'rows covered':>14}")
    for index in dataset.describe_indices():
        if not index.name.startswith("__lance_"):
            print(f"  {index.name:<14}{index.index_type:<10}{index.num_rows_indexed:>14,}")
    print()


def verify(folder):
    """Reads the rows by full scan, LSM path and every index, and compares with what was written."""
    expected = expectations.load(folder)[NAME]
    try:
        for said in check.table(folder, NAME, expected):
            print(f"  ✓ {said}")
    except check.Difference as difference:
        print(f"  ✗ {difference}")
        sys.exit(f"\n{NAME} does not hold what was written to it.")
    print(f"\n  {NAME} reads the same every way.\n")


def forget(folder):
    """Drops older versions: as long as one could be read, its SSTables have to stay."""
    gone = client.forget(lance.dataset(client.path(folder, NAME)))
    print(f"{NAME}: {gone} older versions forgotten, so their SSTables are free to go\n")


def main():
    steps = {"make": make, "show": show, "check": verify, "forget": forget}
    parser = argparse.ArgumentParser(description="the LanceDB side of `make demo`")
    parser.add_argument("step", choices=steps)
    parser.add_argument("folder")
    args = parser.parse_args()
    if args.step != "make" and not Path(client.path(args.folder, NAME)).is_dir():
        sys.exit(f"no table `{NAME}` in `{args.folder}`: run the step `make` first")
    steps[args.step](args.folder)


if __name__ == "__main__":
    main()
