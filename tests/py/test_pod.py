"""A table that takes LSM writes, over the wire: what is acknowledged is read, and nothing is lost."""

import client  # first: it quiets the libraries

import signal
import subprocess
import threading

import lance
import lancedb
import pyarrow as pa
import pytest
from lancedb.index import FTS

import remote
from conftest import command, environment, table_path
from fleet import lapse, worker
from remote import MINUTE, Pod, ask, held, refused
from stage import held_at
from test_registry import disk, fill
from waiting import until

SPECS = {
    "unsharded": lancedb.LsmWriteSpec.unsharded,
    "bucket": lambda: lancedb.LsmWriteSpec.bucket("id", 3),
    "identity": lambda: lancedb.LsmWriteSpec.identity("id"),
}
# Nothing is folded unless somebody asks.
IDLE = {"WAL_COMPACT_TRIGGER_COUNT": "100", "WAL_MAX_DATA_AGE_SECS": "3600", "RETIRE_DELAY_SECS": "0"}


@pytest.fixture
def pod(root):
    root.mkdir()
    with Pod(root, **IDLE) as pod:
        yield pod


def base(root, name="t"):
    """What the base alone holds, read with no server between."""
    table = lance.dataset(str(table_path(root, name))).to_table(columns=["id", "n"]).to_pydict()
    return dict(zip(table["id"], table["n"]))


def listed(table):
    """SSTables that are not folded."""
    return [one for bucket in table.get_lsm_stats()["buckets"] for one in bucket["generations"]]


@pytest.mark.parametrize("spec", SPECS)
def test_every_write_is_read_at_once_and_stays_read_when_it_is_folded(root, pod, spec):
    table = remote.create(remote.connect(pod.url), pairs=[(key, 0) for key in range(4)], spec=SPECS[spec]())
    expected = {key: 0 for key in range(4)}
    for turn in range(1, 4):
        pairs = [(key, turn) for key in range(turn, turn + 3)]
        remote.upsert(table, pairs)
        expected |= dict(pairs)
        assert held(table) == held(table, True) == expected
        assert held(table, False) == {key: 0 for key in range(4)}
        assert table.count_rows() == len(expected)
        assert table.count_rows(f"n = {turn}") == 3
    table.delete("id = 2")
    expected.pop(2)
    assert held(table) == expected and table.count_rows() == len(expected)
    table.update(where="id = 3", values={"n": 99})
    expected[3] = 99
    assert held(table) == expected
    table.add(remote.rows([(50, 1)]))
    expected[50] = 1
    assert held(table) == expected
    assert base(root) == {key: 0 for key in range(4)}

    table.checkpoint_lsm()
    assert listed(table) == []
    assert base(root) == held(table) == held(table, False) == expected
    remote.upsert(table, [(2, 7)])
    assert held(table) == expected | {2: 7}


def test_an_upsert_of_half_a_row_is_refused_and_takes_nothing_away(pod):
    table = remote.create(remote.connect(pod.url, **remote.ONCE))
    remote.upsert(table, [(1, 1)])
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    assert refused(lambda: merge.execute(remote.rows([(1, 2)]).select(["id", "n"]))) == (400, 13)
    assert table.search().to_list() == [{"id": 1, "n": 1, "v": "1 of 1"}]
    table.add(remote.rows([(2, 2)]).select(["id", "n"]))
    assert table.search().where("id = 2").to_list() == [{"id": 2, "n": 2, "v": None}]


SHARDED = {
    "unsharded": (lancedb.LsmWriteSpec.unsharded, pa.int64()),
    "bucket of numbers": (lambda: lancedb.LsmWriteSpec.bucket("id", 3), pa.int64()),
    "bucket of text": (lambda: lancedb.LsmWriteSpec.bucket("id", 3), pa.string()),
    "identity of numbers": (lambda: lancedb.LsmWriteSpec.identity("id"), pa.int32()),
    "identity of text": (lambda: lancedb.LsmWriteSpec.identity("id"), pa.string()),
    "identity of truth": (lambda: lancedb.LsmWriteSpec.identity("yes"), pa.int64()),
}


