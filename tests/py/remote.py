"""LanceDB's client against a server of ours, and a server that is killed and comes back at one address."""

import client  # first: it quiets the libraries

import json
import re
import socket
import time
import urllib.error
import urllib.request

import lancedb
import pyarrow as pa

from serving import MINUTE, Serving

FIELDS = [client.key_field("id", pa.int64()), pa.field("n", pa.int64()), pa.field("v", pa.string())]
# One try: what a server says is what a test sees.
ONCE = {"retry_config": {"retries": 0, "connect_retries": 0, "read_retries": 0}}


def connect(url, key="dev", **config):
    """A database of the server at `url`."""
    return lancedb.connect("db://dev", api_key=key, host_override=url, client_config=config or None)


def rows(pairs, fields=FIELDS):
    """Rows with a value that tells their number."""
    made = [{"id": key, "n": n, "v": f"{key} of {n}"} for key, n in pairs]
    return pa.Table.from_pylist(made, schema=pa.schema(fields))


def create(db, name="t", pairs=(), spec=None):
    """A table that takes LSM writes."""
    made = {"data": rows(pairs)} if pairs else {"schema": pa.schema(FIELDS)}
    table = db.create_table(name, **made)
    table.set_lsm_write_spec(spec or lancedb.LsmWriteSpec.unsharded())
    return table


def upsert(table, pairs):
    return table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows(pairs))


def refused(call):
    """Status and code of what the server answers to a call that it does not do."""
    try:
        call()
    except Exception as error:
        said = f"{error} {error.__cause__}"
        code = re.search(r'"code": ?(\d+)', said)
        return getattr(error, "status_code", None), int(code[1]) if code else said
    raise AssertionError("it was done")


def held(table, lsm=None):
    """Every key with its number; no key comes twice."""
    query = table.search().select(["id", "n"]).limit(1_000_000)
    pairs = [(row["id"], row["n"]) for row in (query if lsm is None else query.use_lsm(lsm)).to_list()]
    assert len({key for key, _ in pairs}) == len(pairs), "a key is read twice"
    return dict(pairs)


def ask(url, path, body=None, key="dev"):
    """Status and JSON of a POST; an answer without a body is `None`. Bytes go as they are."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, headers={"x-api-key": key}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=MINUTE) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or "null")


def free_pair():
    """A port with a free one above it: Flight SQL is there."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
                return port
            except (OSError, OverflowError):
                continue


class Pod(Serving):
    """A server at one address, however often it is started."""

    def __init__(self, root, port=None, **settings):
        super().__init__(root, **settings)
        self.chosen, self.port = port is None, port or free_pair()
        self.at = self.args.index("127.0.0.1:0")
        self.args[self.at] = f"127.0.0.1:{self.port}"

    def __enter__(self):
        for _ in range(5):
            super().__enter__()
            taken = self.chosen and any("can't listen at" in line for line in self.said)
            if not taken:
                break
            # Somebody else has got it between the choice and the start; from then on it is kept.
            self.process.wait(timeout=MINUTE)
            self.listener.join()
            self.process.stdin.close()
            self.said.clear()
            self.port = free_pair()
            self.args[self.at] = f"127.0.0.1:{self.port}"
        self.chosen = False
        return self

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=MINUTE)
        self.listener.join()
        self.process.stdin.close()

    def stop(self):
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        code = self.process.wait(timeout=2 * MINUTE)
        self.listener.join()
        self.process.stdin.close()
        return code

    def start(self):
        # The port may be in use for a moment after a kill.
        end = time.monotonic() + MINUTE
        while True:
            self.said.clear()
            self.__enter__()
            if self.process.poll() is None and any("answering HTTP" in line for line in self.said):
                return self
            assert time.monotonic() < end, "".join(self.said)
