"""Statements about jobs over Flight SQL: LanceDB's client, ADBC, and Arrow's own."""

import json
import socket
import subprocess
from contextlib import contextmanager

import adbc_driver_flightsql.dbapi as dbapi
import lancedb
import pyarrow.flight as flight
import pytest
from adbc_driver_flightsql import DatabaseOptions

from conftest import command, environment
from serving import Serving
from test_client import EAGER
from test_compaction import fragments
from test_keys import keys, with_certificate  # noqa: F401
from test_races import numbers

BEARER = DatabaseOptions.AUTHORIZATION_HEADER.value
HEADER = DatabaseOptions.RPC_CALL_HEADER_PREFIX.value


def port(serving):
    """Flight SQL is one above HTTP."""
    return int(serving.url.rpartition(":")[2]) + 1


@contextmanager
def sql(serving, scheme="grpc", **options):
    uri = f"{scheme}://127.0.0.1:{port(serving)}"
    with dbapi.connect(uri, db_kwargs=options, autocommit=True) as connection:
        with connection.cursor() as cursor:
            yield lambda statement: cursor.execute(statement).fetch_arrow_table()


@pytest.fixture
def served(root, tmp_path):
    """A server whose one table was compacted, and its registry."""
    fragments(root, "docs", [numbers(at, at + 9) for at in range(0, 60, 10)])
    state = str(tmp_path / "state")
    with Serving(root, **EAGER, CARETAKER_STATE_DIR=state) as serving:
        serving.until_value("caretaker_jobs_total", 1.0, type="compact", outcome="done")
        yield serving, state


