"""LanceDB's remote client against a server, call by call: each face of it, on tables of each kind."""

import client  # first: it quiets the libraries

import random
import re
from datetime import timedelta

import lancedb
import pyarrow as pa
import pytest
from lancedb.index import BTree, Bitmap, Fm, FTS, HnswFlat, HnswSq, IvfFlat, IvfPq, IvfRq, IvfSq, LabelList

import remote
import wire
from remote import Pod
from waiting import until
from wire import PLAIN, SPECS, WAIT, query, rows, upsert, values


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    root = tmp_path_factory.mktemp("wire") / "db"
    root.mkdir()
    with Pod(root, **wire.IDLE) as pod:
        yield pod


@pytest.fixture(params=wire.FACES)
def face(request):
    return request.param


@pytest.fixture
def db(pod, face):
    return wire.connect(pod.url, face)


def refused(call, *words, kind=Exception):
    """The call is refused with an error that says these words."""
    with pytest.raises(kind) as error:
        pytest.fail(f"it was done: {call()}")
    said = f"{error.value} {error.value.__cause__}"
    assert all(word in said for word in words), said


def test_a_table_is_made_once_and_of_what_it_is_told(db):
    table = db.create_table("made", rows(range(10)))
    assert table.count_rows() == 10
    refused(lambda: db.create_table("made", rows([])), "already exists", kind=ValueError)
    assert db.create_table("made", rows(range(3)), exist_ok=True).count_rows() == 10
    assert db.create_table("made", schema=wire.SCHEMA, exist_ok=True).count_rows() == 10
    other = pa.schema([("x", pa.int8())])
    refused(lambda: db.create_table("made", schema=other, exist_ok=True), kind=ValueError)
    assert db.create_table("made", rows(range(4)), mode="overwrite").count_rows() == 4
    empty = db.create_table("made", schema=other, mode="overwrite")
    assert (empty.count_rows(), db.open_table("made").count_rows()) == (0, 0)
    refused(lambda: db.create_table("a/b", schema=other))
    db.drop_table("made")
    refused(lambda: db.open_table("made"), "'made' was not found", kind=ValueError)
    refused(lambda: table.count_rows(), "'made' was not found", kind=ValueError)
    refused(lambda: db.drop_table("made"))


def test_names_of_tables_come_in_pages(db):
    made = [f"page{number:02}" for number in range(13)]
    for name in made:
        db.create_table(name, schema=wire.SCHEMA, exist_ok=True)
    found, after = [], "page"
    token = "start_after" if isinstance(db, wire.Waited) else "page_token"
    while page := list(db.table_names(limit=4, **{token: after})):
        assert len(page) <= 4
        found += page
        after = page[-1]
    assert [name for name in found if name.startswith("page")] == made
    for name in made:
        db.drop_table(name)
    assert not [name for name in db.table_names(limit=1000) if name.startswith("page")]