@pytest.mark.parametrize("way", SHARDED)
def test_the_shards_are_those_of_the_open_client(root, pod, way):
    spec, kind = SHARDED[way]
    schema = pa.schema([client.key_field("id", kind), pa.field("yes", pa.bool_()), pa.field("n", pa.int64())])
    value = str if kind == pa.string() else int

    def rows(n):
        made = [{"id": value(key), "yes": key % 2 == 0, "n": n} for key in range(6)]
        return pa.Table.from_pylist(made, schema=schema)

    local = client.connect(root).create_table("t", schema=schema)
    local.set_lsm_write_spec(spec())
    client.upsert(local, rows(1), ["id"])
    shards = sorted(path.name for path in (table_path(root, "t") / "_mem_wal").iterdir())
    table = remote.connect(pod.url).open_table("t")
    assert {row["n"] for row in table.search().to_list()} == {1}
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows(2))
    assert sorted(path.name for path in (table_path(root, "t") / "_mem_wal").iterdir()) == shards
    assert [row["n"] for row in table.search().to_list()] == [2] * 6


def test_a_flush_is_done_when_it_answers_and_an_empty_one_leaves_nothing(root, pod):
    table = remote.create(remote.connect(pod.url))
    table.flush_lsm()
    assert listed(table) == []
    remote.upsert(table, [(1, 1)])
    table.flush_lsm()
    table.flush_lsm()
    assert len(listed(table)) == 1
    assert held(table) == {1: 1}


def test_an_acknowledged_row_outlives_a_kill(root):
    root.mkdir()
    with Pod(root, **IDLE) as pod:
        table = remote.create(remote.connect(pod.url), spec=lancedb.LsmWriteSpec.bucket("id", 2))
        acknowledged, stop = {}, threading.Event()

        def write(first):
            for turn in range(1, 1_000):
                if stop.is_set():
                    return
                try:
                    remote.upsert(table, [(first, turn), (first + 1, turn)])
                except Exception:
                    return
                acknowledged[first] = acknowledged[first + 1] = turn

        threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 40, 10)]
        [thread.start() for thread in threads]
        until(lambda: len(acknowledged) == 8 and min(acknowledged.values()) > 3, "nothing is acknowledged")
        pod.kill()
        stop.set()
        [thread.join() for thread in threads]
        pod.start()
        found = held(remote.connect(pod.url).open_table("t"))
        # A request under way when the process died may have been written.
        assert all(turn <= found[key] <= turn + 1 for key, turn in acknowledged.items()), (acknowledged, found)


def test_of_two_pods_the_one_that_was_fenced_says_so_and_the_table_holds_what_both_wrote(root):
    root.mkdir()
    with Pod(root, **IDLE) as one, Pod(root, **IDLE) as two:
        remote.create(remote.connect(one.url))
        first, second = (remote.connect(pod.url, **remote.ONCE).open_table("t") for pod in (one, two))
        remote.upsert(first, [(1, 1), (2, 1)])
        # Where it has noticed by itself, it claims the shard again instead: then the other has to take it once more.
        for turn in range(20):
            remote.upsert(second, [(2, turn + 2), (3, turn)])
            try:
                remote.upsert(first, [(4, turn)])
            except Exception as fenced:
                assert fenced.status_code == 421 and '"code":19' in str(fenced)
                break
        else:
            raise AssertionError("it was never told that it was fenced")
        # It claims the shard again, and reads what the other wrote.
        remote.upsert(first, [(5, 3)])
        found = held(first)
        assert found.pop(4, turn) in (turn, turn - 1)
        assert found == {1: 1, 2: turn + 2, 3: turn, 5: 3}
        # The other notices by itself.
        until(lambda: held(second).keys() >= {5}, "it answers from what it had before it was fenced")


def test_a_pod_that_is_told_to_stop_leaves_everything_in_the_base(root):
    root.mkdir()
    with Pod(root, **IDLE) as pod:
        table = remote.create(remote.connect(pod.url), pairs=[(0, 0)], spec=lancedb.LsmWriteSpec.bucket("id", 2))
        remote.upsert(table, [(key, 1) for key in range(20)])
        table.delete("id = 3")
        assert base(root) == {0: 0}
        assert pod.stop() == 0
        assert base(root) == {key: 1 for key in range(20) if key != 3}
        # The next one can write at once.
        pod.start()
        remote.upsert(remote.connect(pod.url).open_table("t"), [(3, 2)])


