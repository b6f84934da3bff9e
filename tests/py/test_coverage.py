"""What `serve` says of real tables that fail, hang, come, go and have odd names."""

import os
import shutil

import lance

import client
from conftest import table_path
from serving import Serving
from stage import held_at
from test_races import numbers

NEVER = "lance_agent_coverage_never_evaluated"
OLDEST = "lance_agent_coverage_oldest_success_age_seconds"
TARGET = "lance_agent_coverage_cycle_target"
PENDING = "lance_agent_coverage_cycle_pending"
COMPLETED = "lance_agent_coverage_cycles_completed_total"


def tables(root, *names):
    for name in names:
        lance.write_dataset(numbers(1, 9), str(table_path(root, name)))


def newest(root, name):
    return next((table_path(root, name) / "_versions").glob("*.manifest"))


def test_cov_01_failed_and_timed_out_evaluations_are_no_successes(root):
    tables(root, "ok", "error", "timeout", "never")
    newest(root, "error").write_bytes(b"no manifest")
    shutil.rmtree(table_path(root, "never") / "_versions")
    hangs = newest(root, "timeout")
    whole = hangs.read_bytes()
    hangs.unlink()
    os.mkfifo(hangs)
    settings = {
        "AGENT_EVALUATION_TIMEOUT_SECS": "1",
        "AGENT_BACKOFF_SECS": "1",
        "AGENT_SWEEP_INTERVAL_SECS": "2",
    }
    with Serving(root, **settings) as serving:
        serving.until_value("caretaker_tables_failing", 3)
        serving.until(
            lambda s: s.value("caretaker_table_failures", table="timeout") >= 2, "it is tried again"
        )
        first = serving.metrics()
        assert first[NEVER, frozenset()] == 3
        assert (first[TARGET, frozenset()], first[PENDING, frozenset()]) == (4, 3)
        age = first[OLDEST, frozenset()]
        serving.until(lambda s: s.value(OLDEST) > age, "the age stands still")
        assert serving.value(COMPLETED) == 0
        assert serving.value("caretaker_table_version", table="ok") == 1
        for name in ("error", "timeout", "never"):
            assert serving.value("caretaker_table_version", table=name) is None
        # What waits for the pipe is let go, or the server could not end.
        os.close(os.open(hangs, os.O_WRONLY | os.O_NONBLOCK))
        hangs.unlink()
        hangs.write_bytes(whole)
        serving.until_value(NEVER, 2)


def test_cov_02_what_is_dropped_is_no_longer_counted(root):
    tables(root, "a", "b", "c", "d", "e")
    with Serving(root) as serving:
        serving.until(lambda s: s.value(COMPLETED) >= 1, "a whole cycle")
        db = client.connect(root)
        for name in ("a", "b", "c", "d"):
            db.drop_table(name)
        serving.until_value("caretaker_tables", 1)
        found = serving.metrics()
        assert {dict(labels)["table"] for _, labels in found if "table" in dict(labels)} == {"e"}
        assert found[NEVER, frozenset()] == 0
        own = found["caretaker_table_success_age_seconds", frozenset({("table", "e")})]
        assert (
            abs(found[OLDEST, frozenset()] - own) <= 1
        ), "the age of the one that is left, each rounded for itself"


def test_cov_04_the_target_of_a_cycle_is_frozen(root):
    tables(root, "A", "B", "C", "D")
    with Serving(root, AGENT_BUDGET="1", **held_at("evaluate.before")) as serving:
        # The first evaluation is held, whosever it is, and with it the cycle.
        serving.until(lambda s: "held\n" in s.said, "an evaluation")
        seen = lambda s: [
            s.value(metric) for metric in ("caretaker_tables", TARGET, PENDING, COMPLETED)
        ]
        serving.until(lambda s: seen(s) == [4, 4, 4, 0], "a cycle of four")
        tables(root, "E")
        serving.until(lambda s: seen(s) == [5, 4, 4, 0], "the new table is not in it")
        for left, name in ((3, "B"), (2, "C")):
            shutil.rmtree(table_path(root, name))
            serving.until(
                lambda s: seen(s) == [left + 1, left, left, 0], "a dropped table leaves it"
            )
        serving.process.stdin.close()
        serving.until(lambda s: s.value(COMPLETED) == 1, "the cycle ends")
        serving.until(lambda s: s.value(TARGET) == 3, "the next one has the new table")
        serving.until(lambda s: s.value(NEVER) == 0, "which is evaluated")


ODD = [
    'a"b',
    "ü.ñ",
    'x{y="z"}',
    "back\\slash",
    "back\\nline",
    "a b",
    "x" * 200,
    "%41",
    "#",
    "a,b=c",
    "NaN",
    "'",
]


def test_cov_06_odd_names_have_a_series_each(root):
    tables(root, *ODD)
    shutil.copytree(table_path(root, "a b"), table_path(root, "line\nbreak"))
    with Serving(root) as serving:
        serving.until(lambda s: s.value(COMPLETED) >= 1, "a whole cycle")
        found = serving.metrics()
        rows = {
            dict(labels)["table"]: value
            for (name, labels), value in found.items()
            if name == "caretaker_table_rows"
        }
        assert rows == dict.fromkeys(ODD, 9)
        assert any(
            "line" in said and "left out" in said for said in serving.said
        ), "what has no address is said"