@pytest.mark.parametrize("face, kind", wire.PAIRS)
def test_every_write_is_read_by_the_next_request(db, kind):
    table = wire.create(db, kind, rows(range(20), n=0))
    chance, expected, lsm = random.Random(kind), dict.fromkeys(range(20), 0), kind != PLAIN
    for turn in range(1, 13):
        ids = chance.sample(range(40), 6)
        what = chance.choice(["upsert", "upsert", "add", "delete", "update", "flush"])
        if what == "upsert":
            assert upsert(table, rows(ids, n=turn), True if lsm and turn % 2 else None).num_rows == 6
            expected |= dict.fromkeys(ids, turn)
        elif what == "add":
            table.add(rows([100 + turn], n=turn))
            expected[100 + turn] = turn
        elif what == "delete":
            gone = [id for id in ids if expected.pop(id, None) is not None]
            assert table.delete(f"id in {tuple(ids)}").num_deleted_rows == len(gone)
        elif what == "update":
            changed = [id for id in ids if id in expected]
            done = table.update({"n": str(turn)}, where=f"id in {tuple(ids)}") if isinstance(table, wire.Waited) else (
                table.update(where=f"id in {tuple(ids)}", values={"n": turn})
            )
            assert done.rows_updated == len(changed)
            expected |= dict.fromkeys(changed, turn)
        elif lsm:
            table.flush_lsm()
        assert values(table) == expected, (turn, what)
        assert values(table, where="n % 2 = 1") == {id: n for id, n in expected.items() if n % 2}
        assert table.count_rows() == len(expected)
        assert table.count_rows(f"n = {turn}") == sum(n == turn for n in expected.values())
    if not lsm:
        assert values(table, lsm=False) == expected
        refused(lambda: values(table, lsm=True), "400", "no write spec")
        refused(lambda: upsert(table, rows([1]), True), "400", "no write spec")
        return
    assert values(table, lsm=True) == expected
    assert values(table, lsm=False) == dict.fromkeys(range(20), 0)
    table.checkpoint_lsm()
    assert values(table, lsm=False) == values(table) == expected
    # Past the shards: what they hold no newer row of is read at once.
    upsert(table, rows([1000], n=7), lsm=False)
    assert values(table, lsm=False) == values(table) == expected | {1000: 7}


MERGES = {
    "update": lambda merge: merge.when_matched_update_all(),
    "update if": lambda merge: merge.when_matched_update_all(where="target.n < source.n"),
    "insert": lambda merge: merge.when_not_matched_insert_all(),
    "upsert": lambda merge: merge.when_matched_update_all().when_not_matched_insert_all(),
    "upsert without index": lambda merge: merge.when_matched_update_all().when_not_matched_insert_all().use_index(False),
    "replace": lambda merge: merge.when_matched_update_all()
    .when_not_matched_insert_all()
    .when_not_matched_by_source_delete(),
    "replace some": lambda merge: merge.when_not_matched_insert_all().when_not_matched_by_source_delete("n > 10"),
    "delete": lambda merge: merge.when_not_matched_by_source_delete("id < 5"),
}


@pytest.mark.parametrize("merge", MERGES)
def test_a_merge_does_what_it_does_on_a_table_that_is_opened_without_a_server(db, tmp_path, merge):
    served, local = (place.create_table(next(wire.names), rows(range(20))) for place in (db, lancedb.connect(tmp_path)))
    came = rows(range(10, 30), seed=1)
    done, expected = (MERGES[merge](table.merge_insert("id")).execute(came) for table in (served, local))
    counts = ["num_inserted_rows", "num_updated_rows", "num_deleted_rows"]
    assert [getattr(done, name) for name in counts] == [getattr(expected, name) for name in counts]
    assert values(served) == values(local)


@pytest.mark.parametrize("face, kind", wire.PAIRS[1:])
def test_what_lsm_writes_can_not_do_is_refused_and_nothing_is_written(db, kind):
    table = wire.create(db, kind, rows(range(5), n=0))
    refused(lambda: table.set_lsm_write_spec(SPECS[kind]()), "400", "already")
    merge = lambda on="id": table.merge_insert(on)
    came = rows(range(10), n=1)
    for odd in [
        lambda: merge("n").when_matched_update_all().when_not_matched_insert_all().execute(came),
        lambda: merge().when_matched_update_all().execute(came),
        lambda: merge().when_not_matched_insert_all().execute(came),
        lambda: merge().when_matched_update_all(where="target.n < 1").when_not_matched_insert_all().execute(came),
        lambda: MERGES["replace"](merge()).execute(came),
        # Whole rows are replaced: a part of one would take the rest of it away.
        lambda: upsert(table, came.select(["id", "kind", "n"])),
        lambda: table.add(came, mode="overwrite"),
        lambda: db.create_table(table.name, came, mode="overwrite"),
        lambda: table.restore(1),
    ]:
        refused(odd, "LSM writes")
    table.checkout_latest()
    assert values(table) == dict.fromkeys(range(5), 0)
    keyless = came.slice(0, 2).set_column(0, pa.field("id", pa.int64()), pa.array([1, None]))
    refused(lambda: upsert(table, keyless), "400")
    # In any order of columns; of one key the last row counts.
    several = pa.concat_tables([rows([1, 7], n=1), rows([1], n=2), rows([7], n=3)])
    upsert(table, several.select(several.column_names[::-1]))
    assert values(table) == dict.fromkeys(range(5), 0) | {1: 2, 7: 3}
    found = query(table)
    found = found.with_row_id() if isinstance(found, wire.Waited) else found.with_row_id(True)
    refused(lambda: found.limit(1).to_list(), "400", "does not support with_row_id")


