"""The real client, made quiet, and the few calls by which every table here is written.

lancedb writes rows. It has no delete for LSM tables, so tombstones go through the shard writer of
pylance, which is the same Lance.
"""

import os
import warnings

# Both libraries read these at import.
os.environ.setdefault("LANCEDB_LOG", "off")
os.environ.setdefault("LANCE_LOG", "lance=off")
warnings.simplefilter("ignore")

import uuid
from datetime import timedelta
from pathlib import Path

import lance
import lancedb
import pyarrow as pa
from lance.mem_wal import evaluate_sharding_spec

SHARD_NAMESPACE = uuid.UUID("4c534d57-5249-5445-5f53-484152443031")


def connect(root):
    """A connection whose tables look for a new version at every read."""
    return lancedb.connect(str(root), read_consistency_interval=timedelta(0))


def path(root, name):
    """The folder of table `name`, as a string."""
    return str(Path(root) / f"{name}.lance")


def key_field(name, data_type, position=1):
    """A field that is the `position`-th column of the primary key.

    The client's own call sets one column only; a composite key comes with the schema.
    """
    key = "lance-schema:unenforced-primary-key"
    return pa.field(name, data_type, False, metadata={key: "true", f"{key}:position": str(position)})


def sharded(dataset, rows):
    """Splits `rows` by shard: pairs of shard id and table."""
    spec = dataset.mem_wal_index_details()["sharding_specs"][0]
    transform = spec["fields"][0]["transform"]
    if transform == "unsharded":
        return [(shard_id("unsharded"), rows)]
    batch = rows.combine_chunks().to_batches()[0]
    values = evaluate_sharding_spec(batch, spec, dataset.lance_schema).column(0).to_pylist()
    return [
        (shard_id(f"{transform}-{value}"), rows.filter(pa.array([v == value for v in values])))
        for value in sorted(set(values))
    ]


def shard_id(name):
    """The client's id of the shard called `name` (text identities only)."""
    return str(uuid.uuid5(SHARD_NAMESPACE, name))


def upsert(table, rows, key, close=True):
    """Writes `rows` through the LSM path: one SSTable in each shard they go to."""
    dataset = lance.dataset(table.uri)
    for _, part in sharded(dataset, rows):
        table.merge_insert(list(key)).when_matched_update_all().when_not_matched_insert_all().execute(part)
        if close:
            table.close_lsm_writers()


def put(dataset, rows):
    """Writes `rows` with pylance: for columns the client can't send (blobs)."""
    for shard, part in sharded(dataset, rows):
        with dataset.mem_wal_writer(shard) as writer:
            writer.put(part)


def delete(dataset, rows, key):
    """Writes one tombstone for each of `rows`: one SSTable in each shard they live in."""
    for shard, part in sharded(dataset, rows):
        with dataset.mem_wal_writer(shard) as writer:
            writer.delete(part.select(list(key)))


def forget(dataset):
    """Drops every version but the newest; returns how many went."""
    before = len(dataset.versions())
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    return before - len(dataset.versions())
