"""Requests that are no requests, that never end, or are too many: others are answered all the same."""

import client  # first: it quiets the libraries

import http.client
import json
import socket
import threading
import time
from contextlib import ExitStack

import pytest

import remote
from remote import MINUTE, Pod, ask
from test_api_reports import peak
from test_openapi import NEVER, operations
from test_pod import IDLE

MIB = 1 << 20
HEAD = b"POST /v1/table/t/delete/ HTTP/1.1\r\nhost: a\r\n"


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    root = tmp_path_factory.mktemp("door") / "db"
    root.mkdir()
    with Pod(root, **IDLE, CARETAKER_WORKER_JOBS="0") as pod:
        remote.create(remote.connect(pod.url), pairs=[(key, 1) for key in range(9)])
        remote.connect(pod.url).create_table("plain", remote.rows([(key, 1) for key in range(9)]))
        yield pod
        assert pod.process.poll() is None and rows(pod) == {"t": 9, "plain": 9}
    assert not [line for line in pod.said if "panicked" in line]


def rows(pod):
    return {name: ask(pod.url, f"/v1/table/{name}/count_rows", {})[1] for name in ["t", "plain"]}


def connected(pod, data=b""):
    stream = socket.create_connection(("127.0.0.1", pod.port), timeout=MINUTE)
    stream.sendall(data)
    return stream


def answered(pod, data):
    """Everything that is said to `data`, until the connection is closed."""
    with connected(pod) as stream:
        said = b""
        try:
            stream.sendall(data)
        except ConnectionError:
            pass  # It was answered before it was there.
        try:
            stream.shutdown(socket.SHUT_WR)
            while more := stream.recv(MIB):
                said += more
        except OSError:
            pass
        return said


REQUESTS = {
    "no HTTP": b"\x00\x01\x02" * 50,
    "a head that ends": HEAD,
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "an old one": b"GET /healthz HTTP/1.0\r\n\r\n",
    "a newer one": b"GET /healthz HTTP/9.9\r\n\r\n",
    "a long header": HEAD + b"x: " + b"a" * 9 * MIB + b"\r\n\r\n",
    "many headers": HEAD + b"x: a\r\n" * 5_000 + b"\r\n",
    "a header of odd bytes": HEAD + b"x-api-key: \xff\xfe\r\nx-request-id: \xff\r\n\r\n",
    "a header with a NUL": HEAD + b"x-request-id: a\0b\r\n\r\n",
    "a long path": b"GET /v1/table/" + b"a" * 3 * MIB + b"/facts HTTP/1.1\r\nhost: a\r\n\r\n",
    "a path with a NUL": b"GET /v1/table/a\0/facts HTTP/1.1\r\nhost: a\r\n\r\n",
    "a length that is none": HEAD + b"content-length: many\r\n\r\n",
    "a negative length": HEAD + b"content-length: -1\r\n\r\n",
    "a huge length": HEAD + b"content-length: 18446744073709551616\r\n\r\n",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 30\r\n\r\n{}",
    "a length beyond the body": HEAD + b'content-length: 9999\r\n\r\n{"predicate": "id < 5"}',
    "a length before its end": HEAD + b'content-length: 2\r\n\r\n{"predicate": "id < 5"}',
    "pieces without an end": HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\n{}   \r\n",
    "pieces that lie": HEAD + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "pieces and a length": HEAD + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    "an odd encoding": HEAD + b"transfer-encoding: gzip\r\n\r\n{}",
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500,
    "a proxy's": b"GET http://other/healthz HTTP/1.1\r\nhost: a\r\n\r\n",
    "a tunnel": b"CONNECT other:80 HTTP/1.1\r\nhost: a\r\n\r\n",
    "all of it": b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
}


@pytest.mark.parametrize("what", REQUESTS)
def test_what_is_no_request_is_refused_or_ignored(pod, what):
    said = answered(pod, REQUESTS[what])
    status = said[9:12]
    assert not said or said.startswith((b"HTTP/1", b"\0")), said[:100]
    assert not status.startswith(b"5"), said[:300]
    if "old" not in what and "proxy" not in what and "no host" not in what:
        assert not status.startswith(b"2"), said[:300]


def test_paths_that_can_not_be_read_are_refused_in_words(pod):
    for path in ["%zz", "%", "%f", "%ff", "%c3%28", "%00", "a%00b", "%u0041", "%ed%a0%80"]:
        for what in ["describe", "evaluate", "facts", "index/a/stats"]:
            status, why = ask(pod.url, f"/v1/table/{path}/{what}")
            if what == "facts":
                assert status == 405
            assert status in (400, 404, 405, 406) and why["error"] and "code" in why, (path, what, status, why)
    for query in ["limit=-1", "limit=99999999999999999999", "limit=NaN", "limit=%ff", "&".join(["a=b"] * 1_000)]:
        with pytest.raises(remote.urllib.error.HTTPError) as refused:
            pod.ask(f"/v1/table/?{query}")
        assert refused.value.code == 400