def test_errors_are_those_that_the_client_knows(db):
    table = wire.create(db, PLAIN, rows(range(10)))
    none = lancedb.LsmWriteSpec.unsharded()
    for call, words in [
        (lambda: query(table).where("nothing = 1").to_list(), ["400", "nothing"]),
        (lambda: query(table).where("((").to_list(), ["400"]),
        (lambda: query(table).select(["nothing"]).to_list(), ["400", "nothing"]),
        (lambda: query(table).select({"x": "nothing + 1"}).to_list(), ["400", "nothing"]),
        (lambda: query(table, [1.0, 2.0]).to_list(), ["400", "2 numbers"]),
        (lambda: query(table, [1.0, 2.0]).column("vector").to_list(), ["400"]) if isinstance(db, wire.Waited) else
        (lambda: table.search([1.0], vector_column_name="vector").to_list(), ["400"]),
        (lambda: table.count_rows("nothing = 1"), ["400", "nothing"]),
        (lambda: table.delete("nothing = 1"), ["400", "nothing"]),
        (lambda: table.delete("(("), ["400"]),
        (lambda: table.add(pa.table({"nothing": [1]})), ["nothing"]),
        (lambda: table.add(pa.table({"id": ["one"]})), []),
        (lambda: upsert(table, pa.table({"id": [1], "nothing": [1]})), ["nothing"]),
        (lambda: table.merge_insert("nothing").when_not_matched_insert_all().execute(rows([1])), ["400", "nothing"]),
        (lambda: table.add_columns({"x": "nothing + 1"}), ["400", "nothing"]),
        (lambda: table.alter_columns({"path": "nothing", "rename": "x"}), ["400", "nothing"]),
        (lambda: table.drop_columns(["nothing"]), ["400", "nothing"]),
        (lambda: table.drop_index("nothing"), ["'nothing' was not found"]),
        (lambda: table.prewarm_index("nothing"), ["'nothing' was not found"]),
        (lambda: table.prewarm_data(["id"]), ["406", "no route"]),
        (lambda: table.checkout(99), ["99", "was not found"]),
        (lambda: table.checkout("nothing"), ["nothing"]),
        (lambda: db.rename_table(table.name, "other"), ["406"]),
        (lambda: db.open_job("nothing"), ["'nothing' was not found"]),
        (lambda: table.flush_lsm(), ["400", "no write spec"]),
        (lambda: table.compact_lsm(), ["400", "no write spec"]),
        (lambda: table.checkpoint_lsm(), ["400", "no write spec"]),
        (lambda: table.unset_lsm_write_spec(), ["400", "no write spec"]),
        (lambda: wire.create(db, PLAIN, pa.table({"x": [1]})).set_lsm_write_spec(none), ["400", "primary key"]),
    ]:
        refused(call, *words)
    assert values(table) == values(table, lsm=False)
    assert table.get_lsm_write_spec() is None and table.get_lsm_stats() is None


VECTORS = {
    "IvfFlat": IvfFlat(num_partitions=2),
    "IvfSq": IvfSq(num_partitions=2),
    "IvfPq": IvfPq(num_partitions=2, num_sub_vectors=4),
    "IvfRq": IvfRq(num_partitions=2),
    "IvfHnswSq": HnswSq(num_partitions=1),
    "IvfHnswFlat": HnswFlat(num_partitions=1),
}
VALUES = [
    ("id", "BTree", BTree()),
    ("n", "Bitmap", Bitmap()),
    ("tags", "LabelList", LabelList()),
    ("text", "FTS", FTS(with_position=True)),
    ("text", "Fm", Fm()),
]