def test_a_pod_that_is_drained_refuses_writes_and_answers_reads(root, pod):
    table = remote.create(remote.connect(pod.url, **remote.ONCE))
    remote.upsert(table, [(1, 1)])
    assert ask(pod.url, "/v1/drain") == (202, {"draining": True})
    assert refused(lambda: remote.upsert(table, [(2, 1)])) == (503, 19)
    assert refused(table.flush_lsm) == (503, 19)
    assert held(table) == {1: 1}
    until(lambda: base(root) == {1: 1}, "it is not folded")


def test_writers_are_slowed_down_and_then_refused_until_somebody_folds(root):
    root.mkdir()
    bounds = {"CARETAKER_POD_SLOW_SSTABLES": "2", "CARETAKER_POD_STOP_SSTABLES": "4"}
    with Pod(root, **IDLE, **bounds) as pod:
        db = remote.connect(pod.url, **remote.ONCE)
        table = db.create_table("t", schema=pa.schema(remote.FIELDS))
        small = lancedb.LsmWriteSpec.unsharded().with_writer_config_defaults({"max_memtable_rows": "64"})
        table.set_lsm_write_spec(small)
        written, answer = {}, None
        while answer is None and len(written) < 40 * 64:
            pairs = [(len(written) + key, 1) for key in range(64)]
            try:
                remote.upsert(table, pairs)
                written |= dict(pairs)
            except Exception:
                answer = refused(lambda: remote.upsert(table, pairs))
        assert answer == (429, 21)
        # What was refused was not written.
        assert held(table) == written
        assert pod.value("caretaker_pod_writes_refused_total") >= 1
        assert pod.value("caretaker_pod_writes_delayed_total") >= 1
        # Memtables that are still flushed count too: the bound is met, and not passed.
        until(lambda: pod.value("caretaker_pod_unfolded_sstables") == 4, "there are not as many SSTables as there may be")
        table.checkpoint_lsm()
        until(lambda: pod.value("caretaker_pod_unfolded_sstables") == 0, "the pod does not see that it was folded")
        remote.upsert(table, [(-1, 1)])
        assert held(table) == written | {-1: 1}


def test_memory_stays_within_its_bound(root):
    root.mkdir()
    with Pod(root, **IDLE, CARETAKER_POD_MEMORY_BYTES=str(24 << 20)) as pod:
        db = remote.connect(pod.url)
        schema = pa.schema([client.key_field("id", pa.int64()), pa.field("data", pa.binary())])
        table = db.create_table("t", schema=schema)
        table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        for turn in range(30):
            data = [bytes([turn, key]) * (1 << 18) for key in range(4)]
            ids = [turn * 4 + key for key in range(4)]
            merge.execute(pa.table({"id": ids, "data": data}, schema=schema))
            assert pod.value("caretaker_pod_memory_bytes") < 48 << 20
        assert pod.value("caretaker_pod_reliefs_total") >= 1
        assert table.count_rows() == 120


def test_old_rows_do_not_stay_in_memory(root):
    root.mkdir()
    with Pod(root, **(IDLE | {"WAL_MAX_DATA_AGE_SECS": "2"})) as pod:
        table = remote.create(remote.connect(pod.url))
        remote.upsert(table, [(1, 1)])
        until(lambda: base(root) == {1: 1}, "they are neither flushed nor folded")


def test_a_shard_that_a_pass_is_at_is_refused_and_the_answer_names_the_job(root):
    root.mkdir()
    # Where no pass runs by itself: what is queued stays.
    with Pod(root, **IDLE, CARETAKER_WORKER_JOBS="0") as pod:
        table = remote.create(remote.connect(pod.url))
        remote.upsert(table, [(1, 1)])
        table.flush_lsm()
        status, answer = ask(pod.url, "/v1/compact", {"table": "t"})
        assert status == 202
        [job] = answer["jobs"]
        for _ in range(2):
            status, answer = ask(pod.url, "/v1/compact", {"table": "t"})
            assert (status, answer["code"]) == (429, 21) and job in answer["error"]
        assert ask(pod.url, "/v1/table/t/compact_lsm")[0] == 429
        jobs = ask(pod.url, "/v1/jobs/list", {})[1]["jobs"]
        assert [one["job_id"] for one in jobs] == [job]


