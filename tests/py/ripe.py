"""A small table on which every kind of job is due, and the settings that let one kind be done."""

import random

import lance
import pyarrow as pa
from lancedb import LsmWriteSpec

import client
from stage import DAY, HOUR, at
from tables import ID, WORDS, Build, vector
from test_reports import killed

# Nothing but catch-up, which nothing holds back.
NOTHING = {
    "WAL_COMPACT_TRIGGER_COUNT": "1000",
    "RETIRE_DELAY_SECS": str(DAY),
    "COLLECT_GRACE_SECS": str(DAY),
    "COMPACTION_SMALL_FRAGMENTS_MIN": "1000",
    "COMPACTION_DELETED_PERMILLE": "1000",
    "REMAP_REWRITES_MIN": "1000",
    "REMAP_AGE_SECS": str(DAY),
}
# Kind to what makes it due.
DUE = {
    "fold": {"WAL_COMPACT_TRIGGER_COUNT": "1"},
    "index": {
        "INDEX_SEGMENTS_MAX": "1",
        "INDEX_UNINDEXED_ROWS_MIN": "1",
        "INDEX_UNINDEXED_PERMILLE": "0",
    },
    "compact": {
        "COMPACTION_SMALL_FRAGMENTS_MIN": "2",
        "COMPACTION_DELETED_PERMILLE": "100",
        "COMPACTION_DEFER_REMAP": "1",
    },
    "compact inline": {
        "COMPACTION_SMALL_FRAGMENTS_MIN": "2",
        "COMPACTION_DELETED_PERMILLE": "100",
        "COMPACTION_DEFER_REMAP": "0",
    },
    "cleanup": {
        "CLEANUP_MIN_VERSION_AGE_SECS": str(HOUR // 2),
        "CLEANUP_INITIAL_VERSION": "1",
        "CLEANUP_VERSION_INTERVAL": "1",
    },
    "remap": {"REMAP_REWRITES_MIN": "1"},
    "retire": {"RETIRE_DELAY_SECS": "0"},
    "collect": {"COLLECT_GRACE_SECS": "0"},
}
# Kind to the beginning of its jobs' names.
JOBS = {
    "fold": "memwal_compaction",
    "index": "reindex_",
    "compact": "compact",
    "compact inline": "compact",
    "cleanup": "cleanup",
    "remap": "remap",
    "retire": "memwal_retire",
    "collect": "memwal_collect",
}
EVERYTHING = {
    key: value
    for kind, due in DUE.items()
    if kind != "compact inline"
    for key, value in due.items()
}
FIELDS = [
    ID,
    pa.field("n", pa.int32()),
    pa.field("state", pa.string()),
    pa.field("text", pa.string()),
    pa.field("vec", pa.list_(pa.float32(), 8)),
]
STABLE = {"new_table_enable_stable_row_ids": "true"}


def only(*kinds):
    """Settings under which nothing but `kinds` (and catch-up) is done.

    The clock is an hour ahead, so that what the client wrote is old enough for a cleanup, and what
    these processes write is not.
    """
    return at(HOUR) | NOTHING | {key: value for kind in kinds for key, value in DUE[kind].items()}


def row(i, gen):
    rng = random.Random(f"{i} {gen}")
    text = f"{rng.choice(WORDS)} gen{gen}"
    return {
        "id": i,
        "n": gen * 100 + i % 10,
        "state": f"state{gen}",
        "text": text,
        "vec": vector(rng),
    }


def append(build, rows):
    """Plain new rows, in a fragment of their own that no index covers."""
    lance.dataset(build.path).insert(build._arrow(rows))
    build._remember(rows)


def ripe(caretaker, root, **storage):
    """Builds the table; every kind is due on it but catch-up, which follows a fold."""
    root.mkdir(parents=True, exist_ok=True)
    build = Build(root, "ripe")
    indexes = {"btree": ["n"], "bitmap": ["state"], "text": "text", "vector": "vec"}
    kept, spec = ["n_idx", "text_idx", "vec_idx"], LsmWriteSpec.bucket("id", 2)
    rows = [row(i, 0) for i in range(40)]
    build.create(FIELDS, rows, spec=spec, maintained=kept, storage=storage or None, **indexes)
    append(build, [row(i, 1) for i in range(40, 50)])
    build.put([row(i, 2) for i in range(0, 12)])
    caretaker("run", root, **only("fold", "retire"))  # to be collected
    client.forget(lance.dataset(build.path))
    build.put([row(i, 3) for i in range(6, 18)])
    caretaker("run", root, **only("fold"))  # to be retired
    for first in (50, 54):
        append(build, [row(i, 4) for i in range(first, first + 4)])
    # To be remapped; two fragments stay small.
    killed(root, "compact.committed", **only("compact"), COMPACTION_FRAGMENTS_MAX="3")
    if storage:
        # With stable row ids a catch-up takes in all rows there are, and merges all segments.
        caretaker("run", root, **only())
        append(build, [row(i, 4) for i in (58, 59)])
    build.put([row(i, 5) for i in (1, 9, 16, 45, 90, 91)])
    build.delete([row(i, 0) for i in (2, 10, 46, 50)])
    build.done()
    return build
