"""Bodies that are broken, or lie about themselves: rows as Arrow and what is asked as JSON."""

import client  # first: it quiets the libraries

import http.client
import io
import json
import random
import struct
import threading
from decimal import Decimal

import lance
import pyarrow as pa
import pytest

import remote
from conftest import table_path
from remote import Pod, ask
from serving import MINUTE
from test_api_reports import peak
from test_pod import IDLE

SEED = 20261130
# Of each way to ask, by each of some threads.
REQUESTS = 80
THREADS = 4
MEMORY = 1 << 30
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
FIELDS = [
    client.key_field("id", pa.int64()),
    pa.field("s", pa.string()),
    pa.field("b", pa.bool_()),
    pa.field("l", pa.list_(pa.int32())),
    pa.field("v", pa.list_(pa.float32(), 4)),
    pa.field("st", pa.struct([("a", pa.int64()), ("t", pa.string())])),
]
# Of types that no table has: they are refused, or become one's own.
ODD = {
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "view": pa.array(["a", "longer than twelve bytes", None], pa.string_view()),
    "union": pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]),
    "ends": pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2]),
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int32())),
    "decimal": pa.array([Decimal("1.5"), None, Decimal("2.5")], pa.decimal256(50, 5)),
    "interval": pa.array([None, None, None], pa.month_day_nano_interval()),
    "null": pa.nulls(3),
    "deep": pa.array([[[[[[1]]]]], None, []]),
    "time": pa.array([1, 2, 3], pa.timestamp("ns", "Nowhere/Land")),
}


def row(i):
    return {"id": i, "s": f"row {i}" * 3, "b": i % 2 == 0, "l": [i] * (i % 3), "v": [i, 1, 2, 3], "st": {"a": i, "t": "x"}}


def written(table, compression=None, rows=None):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(table, rows)
    return sink.getvalue()


def streams():
    """Real ones: as clients pack them, in one batch or several, and of odd types."""
    table = pa.Table.from_pylist([row(i) for i in range(40)], schema=pa.schema(FIELDS))
    for compression in [None, "lz4", "zstd"]:
        yield written(table, compression)
        yield written(table, compression, 7)
    for name, column in ODD.items():
        yield written(pa.table({"id": [1, 2, 3], name: column}), "lz4")
        yield written(pa.table({"id": [1, 2, 3], "s": column}))


def lie(rng, body):
    """A number that is not true: huge, negative, or near another. Heads hold lengths and counts, so do packed buffers."""
    size = rng.choice([4, 8])
    at = rng.randrange(max(len(body) - size, 1)) & ~3
    number = rng.choice([-1, -(2**31), 2**31 - 1, 2**20, 2**28, 0, 1, 7, 2**16, rng.getrandbits(31)])
    if size == 8:
        number = rng.choice([number, -(2**63), 2**63 - 1, 2**40, 2**29, 2**33])
    body[at : at + size] = struct.pack("<q" if size == 8 else "<i", number)[: len(body) - at]


def broken(rng, known):
    """A stream that is not as it was written."""
    body = bytearray(rng.choice(known))
    for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 5, 20])):
        at = rng.randrange(max(len(body), 1))
        match rng.randrange(8):
            case 0 | 1 | 2:
                lie(rng, body)
            case 3 | 4:
                body[at : at + 1] = bytes([body[at] ^ 1 << rng.randrange(8)]) if body else b"\0"
            case 5:
                del body[at:]
            case 6:
                del body[at : at + rng.randrange(64)]
            case 7:
                other = rng.choice(known)
                body[at:at] = other[rng.randrange(len(other)) :][:300]
    return bytes(body)


class Asking(threading.Thread):
    """Requests on one connection, which is made anew where the server closes it."""

    def __init__(self, pod, seed, paths, known):
        super().__init__()
        self.address, self.rng, self.paths, self.known = f"127.0.0.1:{pod.port}", random.Random(seed), paths, known
        self.seen, self.failed = {}, []

    def run(self):
        connection = http.client.HTTPConnection(self.address, timeout=MINUTE)
        for turn in range(REQUESTS * len(self.paths)):
            path, body = self.paths[turn % len(self.paths)], broken(self.rng, self.known)
            try:
                connection.request("POST", path, body, ARROW)
                answer = connection.getresponse()
                status, said = answer.status, answer.read()
            except Exception as error:
                status, said = 0, repr(error).encode()
                connection.close()
            self.seen[status] = self.seen.get(status, 0) + 1
            # Two merges may be in each other's way.
            if status not in (200, 400, 409, 413):
                self.failed.append((status, path, said[:300], body.hex()[:4000]))


def test_rows_that_are_broken_are_refused_and_hurt_nobody(root):
    root.mkdir()
    with Pod(root, **IDLE, CARETAKER_WORKER_JOBS="0") as pod:
        known = list(streams())
        db = remote.connect(pod.url)
        rows = pa.Table.from_pylist([row(i) for i in range(10)], schema=pa.schema(FIELDS))
        for name in ["plain", "lsm"]:
            db.create_table(name, rows)
        db.open_table("lsm").set_lsm_write_spec(remote.lancedb.LsmWriteSpec.bucket("id", 2))
        merge = "merge_insert/?on=id&when_matched_update_all=true&when_not_matched_insert_all=true"
        paths = [f"/v1/table/{name}/{what}" for name in ["plain", "lsm"] for what in ["insert/", merge]]
        paths.append("/v1/table/plain/create/?mode=exist_ok")
        # Each has a table of its own to make again and again: two at once would be in each other's way.
        own = lambda number: [f"/v1/table/made{number}/{what}" for what in ["create/?mode=overwrite", "add_columns/"]]
        for number in range(THREADS):
            db.create_table(f"made{number}", rows)
        asking = [Asking(pod, SEED + number, paths + own(number), known) for number in range(THREADS)]
        [thread.start() for thread in asking]
        [thread.join() for thread in asking]
        failed = [failed for thread in asking for failed in thread.failed]
        assert not failed, (len(failed), failed[:3])
        seen = [sum(thread.seen.get(status, 0) for thread in asking) for status in (200, 400)]
        assert min(seen) > REQUESTS, "all are refused, or none"
        assert pod.process.poll() is None
        assert peak(pod.process.pid) < MEMORY
        for name in ["plain", "lsm", "made0"]:
            count = ask(pod.url, f"/v1/table/{name}/count_rows", {})[1]
            assert len(db.open_table(name).search().limit(10**6).to_arrow()) == count
            lance.dataset(str(table_path(root, name))).to_table()
        db.open_table("lsm").flush_lsm()
    # Arrow's decoder gives up on some, which is caught, and a refusal. Nothing else does.
    assert not [line for line in pod.said if "panicked" in line and "/arrow-" not in line]