def test_a_write_spec_that_comes_back_brings_back_no_old_row(root, pod):
    table = remote.create(remote.connect(pod.url))
    remote.upsert(table, [(1, 1), (2, 1)])
    table.unset_lsm_write_spec()
    assert base(root) == held(table) == {1: 1, 2: 1}
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(remote.rows([(1, 2)]))
    assert base(root) == {1: 2, 2: 1}
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
    assert held(table) == {1: 2, 2: 1}
    remote.upsert(table, [(2, 3)])
    table.checkpoint_lsm()
    assert base(root) == {1: 2, 2: 3}


def test_a_dropped_table_is_gone_and_its_name_is_free(root, pod):
    db = remote.connect(pod.url)
    remote.upsert(remote.create(db), [(1, 1)])
    db.drop_table("t")
    assert not table_path(root, "t").exists() and list(db.list_tables().tables) == []
    table = remote.create(db)
    assert held(table) == {}
    remote.upsert(table, [(2, 2)])
    assert held(table) == {2: 2}


def test_columns_and_indexes_that_come_later_reach_the_writers(root, pod):
    db = remote.connect(pod.url)
    table = remote.create(db, pairs=[(key, 0) for key in range(20)])
    remote.upsert(table, [(1, 1), (30, 1)])
    table.create_index("v", config=FTS(), wait_timeout=client.timedelta(seconds=MINUTE))
    found = table.search("30", query_type="fts", fts_columns="v").select(["id"]).limit(10).to_list()
    assert [row["id"] for row in found] == [30]
    remote.upsert(table, [(31, 2)])
    found = table.search("31", query_type="fts", fts_columns="v").select(["id"]).limit(10).to_list()
    assert [row["id"] for row in found] == [31]
    table.add_columns({"more": "cast(null as bigint)"})
    table = db.open_table("t")
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": [1, 32], "n": [5, 3], "v": ["1 of 5", None], "more": [9, None]}, schema=table.schema))
    assert held(table)[32] == 3 and held(table)[1] == 5
    assert table.search().where("more = 9").select(["id", "n"]).limit(10).to_list() == [{"id": 1, "n": 5}]
    table.checkpoint_lsm()
    assert base(root)[1] == 5


def compacting(table):
    return [bucket["compacting"] for bucket in table.get_lsm_stats()["buckets"]]


def test_a_pass_is_seen_while_it_runs_and_no_longer_when_its_worker_dies(database, root, tmp_path):
    root.mkdir()
    fleet = IDLE | {"CARETAKER_REGISTRY": database.url}
    with Pod(root, **fleet, CARETAKER_WORKER_JOBS="0") as pod:
        table = remote.create(remote.connect(pod.url), spec=lancedb.LsmWriteSpec.bucket("id", 2))
        remote.upsert(table, [(key, 1) for key in range(8)])
        table.flush_lsm()
        with worker(tmp_path, database.url, **IDLE | held_at("fold.written")) as held:
            one, other = [bucket["shard_id"] for bucket in table.get_lsm_stats()["buckets"]]
            assert ask(pod.url, "/v1/compact", {"table": "t", "shard": one})[0] == 202
            held.until_held()
            assert compacting(table) == [True, False]
            # The other can be had: only where none can it is refused.
            table.compact_lsm()
            assert compacting(table) == [True, True]
            assert refused(remote.connect(pod.url, **remote.ONCE).open_table("t").compact_lsm) == (429, 21)
            held.kill()
        lapse(database)
        with worker(tmp_path, database.url, **IDLE):
            table.checkpoint_lsm()
            assert compacting(table) == [False, False]
        assert base(root) == {key: 1 for key in range(8)}


