"""Writes beside each other, and beside what takes the table away: none that was acknowledged is lost or undone."""

import client  # first: it quiets the libraries

import http.client
import io
import json
import signal
import threading

import lancedb
import pyarrow as pa
import pytest

import remote
from remote import Pod, ask
from test_pod import IDLE
from waiting import until

UPSERT = "merge_insert/?on=id&when_matched_update_all=true&when_not_matched_insert_all=true"
FIELDS = pa.schema(remote.FIELDS)
MINUTE = 60


@pytest.fixture
def pod(root):
    root.mkdir()
    with Pod(root, **IDLE) as pod:
        yield pod


def stream(rows, schema):
    """One batch a row, so that the first is read long before the last has come."""
    body = io.BytesIO()
    with pa.ipc.new_stream(body, schema) as writer:
        for row in rows:
            writer.write_table(row)
    return body.getvalue()


def late(pod, path, body, meanwhile):
    """Sends all of a body but its end, does something else, and sends the rest."""
    address = pod.url.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=MINUTE)
    connection.putrequest("POST", f"/v1/table/t/{path}")
    connection.putheader("content-length", str(len(body)))
    connection.endheaders()
    connection.send(body[:-200])
    # What it has asked for is begun: the next request is answered behind it.
    assert ask(pod.url, "/v1/table/t/describe/")[0] == 200
    meanwhile()
    connection.send(body[-200:])
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or "null")


def upserts(*keys):
    rows = [remote.rows([(key, key)]) for key in keys]
    return stream(rows, rows[0].schema)


def test_a_write_that_ends_after_its_spec_is_gone_is_not_taken_for_done(pod):
    db = remote.connect(pod.url)
    table = remote.create(db)
    remote.upsert(table, [(1, 1)])
    status, answer = late(pod, UPSERT, upserts(8, 9), table.unset_lsm_write_spec)
    assert (status, answer["code"]) == (503, 17), answer
    assert remote.held(table) == {1: 1}
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
    assert remote.held(table) == {1: 1}


@pytest.mark.parametrize("again", [False, True])
def test_a_write_that_ends_after_its_table_is_gone_brings_nothing_back(root, pod, again):
    db = remote.connect(pod.url)
    remote.create(db)
    other = pa.schema([client.key_field("id", pa.int64()), pa.field("text", pa.string())])

    def gone():
        db.drop_table("t")
        if again:
            db.create_table("t", pa.table({"id": [5], "text": ["x"]}, schema=other))
            db.open_table("t").set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())

    status, answer = late(pod, UPSERT, upserts(8, 9), gone)
    assert status == (400 if again else 503), answer
    if again:
        assert db.open_table("t").search().to_list() == [{"id": 5, "text": "x"}]
    else:
        assert not (root / "t.lance").exists() and db.table_names() == []


def test_updates_count_every_one_and_undo_nobody(pod):
    table = remote.create(remote.connect(pod.url), pairs=[(1, 0), (2, 0)])
    column = FIELDS.names[1]

    def count():
        own = remote.connect(pod.url).open_table("t")
        for _ in range(5):
            own.update(where="id = 1", values_sql={column: f"{column} + 1"})

    def write():
        own = remote.connect(pod.url).open_table("t")
        for step in range(10):
            remote.upsert(own, [(2, 100 + step)])

    def forget():
        own = remote.connect(pod.url).open_table("t")
        for _ in range(10):
            own.delete(f"{column} < 0")

    threads = [threading.Thread(target=work) for work in (count, count, count, write, forget)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert remote.held(table) == {1: 15, 2: 109}


def test_a_large_write_beside_unset_is_either_refused_or_there_and_the_spec_can_be_set_again(pod):
    db = remote.connect(pod.url)
    many = remote.rows([(key, key) for key in range(100_000)])
    for turn in range(3):
        table = remote.create(db, f"t{turn}", spec=lancedb.LsmWriteSpec.bucket("id", 4))
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        began, done = threading.Event(), []

        def write():
            began.set()
            try:
                done.append(merge.execute(many))
            except Exception as refused:
                done.append(refused)

        writer = threading.Thread(target=write)
        writer.start()
        began.wait()
        table.unset_lsm_write_spec()
        writer.join()
        # The client asks again where it is refused: then it is written to the base.
        assert not isinstance(done[0], Exception), done
        assert table.count_rows() == 100_000
        table.set_lsm_write_spec(lancedb.LsmWriteSpec.bucket("id", 4))


def test_the_key_stays_while_rows_are_told_apart_by_it(pod):
    table = remote.create(remote.connect(pod.url), pairs=[(1, 1)])
    with pytest.raises(Exception, match="names the rows of a table with LSM writes"):
        table.drop_columns(["id"])
    assert remote.held(table) == {1: 1}


def test_wide_rows_are_as_large_as_they_are(pod):
    fields = [client.key_field("id", pa.int64())] + [pa.field(f"c{n}", pa.float64()) for n in range(1_000)]
    schema = pa.schema(fields)
    db = remote.connect(pod.url)
    table = db.create_table("wide", schema=schema)
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({field.name: range(400) for field in fields}, schema=schema))
    assert table.count_rows() == 400


def test_quiet_shards_with_a_vector_index_keep_nobody_from_writing(root):
    root.mkdir()
    vector = pa.list_(pa.float32(), 8)
    schema = pa.schema([client.key_field("id", pa.int64()), pa.field("v", vector)])
    with Pod(root, **IDLE, CARETAKER_POD_MEMORY_BYTES=str(32 << 20)) as pod:
        db = remote.connect(pod.url)
        rows = pa.table({"id": range(300), "v": [[float(n)] * 8 for n in range(300)]}, schema=schema)
        for n in range(2):
            table = db.create_table(f"t{n}", rows)
            table.create_index("l2", vector_column_name="v", index_type="IVF_FLAT", num_partitions=2)
            table.wait_for_index(["v_idx"])
            table.set_lsm_write_spec(lancedb.LsmWriteSpec.bucket("id", 4))
            merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(rows)
            table.flush_lsm()
        until(lambda: pod.value("caretaker_pod_shards") == 8, "the shards are not claimed")
        until(lambda: pod.value("caretaker_pod_memory_bytes") < 8 << 20, "empty memtables count")


def test_a_table_that_is_paused_twice_is_paused_once(pod):
    table = remote.create(remote.connect(pod.url))
    assert ask(pod.url, "/v1/table/t/pause")[0] == 200
    version = table.version
    assert ask(pod.url, "/v1/table/t/pause")[0] == 200
    assert table.version == version


def test_keys_are_read_again_at_sighup_and_a_broken_file_changes_nothing(caretaker, root, tmp_path):
    root.mkdir()
    made = {name: json.loads(caretaker("new-key", name, "--json").stdout) for name in ("old", "new")}
    file = tmp_path / "keys.toml"
    file.write_text(made["old"]["entry"])
    known = lambda name: ask(pod.url, "/v1/table/none/describe/", key=made[name]["key"])[0] != 401
    with Pod(root, **IDLE, CARETAKER_API_KEYS=str(file)) as pod:
        assert known("old") and not known("new")
        file.write_text(made["new"]["entry"])
        pod.process.send_signal(signal.SIGHUP)
        until(lambda: known("new"), "the new key is not known")
        assert not known("old")
        file.write_text("broken")
        pod.process.send_signal(signal.SIGHUP)
        until(lambda: any("the keys stay as they were" in line for line in pod.said), "nobody is told")
        assert known("new")