def lines(state, statement):
    """What `caretaker sql` says of it."""
    args = command("sql", statement, "--json")
    settings = environment(CARETAKER_STATE_DIR=state)
    done = subprocess.run(args, env=settings, capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows(table):
    """Rows as `caretaker sql --json` writes them: nothing where there is nothing."""
    read = {name: json.loads for name in ("spec", "result", "failure")}
    return [
        {k: read.get(k, lambda v: v)(v) for k, v in row.items() if v is not None}
        for row in table.to_pylist()
    ]


def test_every_client_sees_what_is_in_the_registry(served):
    serving, state = served
    db = lancedb.connect("db://dev", api_key="none", host_override=serving.url)
    # Cleanups come and go: what was compacted stays as it is.
    compact = next(job["id"] for job in lines(state, "SHOW JOBS") if job["kind"] == "compact")
    events = f"SHOW JOB EVENTS '{compact}'"
    assert [row["state"] for row in lines(state, events)][-1] == "succeeded"
    with sql(serving) as ask:
        for statement in [f"DESCRIBE JOB '{compact}'", events, f"{events} LIMIT 2"]:
            expected = lines(state, statement)
            assert rows(ask(statement)) == expected
            assert rows(db.execute_query(statement).read_all()) == expected
        shown = rows(ask("show jobs for table docs"))
        kept = [row for row in shown if row["id"] == compact]
        assert kept == lines(state, f"DESCRIBE JOB '{compact}'")
        assert {row["id"] for row in shown} <= {row["id"] for row in lines(state, "SHOW JOBS")}
        assert ask("SHOW JOBS LIMIT 1").num_rows == 1
        none = ask("SHOW JOBS FOR TABLE nothing")
        assert none.num_rows == 0 and none.schema == ask(f"DESCRIBE JOB '{compact}'").schema


def test_a_job_is_paused_resumed_and_cancelled(root, tmp_path):
    fragments(root, "docs", [numbers(at, at + 9) for at in range(0, 60, 10)])
    settings = EAGER | {"CARETAKER_WORKER_JOBS": "0", "CARETAKER_STATE_DIR": str(tmp_path / "state")}
    with Serving(root, **settings) as serving, sql(serving) as ask:
        serving.until(lambda _: ask("SHOW JOBS").num_rows > 0, "nothing is planned")
        job = ask("SHOW JOBS").column("id")[0].as_py()
        state = lambda: ask(f"DESCRIBE JOB '{job}'").column("state")[0].as_py()
        db = lancedb.connect("db://dev", api_key="none", host_override=serving.url)
        for statement, answer, becomes in [
            ("PAUSE", "paused", "paused"),
            ("RESUME", "resumed", "pending"),
            ("CANCEL", "cancelled", "cancelled"),
            ("CANCEL", "ended", "cancelled"),
        ]:
            said = db.execute_query(f"{statement} JOB '{job}'").read_all().to_pylist()
            assert said == [{"job_id": job, "answer": answer}]
            assert state() == becomes
    changed = [json.loads(line) for line in serving.said if "asked for" in line]
    assert [line["path"].split()[0] for line in changed] == ["PAUSE", "RESUME", "CANCEL", "CANCEL"]


def refusal(ask, statement):
    with pytest.raises(dbapi.Error) as refused:
        ask(statement)
    return str(refused.value)


def test_what_is_not_understood_or_not_there_is_refused_in_words_that_help(served):
    serving, _ = served
    with sql(serving) as ask:
        why = refusal(ask, "SELECT * FROM docs")
        assert "INVALID_ARGUMENT" in why and "SHOW JOBS" in why
        assert "1 to 10000" in refusal(ask, "SHOW JOBS LIMIT 0")
        for statement in ["DESCRIBE JOB 'nobody'", "SHOW JOB EVENTS 'nobody'", "CANCEL JOB 'nobody'"]:
            why = refusal(ask, statement)
            assert "NOT_FOUND" in why and "`nobody`" in why
        assert "INVALID_ARGUMENT" in refusal(ask, "x" * 20_000)
        assert "too large" in refusal(ask, "x" * 100_000)
        assert ask("SHOW JOBS").num_rows > 0
    db = lancedb.connect("db://dev", api_key="none", host_override=serving.url)
    with pytest.raises(Exception, match="statement is not understood"):
        db.execute_query("DROP TABLE docs")


def test_other_calls_of_the_protocol_are_answered_or_refused(served):
    serving, _ = served
    with dbapi.connect(f"grpc://127.0.0.1:{port(serving)}", autocommit=True) as connection:
        assert connection.adbc_get_info()["vendor_name"] == "Caretaker"
        with pytest.raises(dbapi.Error, match="only statements about jobs"):
            connection.adbc_get_table_types()
    client = flight.connect(f"grpc://127.0.0.1:{port(serving)}")
    with pytest.raises(NotImplementedError, match="only statements about jobs"):
        list(client.list_flights())
    # Any command, Statement(SHOW JOBS) in it: a message of two fields, and that in the ticket's second.
    field = lambda number, data: bytes([number << 3 | 2, len(data)]) + data
    url = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    statement = field(1, url) + field(2, field(1, b"SHOW JOBS"))
    descriptor = flight.FlightDescriptor.for_command(statement)
    info = client.get_flight_info(descriptor)
    assert info.schema == client.get_schema(descriptor).schema
    tickets = [info.endpoints[0].ticket, flight.Ticket(statement), flight.Ticket(field(2, statement))]
    tables = [client.do_get(ticket).read_all() for ticket in tickets]
    assert all(table.num_rows > 0 and table.schema == info.schema for table in tables)
    for broken in [b"", b"\xff", field(2, b""), field(2, field(2, b"")), field(1, b"x")]:
        with pytest.raises((flight.FlightError, NotImplementedError, OSError, ValueError)):
            client.do_get(flight.Ticket(broken)).read_all()


def test_a_key_may_do_what_its_scope_says(root, keys):  # noqa: F811
    known, settings = keys
    header = lambda key: {f"{HEADER}x-api-key": key}
    with Serving(root, **settings) as serving:
        for way in [header(known["read"]), {BEARER: f"Bearer {known['read']}"}]:
            with sql(serving, **way) as ask:
                assert "id" in ask("SHOW JOBS").column_names
                why = refusal(ask, "CANCEL JOB 'none'")
                assert "may look" in why and "UNAUTHORIZED" in why.upper(), why
        with sql(serving, **header(known["admin"])) as ask:
            assert "NOT_FOUND" in refusal(ask, "CANCEL JOB 'none'")
        for way in [{}, header("ck_guess"), {BEARER: "Basic eDp5"}]:
            with sql(serving, **way) as ask:
                assert "UNAUTHENTICATED" in refusal(ask, "SHOW JOBS").upper()
        db = lancedb.connect("db://dev", api_key=known["read"], host_override=serving.url)
        with pytest.raises(Exception, match="may look"):
            db.execute_query("CANCEL JOB 'none'").read_all()
    changed = [json.loads(line) for line in serving.said if "asked for" in line]
    seen = [(line["key"], line["method"], line["path"], line["status"]) for line in changed]
    tried = [("read", 403), ("read", 403), ("admin", 404), ("read", 403)]
    assert seen == [(key, "SQL", "CANCEL JOB 'none'", status) for key, status in tried]
    assert not any(key in line for key in known.values() for line in serving.said)


def test_with_a_certificate_it_is_encrypted(root, keys, tmp_path):  # noqa: F811
    known, settings = keys
    certificate, encrypted = with_certificate(tmp_path)
    with Serving(root, **settings | encrypted) as serving:
        way = {f"{HEADER}x-api-key": known["read"]}
        trusting = {DatabaseOptions.TLS_ROOT_CERTS.value: certificate.read_text()}
        with sql(serving, "grpc+tls", **way, **trusting) as ask:
            assert "id" in ask("SHOW JOBS").column_names
        for scheme in ["grpc+tls", "grpc"]:
            with pytest.raises(dbapi.Error), sql(serving, scheme, **way) as ask:
                ask("SHOW JOBS")


def test_a_port_above_that_is_taken_is_named(root):
    fragments(root, "docs", [numbers(0, 9)])
    while True:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            above = taken.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", above - 1)).close()
            except OSError:
                continue
            args = command("serve", root, "--listen", f"127.0.0.1:{above - 1}")
            done = subprocess.run(args, env=environment(), capture_output=True, text=True, timeout=60)
            assert done.returncode == 2
            assert f"127.0.0.1:{above}" in done.stderr and "Flight SQL" in done.stderr
            return
