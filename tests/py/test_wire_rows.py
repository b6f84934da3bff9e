"""Rows of every type, packing and size that a client sends come back as they were, or are refused as a whole."""

import client  # first: it quiets the libraries

import datetime
import decimal
import http.client
import io
import urllib.parse

import lancedb
import pyarrow as pa
import pytest

import remote
import wire
from remote import Pod, ask
from wire import PLAIN, query, rows, upsert, values

UTC = datetime.timezone.utc
NOON = datetime.datetime(2026, 11, 30, 12, 0, 0, 123456)
# A type, and values of it; of each there is also a null.
TYPES = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, 127]),
    "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float16": (pa.float16(), [0.5, -2.0]),
    "float": (pa.float32(), [0.5, float("inf")]),
    "double": (pa.float64(), [1e300, -0.1]),
    "text": (pa.string(), ["", "ünï ☃"]),
    "large text": (pa.large_string(), ["", "x" * 10_000]),
    "bytes": (pa.binary(), [b"", b"\x00\xff"]),
    "large bytes": (pa.large_binary(), [b"a", b""]),
    "fixed bytes": (pa.binary(3), [b"abc", b"\x00\x01\x02"]),
    "date": (pa.date32(), [datetime.date(1969, 1, 1), datetime.date(2026, 11, 30)]),
    "time": (pa.time64("us"), [datetime.time(1, 2, 3, 4), datetime.time(0)]),
    "moment": (pa.timestamp("us"), [NOON, datetime.datetime(1969, 1, 1)]),
    "moment of a zone": (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=UTC), NOON.replace(year=1900, tzinfo=UTC)]),
    "duration": (pa.duration("us"), [datetime.timedelta(days=-1), datetime.timedelta(microseconds=1)]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal("12345678.90"), decimal.Decimal("-0.01")]),
    "list": (pa.list_(pa.int32()), [[], [1, None, 3]]),
    "large list": (pa.large_list(pa.string()), [["a", "b"], []]),
    "list of lists": (pa.list_(pa.list_(pa.float64())), [[[1.0], []], [[]]]),
    "pair": (pa.list_(pa.float32(), 2), [[1.0, 2.0], [0.0, -1.0]]),
    "half pair": (pa.list_(pa.float16(), 2), [[1.0, 2.0], [0.0, -1.0]]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
        [{"a": 1, "b": {"c": "x"}}, {"a": None, "b": {"c": None}}],
    ),
    "list of structs": (pa.list_(pa.struct([("a", pa.int8())])), [[{"a": 1}, {"a": None}], []]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["red", "blue"]),
}


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows") / "db"
    root.mkdir()
    with Pod(root, **wire.IDLE) as pod:
        yield pod


@pytest.fixture
def db(pod):
    return wire.connect(pod.url, "sync")


def typed(ids):
    """A column of each type."""
    fields, columns = [client.key_field("id", pa.int64())], [pa.array(ids, pa.int64())]
    for kind, (of, there) in TYPES.items():
        cycle = [*there, None]
        plain = of.value_type if pa.types.is_dictionary(of) else of
        fields.append(pa.field(kind, of))
        columns.append(pa.array([cycle[id % 3] for id in ids], plain).cast(of))
    return pa.table(columns, schema=pa.schema(fields))


def check_types(found, expected):
    assert found.num_rows == expected.num_rows
    for name in expected.column_names:
        assert found.schema.field(name).type == expected.schema.field(name).type, name
        columns = [dict(zip(data["id"].to_pylist(), data[name].to_pylist())) for data in (found, expected)]
        assert columns[0] == columns[1], name


@pytest.mark.parametrize("face, kind", wire.PAIRS[:2])
def test_values_of_every_type_come_back_from_wherever_they_are(pod, face, kind):
    db = wire.connect(pod.url, face)
    table = db.create_table(next(wire.names), typed(range(6)))
    if kind != PLAIN:
        table.set_lsm_write_spec(wire.SPECS[kind]())
    upsert(table, typed(range(4, 10)))
    if kind != PLAIN:
        table.flush_lsm()
    table.add(typed(range(10, 14)))
    # Its dictionary has other words in another order.
    table.add(typed([16, 15]))
    table.add(typed([]))
    expected = typed([*range(14), 15, 16])
    check_types(query(table).limit(100).to_arrow(), expected)
    check_types(query(table).where("id < 12").limit(100).to_arrow(), typed(range(12)))
    for name in TYPES:
        assert query(table).select(["id"]).where(f"`{name}` is null").limit(100).to_arrow().num_rows == 4, name
    if kind != PLAIN:
        table.checkpoint_lsm()
        check_types(query(table).limit(100).to_arrow(), expected)