def test_what_is_folded_and_waits_for_an_index_is_reported_beside_what_is_not(root):
    root.mkdir()
    with Pod(root, **IDLE | {"RETIRE_DELAY_SECS": "3600"}) as pod:
        table = remote.create(remote.connect(pod.url))
        remote.upsert(table, [(1, 1)])
        table.checkpoint_lsm()
        remote.upsert(table, [(2, 1)])
        table.flush_lsm()
        stats = ask(pod.url, "/v1/table/t/get_lsm_stats", {"include_generation_rows": True})[1]
        [shard] = stats["lsm_stats"]["buckets"]
        assert [one["generation"] for one in shard["folded"]] == [1]
        assert [(one["generation"], one["rows"]) for one in shard["generations"]] == [(2, 1)]
        assert held(table) == {1: 1, 2: 1}


def test_a_shard_that_is_let_go_of_is_free_at_once(root):
    root.mkdir()
    with Pod(root, **IDLE) as one, Pod(root, **IDLE) as two:
        remote.upsert(remote.create(remote.connect(one.url)), [(1, 1)])
        assert one.stop() == 0
        table = remote.connect(two.url, **remote.ONCE).open_table("t")
        remote.upsert(table, [(2, 1)])
        assert held(table) == {1: 1, 2: 1}
        one.start()


def test_a_memtable_freezes_by_its_size(root, pod):
    table = remote.connect(pod.url).create_table("t", schema=pa.schema(remote.FIELDS))
    small = {"max_memtable_size": str(64 << 10)}
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded().with_writer_config_defaults(small))
    for turn in range(20):
        remote.upsert(table, [(turn * 200 + key, turn) for key in range(200)])
    assert len(listed(table)) >= 1
    assert table.count_rows() == 4_000


def test_a_request_of_more_rows_than_a_memtable_has_room_for_is_written_all_the_same(pod):
    table = remote.connect(pod.url).create_table("t", schema=pa.schema(remote.FIELDS))
    small = {"max_memtable_rows": "100"}
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded().with_writer_config_defaults(small))
    remote.upsert(table, [(key % 900, key) for key in range(1_000)])
    assert held(table) == {key: key + 900 if key < 100 else key for key in range(900)}
    table.flush_lsm()
    assert len(listed(table)) == 10


def test_on_a_full_disk_writes_are_refused_and_what_was_acknowledged_stays():
    with disk("48m") as folder:
        root = folder / "db"
        root.mkdir()
        with Pod(root, **IDLE) as pod:
            table = remote.create(remote.connect(pod.url, **remote.ONCE))
            remote.upsert(table, [(1, 1)])
            ballast = fill(folder)
            status, why = refused(lambda: remote.upsert(table, [(2, 1)]))
            assert status == 503, (status, why)
            ballast.unlink()
            # The log of a writer that could not write is replayed by the next one.
            until(lambda: upserted(table, [(3, 1)]), "it does not write again though there is room")
            found = held(table)
            # Nobody was told what became of it.
            assert found.pop(2, 1) == 1 and found == {1: 1, 3: 1}
            table.checkpoint_lsm()
            assert base(root).items() >= {1: 1, 3: 1}.items()


def upserted(table, pairs):
    """Whether the rows are written."""
    try:
        remote.upsert(table, pairs)
        return True
    except Exception as error:
        assert error.status_code == 503, error
        return False


def test_a_second_copy_at_one_address_says_that_it_is_taken_and_the_first_goes_on(root, pod):
    table = remote.create(remote.connect(pod.url))
    at = f"127.0.0.1:{pod.port}"
    second = subprocess.run(
        command("serve", root, "--listen", at), env=environment(), capture_output=True, text=True, timeout=MINUTE
    )
    assert second.returncode == 2 and at in second.stderr and "--listen" in second.stderr, second
    remote.upsert(table, [(1, 1)])
    assert held(table) == {1: 1}


def test_an_interrupt_drains_as_a_termination_does(root):
    root.mkdir()
    with Pod(root, **IDLE) as pod:
        remote.upsert(remote.create(remote.connect(pod.url)), [(1, 1)])
        pod.process.send_signal(signal.SIGINT)
        assert pod.process.wait(timeout=MINUTE) in (0, 130)
        assert base(root) == {1: 1}
