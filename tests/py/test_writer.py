"""What the writer does in between: drops a column, unsets the spec, dies, or simply stays open."""

import os
import signal
import subprocess
import sys

import pyarrow as pa

import check
import client
import state
from tables import Build


def listed(build):
    return [s.path for shard in state.read(build.path).shards.values() for s in shard.sstables]


def test_a_dropped_column_stops_the_fold_by_name_and_keeps_every_sstable(caretaker, root):
    build, other = Build.of("renamed", root), Build.of("tombstones", root)
    before = listed(build)
    build.table.drop_columns(["n"])
    for row in build.expected.rows.values():
        del row["n"]
    said = caretaker("run", root, exit=1).stderr
    assert "`renamed`" in said and "`n`" in said
    check.table(root, build.name, build.expected, waiting=True)
    assert listed(build) == before
    check.table(root, other.name, other.expected)


def test_an_unset_write_spec_leaves_the_sstables_for_the_day_it_is_set_again(caretaker, root):
    build = Build.of("buckets", root)
    spec = build.table.get_lsm_write_spec()
    build.table.unset_lsm_write_spec()
    before = state.files(root)
    caretaker("run", root)
    assert state.files(root) == before
    build.table.set_lsm_write_spec(spec)
    check.table(root, build.name, build.expected, waiting=True)
    caretaker("run", root)
    check.table(root, build.name, build.expected)


WRITE_AND_HANG = """
import sys
import client, pyarrow as pa
table = client.connect(sys.argv[1]).open_table("plain_int64")
rows = pa.Table.from_pylist([{"id": i, "v": "in the log"} for i in (7, 5000)], schema=table.schema)
client.upsert(table, rows, ["id"], close=False)
print("written", flush=True)
sys.stdin.read()
"""


def test_rows_of_a_killed_writer_survive_the_fold_in_its_log(caretaker, root):
    build = Build.of("plain_int64", root)
    here = os.path.dirname(os.path.abspath(__file__))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writer = subprocess.Popen([sys.executable, "-c", WRITE_AND_HANG, root], cwd=here, **pipes)
    assert writer.stdout.readline() == "written\n"
    caretaker("run", root)
    check.table(root, build.name, build.expected)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    caretaker("run", root)
    check.table(root, build.name, build.expected)
    # The next writer replays the log.
    build.expected.rows[(7,)]["v"] = "in the log"
    build.expected.rows[(5000,)] = {"id": 5000, "v": "in the log"}
    build.put([{"id": 1, "v": "after"}])
    check.table(root, build.name, build.expected, waiting=True)
    caretaker("compact", build.path)
    check.table(root, build.name, build.expected)


def test_a_writer_that_stays_open_is_not_fenced_by_a_fold(caretaker, root):
    build = Build.of("plain_int64", root)
    schema = build.table.schema
    client.upsert(build.table, pa.Table.from_pylist([{"id": 7, "v": "open"}], schema=schema), ["id"], close=False)
    caretaker("run", root)
    client.upsert(build.table, pa.Table.from_pylist([{"id": 8, "v": "still open"}], schema=schema), ["id"])
    build.expected.rows[(7,)]["v"], build.expected.rows[(8,)]["v"] = "open", "still open"
    check.table(root, build.name, build.expected, waiting=True)
    caretaker("compact", build.path)
    check.table(root, build.name, build.expected)