def packed(data, compression=None, batch=None):
    """An Arrow stream, in batches of so many rows."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, data.schema, options=options) as writer:
        writer.write_table(data, max_chunksize=batch)
    return sink.getvalue()


def send(pod, path, body, **params):
    return ask(pod.url, f"{path}?{urllib.parse.urlencode(params)}", body)


UPSERT = {"on": "id", "when_matched_update_all": "true", "when_not_matched_insert_all": "true"}


@pytest.mark.parametrize("kind", [PLAIN, "bucket"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_bodies_are_packed_by_any_codec_and_cut_in_any_number_of_batches(pod, db, kind, compression):
    table = wire.create(db, kind, rows(range(10), n=0))
    for turn, batch in enumerate([None, 1, 7], start=1):
        data = rows(range(turn * 5, turn * 5 + 40), n=turn)
        # Batches without a row lie between the others.
        empty = data.slice(0, 0).to_batches() or [pa.RecordBatch.from_pylist([], schema=data.schema)]
        body = packed(pa.Table.from_batches([*empty, *data.to_batches(max_chunksize=batch)]), compression, batch)
        status, said = send(pod, f"/v1/table/{table.name}/merge_insert/", body, **UPSERT)
        assert (status, said["num_rows"]) == (200, 40)
        assert values(table, where=f"n = {turn}") == dict.fromkeys(range(turn * 5, turn * 5 + 40), turn)


@pytest.mark.parametrize("kind", [PLAIN, "bucket"])
def test_a_body_that_ends_early_writes_nothing(pod, db, kind):
    table = wire.create(db, kind, rows(range(3), n=0))
    whole = packed(rows(range(100), n=1), batch=10)
    cuts = [100, len(whole) // 3, len(whole) // 2, len(whole) - 100]
    for path, params in [("insert", {}), ("merge_insert", UPSERT)]:
        for cut in cuts:
            status, said = send(pod, f"/v1/table/{table.name}/{path}/", whole[:cut], **params)
            assert (status, said["code"]) == (400, 13)
        # Also where the connection ends before the body does.
        connection = http.client.HTTPConnection("127.0.0.1", pod.port, timeout=remote.MINUTE)
        address = f"/v1/table/{table.name}/{path}/?{urllib.parse.urlencode(params)}"
        connection.putrequest("POST", address)
        connection.putheader("content-length", str(len(whole)))
        connection.putheader("x-api-key", "dev")
        connection.endheaders(whole[: len(whole) // 2])
        connection.close()
    for body in [b"", b"{}", b"\x00" * 100, packed(rows([]))[:-8] + b"\xff" * 20]:
        assert send(pod, f"/v1/table/{table.name}/insert/", body)[0] == 400
    assert values(table) == dict.fromkeys(range(3), 0)
    new = next(wire.names)
    assert send(pod, f"/v1/table/{new}/create/", whole[: len(whole) // 2])[0] == 400
    with pytest.raises(ValueError, match="not found"):
        db.open_table(new)


def test_a_body_over_the_limit_is_refused_and_writes_nothing(pod, db):
    fields = [client.key_field("id", pa.int64()), pa.field("data", pa.large_binary())]
    schema = pa.schema(fields)
    table = db.create_table(next(wire.names), schema=schema)
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
    # Zeros, which take no room on the wire.
    large = pa.table([pa.array([1, 2]), pa.array([bytes(70 << 20)] * 2, pa.large_binary())], schema=schema)
    body = packed(pa.concat_tables([large] * 2), "zstd", batch=1)
    status, said = send(pod, f"/v1/table/{table.name}/merge_insert/", body, **UPSERT)
    assert (status, said["code"]) == (413, 13)
    status, said = ask(pod.url, f"/v1/table/{table.name}/count_rows/", {"predicate": "x" * (17 << 20)})
    assert (status, said["code"]) == (413, 13)
    assert table.count_rows() == 0


@pytest.mark.parametrize("kind", [PLAIN, "bucket"])
def test_values_are_fitted_to_the_table_only_where_nothing_is_lost(pod, db, kind):
    table = wire.create(db, kind, rows(range(3), n=0))
    data = rows([1, 5], n=1)
    wide = data.schema.set(2, pa.field("n", pa.int8())).set(3, pa.field("text", pa.large_string()))
    path = f"/v1/table/{table.name}/merge_insert/"
    assert send(pod, path, packed(data.cast(wide)), **UPSERT)[0] == 200
    colours = data.set_column(3, "text", pa.array(["red", "blue"]).dictionary_encode())
    assert send(pod, path, packed(colours), **UPSERT)[0] == 200
    expected = {0: (0, rows([0], n=0)["text"][0].as_py()), 1: (1, "red"), 2: (0, rows([2], n=0)["text"][0].as_py()), 5: (1, "blue")}
    assert values(table, columns=("id", "n", "text")) == expected
    for odd in [
        data.set_column(1, "kind", pa.array([1, 2**40])),
        data.set_column(2, "n", pa.array(["one", "two"])),
        data.set_column(5, "vector", pa.array([[1.0], [2.0]], pa.list_(pa.float32(), 1))),
        data.append_column("other", pa.array([1, 2])),
        data.append_column("n", pa.array([1, 2])),
    ]:
        for where, params in [("merge_insert", UPSERT), ("insert", {})]:
            status, said = send(pod, f"/v1/table/{table.name}/{where}/", packed(odd), **params)
            assert (status, said["code"]) == (400, 13), (odd.schema, said)
    assert values(table, columns=("id", "n", "text")) == expected
    status, said = send(pod, path, packed(data), **UPSERT | {"when_matched_update_all": "maybe"})
    assert status == 400 and "maybe" in said["error"]
    assert send(pod, f"/v1/table/{table.name}/insert/", packed(data), mode="odd")[0] == 400
    assert send(pod, f"/v1/table/{next(wire.names)}/create/", packed(data), mode="odd")[0] == 400