@pytest.mark.parametrize("face, kind", wire.PAIRS[:2])
def test_every_kind_of_index_is_built_told_of_and_dropped(db, kind):
    table = wire.create(db, kind, rows(range(300)))
    if kind != PLAIN:
        upsert(table, rows(range(290, 310), seed=1))
    wanted = [("vector", name, config) for name, config in VECTORS.items()] + VALUES
    for column, name, config in wanted:
        table.create_index(column, config=config, name=f"{name}_of", wait_timeout=WAIT)
        [told] = [index for index in table.list_indices() if index.name == f"{name}_of"]
        assert (told.index_type.lower(), told.columns) == (name.lower(), [column])
        stats = table.index_stats(f"{name}_of")
        assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (300, 0)
        assert stats.distance_type == ("l2" if column == "vector" else None)
        table.prewarm_index(f"{name}_of")
        table.wait_for_index([f"{name}_of"])
        if column == "vector":
            # What a quantizer loses is looked up again.
            nearest = query(table, rows([7])["vector"][0].as_py()).nprobes(2).refine_factor(50).limit(4)
            assert nearest.select(["id"]).to_list()[0]["id"] == 7
        table.drop_index(f"{name}_of")
    assert table.list_indices() == [] and table.index_stats("BTree_of") is None
    job = table.create_index_async("id", config=BTree())
    job.wait()
    assert job.status() == "finished" and [index.name for index in table.list_indices()] == ["id_idx"]
    kinds = {job.job_type for job in db.list_jobs() if job.table == table.name}
    assert {"create_btree", "create_ivf_pq", "create_fts"} <= kinds


def test_an_index_that_a_column_can_not_have_is_refused_at_once(db):
    table = wire.create(db, PLAIN, rows(range(10)))
    for column, config in [
        ("vector", BTree()),
        ("tags", BTree()),
        ("vector", Bitmap()),
        ("id", LabelList()),
        ("id", FTS()),
        ("n", Fm()),
        ("text", IvfPq()),
        ("id", IvfFlat()),
        ("vector", IvfPq(num_sub_vectors=3)),
        ("nothing", BTree()),
    ]:
        refused(lambda: table.create_index(column, config=config))
    assert table.list_indices() == []
    assert not [job for job in db.list_jobs() if job.table == table.name and job.job_type.startswith("create")]


def test_versions_are_listed_tagged_read_and_restored(db):
    table = wire.create(db, PLAIN, rows(range(5), n=0))
    upsert(table, rows([5], n=1))
    upsert(table, rows([1], n=2))
    newest = table.version() if isinstance(table, wire.Waited) else table.version
    assert [version["version"] for version in table.list_versions()] == [1, 2, 3] and newest == 3
    table.tags.create("first", 1)
    refused(lambda: table.tags.create("first", 2), "400", "already exists")
    for odd in [
        lambda: table.tags.create("odd", 99),
        lambda: table.tags.get_version("nothing"),
        lambda: table.tags.update("nothing", 1),
        lambda: table.tags.delete("nothing"),
    ]:
        refused(odd, "400")
    table.tags.create("other", 1)
    table.tags.update("other", 2)
    assert {name: tag["version"] for name, tag in table.tags.list().items()} == {"first": 1, "other": 2}
    assert table.tags.get_version("other") == 2
    table.checkout("other")
    assert values(table) == dict.fromkeys(range(5), 0) | {5: 1} and table.count_rows("n = 2") == 0
    refused(lambda: table.add(rows([9])))
    table.checkout("first")
    assert table.count_rows() == 5
    table.restore()
    assert values(table) == dict.fromkeys(range(5), 0)
    table.restore(3)
    assert table.count_rows() == 6
    table.tags.delete("first")
    assert list(table.tags.list()) == ["other"]


