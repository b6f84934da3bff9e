"""The same care on object storage: no folder, no file lock, only the commit as guard."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import lance
import lancedb
import pyarrow as pa
import pytest
from lancedb.index import BTree

import remote
from conftest import command, environment
from remote import Pod

BUCKET = "bucket"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """An S3 server on this machine; its address and the environment to reach it by."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": url,
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = dict(os.environ)
    os.environ.update(settings)
    log = (tmp_path_factory.mktemp("s3") / "log").open("wb")
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"))
                break
            except urllib.error.URLError:
                assert server.poll() is None and time.monotonic() < deadline, "the S3 server did not come up"
                time.sleep(0.2)
        yield f"s3://{BUCKET}/db"
    finally:
        server.terminate()
        server.wait()
        os.environ.clear()
        os.environ.update(before)


def test_a_table_on_s3_is_folded_by_processes_that_cannot_lock(s3):
    table = lancedb.connect(s3).create_table("items", pa.table({"id": range(100), "v": ["base"] * 100}, schema=SCHEMA))
    table.set_unenforced_primary_key(["id"])
    table.create_index("id", config=BTree())
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
    for n in range(4):
        rows = pa.table({"id": [n, 1000 + n], "v": [f"new {n}"] * 2}, schema=SCHEMA)
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        table.close_lsm_writers()
    settings = environment(WAL_COMPACT_TRIGGER_COUNT="1", WAL_COMPACT_PREFIX_MAX="2")
    running = [
        subprocess.Popen(command("run", s3), env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    for process in running:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert "secret" not in said
    expected = {**{i: "base" for i in range(4, 100)}, **{n: f"new {n}" for n in range(4)}, **{1000 + n: f"new {n}" for n in range(4)}}
    base = lance.dataset(f"{s3}/items.lance").to_table()
    assert len(base) == len(expected)
    assert dict(zip(base["id"].to_pylist(), base["v"].to_pylist())) == expected
    union = lancedb.connect(s3).open_table("items").search().use_lsm(True).limit(1000).to_arrow()
    assert dict(zip(union["id"].to_pylist(), union["v"].to_pylist())) == expected
    again = subprocess.run(command("run", s3), env=settings, capture_output=True, text=True, timeout=300)
    assert "1 idle" in again.stdout


def test_clients_write_to_a_pod_on_s3_and_a_second_one_takes_over_after_a_kill(s3):
    with Pod(s3, WAL_COMPACT_TRIGGER_COUNT="100") as pod:
        db = remote.connect(pod.url)
        table = remote.create(db, "clients", [(0, 0)], lancedb.LsmWriteSpec.bucket("id", 2))
        remote.upsert(table, [(key, 1) for key in range(6)])
        assert remote.held(table) == {key: 1 for key in range(6)}
        pod.kill()
        pod.start()
        table = remote.connect(pod.url).open_table("clients")
        assert remote.held(table) == {key: 1 for key in range(6)}
        table.delete("id = 3")
        table.checkpoint_lsm()
    base = lance.dataset(f"{s3}/clients.lance").to_table().to_pydict()
    assert dict(zip(base["id"], base["n"])) == {key: 1 for key in range(6) if key != 3}