DEEP = 50_000
# As deep as is allowed, also for what calls itself most.
ALLOWED = 1_000
BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "another type": b"[]",
    "null": b"null",
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a deep filter": json.dumps({"k": 1, "filter": "(" * DEEP + "1=1" + ")" * DEEP, "predicate": "NOT " * DEEP + "true"}).encode(),
    "a long filter": json.dumps({"k": 1, "filter": " OR ".join(["id=1"] * DEEP), "predicate": " AND ".join(["id=-1"] * DEEP)}).encode(),
    "a deep sum": json.dumps({"k": 1, "filter": "id > " + "+".join(["1"] * DEEP), "predicate": "id < " + "-".join(["1"] * DEEP)}).encode(),
    "as many as are allowed": json.dumps({"k": 1, "filter": " OR ".join(["id=1"] * ALLOWED), "predicate": "id < -" + "-1" * (ALLOWED - 1)}).encode(),
    "no more than are allowed": json.dumps({"k": 1, "filter": "NOT " * ALLOWED + "true", "predicate": "NOT " * (ALLOWED - 1) + "true"}).encode(),
    "deep words": json.dumps({"k": 1, "full_text_query": {"query": {"boolean": {"must": [[]] * 9}}}}).encode(),
    "huge numbers": b'{"k":1e999,"limit":1e999,"version":99999999999999999999999,"predicate":1e400,"job_id":1e400}',
    "the largest": b'{"k":18446744073709551615,"offset":18446744073709551615,"limit":18446744073709551615,"version":18446744073709551615}',
    "no numbers": b'{"k":NaN,"limit":Infinity,"version":-Infinity}',
    "a key twice": b'{"predicate":"id<0","predicate":"true","job_id":"a","job_id":"b","tag":"a","tag":"b","version":1,"version":2}',
    "no text": b'{"predicate":"\xff\xfe","job_id":"\xff","tag":"\xff","column":"\xff"}',
    "half a letter": rb'{"predicate":"\ud800","job_id":"\ud800","tag":"\udfff","column":"\ud800"}',
    "a NUL": rb'{"predicate":"id\u0000<5","job_id":"\u0000","tag":"a\u0000","column":"\u0000","version":1,"name":"\u0000","k":1,"filter":"\u0000"}',
    "a mark in front": b'\xef\xbb\xbf{"predicate":"id < 5"}',
    "long text": json.dumps({"predicate": "x" * 200_000, "job_id": "x" * 200_000, "tag": "x" * 200_000, "version": 1, "column": "x" * 200_000}).encode(),
    "many vectors": json.dumps({"k": 5, "vector": [[1.0]] * 5_000}).encode(),
    "more than there is room for": b" " * (17 * MIB),
}
# They would take the tables away, or need no body for that.
TAKES = ("/drop", "/disable_rte", "/unset_lsm_write_spec", "/insert", "/merge_insert", "/create", "/restore")


def posted(pod, path, body):
    """Status and JSON of an answer, which comes also where the body is too large to be read."""
    connection = http.client.HTTPConnection("127.0.0.1", pod.port, timeout=MINUTE)
    try:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("what", BODIES)
def test_bodies_that_are_not_what_is_asked_for_are_refused(pod, what):
    for method, path in operations():
        if method != "post" or path == NEVER or path.endswith(TAKES):
            continue
        for name in ["t", "plain"]:
            at = path.replace("{id}", name).replace("{index}", "none")
            status, said = posted(pod, at, BODIES[what])
            assert status < 500, (at, status, said[:300])
            if status >= 400:
                assert {"error", "code"} <= json.loads(said).keys(), (at, said[:300])
            if "{id}" not in path:
                break
    assert rows(pod) == {"t": 9, "plain": 9}


def test_a_body_that_never_ends_is_not_read_for_ever_and_takes_no_memory(pod):
    before = peak(pod.process.pid)
    piece = b"%x\r\n" % MIB + b" " * MIB + b"\r\n"
    with connected(pod, HEAD + b"transfer-encoding: chunked\r\n\r\n") as stream:
        sent = 0
        with pytest.raises(OSError):
            while sent < 2_000:
                stream.sendall(piece)
                sent += 1
    assert sent < 1_000
    assert peak(pod.process.pid) < before + (128 << 20)


def test_thousands_of_connections_keep_nobody_out(pod):
    with ExitStack() as open_:
        for number in range(3_000):
            open_.enter_context(connected(pod, [b"", b"GET /heal", HEAD + b"content-length: 9\r\n"][number % 3]))
            if number % 500 == 0:
                assert ask(pod.url, "/v1/table/t/count_rows", {}) == (200, 9)
        assert remote.connect(pod.url).open_table("t").count_rows() == 9


def test_heads_that_come_slowly_keep_nobody_out_where_files_are_few(root):
    root.mkdir()
    few = 256
    pod = Pod(root, **IDLE)
    pod.args = ["prlimit", f"--nofile={few}:{few}", *pod.args]
    with pod, ExitStack() as open_:
        table = remote.create(remote.connect(pod.url), pairs=[(1, 1)])
        slow = [open_.enter_context(connected(pod, HEAD)) for _ in range(2 * few)]
        for turn in range(20):
            for stream in slow:
                try:
                    stream.sendall(b"x: y\r\n")
                except OSError:
                    pass
            remote.upsert(table, [(turn, turn)])
            assert table.count_rows() == max(turn + 1, 2)
        # Those that were quiet for longest had to go, and are told so.
        gone = [stream for stream in slow if closed(stream)]
        assert len(gone) > few
    assert not [line for line in pod.said if "too many open files" in line.lower()]


def closed(stream):
    stream.settimeout(0.01)
    try:
        return stream.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_whoever_sends_a_body_slowly_keeps_nobody_waiting(pod):
    """Each byte a while after the other, of many at once."""
    slow = [connected(pod, HEAD + b"content-length: 900\r\n\r\n{") for _ in range(50)]
    stop = threading.Event()

    def trickle():
        while not stop.wait(0.05):
            for stream in slow:
                stream.sendall(b" ")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        began = time.monotonic()
        for _ in range(20):
            assert rows(pod) == {"t": 9, "plain": 9}
        assert time.monotonic() - began < MINUTE / 2
    finally:
        stop.set()
        thread.join()
        [stream.close() for stream in slow]