def test_columns_are_added_altered_and_dropped(db):
    table = wire.create(db, PLAIN, rows(range(5)))
    table.add_columns({"double": "cast(kind + 1 as bigint)"})
    if wire.NEW:
        table.add_columns(pa.schema([pa.field("empty", pa.float32())]))
    else:
        table.add_columns({"empty": "cast(null as float)"})
    assert values(table, columns=("id", "double", "empty")) == {id: (id % 3 + 1, None) for id in range(5)}
    table.alter_columns({"path": "double", "rename": "next"})
    table.alter_columns({"path": "next", "data_type": pa.int32()})
    schema = table.schema() if isinstance(table, wire.Waited) else table.schema
    assert schema.field("next").type == pa.int32()
    table.drop_columns(["empty"])
    assert values(table, columns=("id", "next")) == {id: id % 3 + 1 for id in range(5)}
    table.add(rows([9]))
    assert values(table, columns=("id", "next"))[9] is None


def test_a_table_tells_of_itself_and_how_it_is_searched(db):
    table = wire.create(db, PLAIN, rows(range(50)))
    stats = table.stats()
    stats = stats if isinstance(stats, dict) else {name: getattr(stats, name) for name in ("num_rows", "num_indices")}
    assert (stats["num_rows"], stats["num_indices"]) == (50, 0)
    assert table.head(3).num_rows == 3
    for kind in [PLAIN, "bucket"]:
        table = wire.create(db, kind, rows(range(50)))
        upsert(table, rows(range(45, 55), seed=1))
        for found in [query(table).where("n > 3"), query(table, [0.5] * wire.DIMENSION)]:
            assert "Lance" in found.limit(3).explain_plan(True)
            assert "elapsed" in found.limit(3).analyze_plan()


def test_optimize_is_left_to_the_server(db):
    table = wire.create(db, PLAIN, rows(range(5)))
    if isinstance(table, wire.Waited):
        refused(table.optimize, kind=NotImplementedError)
    else:
        with pytest.warns(UserWarning, match="optimize"):
            table.optimize()


@pytest.mark.parametrize("face, kind", wire.PAIRS[1:])
def test_a_checkpoint_is_what_flush_and_compact_come_to(db, kind):
    table = wire.create(db, kind, rows(range(10), n=0))
    spec = table.get_lsm_write_spec()
    assert spec.spec_type == kind and spec.maintained_indexes == []
    upsert(table, rows(range(5, 30), n=1))
    stats = lambda: table.get_lsm_stats(include_generation_rows=True)["buckets"]
    assert len(stats()) == {"unsharded": 1, "bucket": 3, "identity": 3}[kind]
    assert sum(memtable["rows"] for shard in stats() for memtable in shard["memtables"]) == 25
    table.flush_lsm()
    assert sum(one["rows"] for shard in stats() for one in shard["generations"]) == 25
    table.compact_lsm()
    until(lambda: not any(shard["generations"] for shard in stats()), "what was flushed is not folded")
    upsert(table, rows([100], n=2))
    table.checkpoint_lsm()
    assert not any(shard["generations"] for shard in stats())
    assert table.count_rows() == 31 and values(table, lsm=False)[100] == 2
    upsert(table, rows([101], n=3))
    table.unset_lsm_write_spec()
    assert table.get_lsm_write_spec() is None
    assert values(table)[101] == 3 and table.count_rows() == 32
    db.drop_table(table.name)


def test_jobs_are_listed_told_of_and_cancelled(db):
    table = wire.create(db, "unsharded", rows(range(10)))
    upsert(table, rows(range(5)))
    table.checkpoint_lsm()
    done = [job for job in db.list_jobs() if job.table == table.name]
    assert "memwal_compaction" in {job.job_type for job in done}, done
    job = db.open_job(done[-1].job_id)
    job.refresh()
    assert job.status() in {"finished", "running"}
    job.wait()
    assert db.cancel_job(done[-1].job_id) is True and db.cancel_job("nothing") is False
    assert job.status() == "finished"
