"""`caretaker simulate` and `caretaker vectors`, and how near a simulation comes to what is done to a real table."""

import client  # first: it quiets the libraries

import json
import os
import xml.etree.ElementTree as xml
from pathlib import Path

import lancedb
import pyarrow as pa
import pytest

import remote
from remote import Pod

CASES = Path(__file__).parents[2] / "planner/tests/data/paimon"
FLUSHES = 23
ROWS = 3_600  # an hour of one row a second
PAYLOAD = 512  # bytes that don't compress
ERROR_MAX = 0.10


@pytest.fixture
def files(tmp_path):
    """A policy and a workload, as files."""
    policy, workload = tmp_path / "policy.toml", tmp_path / "workload.toml"
    policy.write_text("wal_compact_trigger_count = 3\n")
    workload.write_text('rows_per_sec = 50\nrow_bytes = "2KiB"\n')
    return str(policy), str(workload)


def test_it_is_text_json_or_a_picture_and_the_same_for_the_same_seed(caretaker, files, tmp_path):
    text = caretaker("simulate", *files, "--days", 2).stdout
    assert "passes" in text and "count 3 >= 3" in text
    assert caretaker("simulate", *files, "--days", 2).stdout == text
    timeline = json.loads(caretaker("simulate", *files, "--days", 2, "--json").stdout)
    assert timeline["totals"]["rows"] == 50 * 2 * 86_400
    assert timeline["totals"]["passes"] == timeline["totals"]["jobs"]["memwal_compaction"]["done"] > 0
    picture = tmp_path / "seen.svg"
    caretaker("simulate", *files, "--svg", picture)
    assert xml.parse(picture).getroot().tag.endswith("svg")
    assert json.loads(caretaker("simulate", *files, "--json", "--wal-compact-trigger-count", 6).stdout) != timeline


def test_presets_are_listed_printed_and_laid_below_a_file(caretaker, files, tmp_path):
    names = [line.split()[0] for line in caretaker("simulate", "--preset").stdout.splitlines()]
    assert "zipfian-updates" in names
    for name in names:
        printed = tmp_path / f"{name}.toml"
        printed.write_text(caretaker("simulate", "--preset", name, "--print-workload").stdout)
        ways = [(files[0], "--preset", name), (files[0], printed)]
        shown = [json.loads(caretaker("simulate", *way, "--days", 1, "--json").stdout) for way in ways]
        assert shown[0]["totals"] == shown[1]["totals"], name


@pytest.mark.parametrize(
    "workload, said",
    [
        ("rowz_per_sec = 1", "rowz_per_sec"),
        ("rows_per_sec = -1", "rows_per_sec"),
        ("rows_per_sec = 1.5", "rows_per_sec"),
        ("rows_per_sec = [1]", "rows_per_sec"),
        ("rows_per_sec = ", "workload.toml"),
        ('row_bytes = "many"', "row_bytes"),
        ("rows_per_sec = 10000000\nflush_rows = 1", "too many events"),
    ],
)
def test_what_can_not_be_simulated_is_refused_by_name(caretaker, files, workload, said):
    Path(files[1]).write_text(workload)
    done = caretaker("simulate", *files, exit=2)
    assert said in done.stderr and not done.stdout


def test_faults_and_a_table_to_begin_with_come_from_files(caretaker, files, tmp_path):
    faults, facts = tmp_path / "faults.json", tmp_path / "facts.json"
    faults.write_text('[{"fault": "worker_dies", "at_ms": 3600000}, {"fault": "commit_conflict", "at_ms": 7200000}]')
    shown = json.loads(caretaker("simulate", *files, "--faults", faults, "--json").stdout)
    assert [fault["fault"] for fault in shown["faults"]] == ["worker_dies", "commit_conflict"]
    facts.write_text('{"table": "docs", "version": 7, "rows": 12345, "primary_key": ["id"]}')
    assert json.loads(caretaker("simulate", *files, "--facts", facts, "--json").stdout)["facts"]["table"] == "docs"
    faults.write_text('[{"fault": "flood"}]')
    assert "flood" in caretaker("simulate", *files, "--faults", faults, exit=2).stderr
    assert "gone.json" in caretaker("simulate", *files, "--facts", tmp_path / "gone.json", exit=2).stderr


def test_vectors_tells_what_disagrees_and_exits_by_it(caretaker, tmp_path):
    files = [CASES / "upstream.json", CASES / "constructed.json"]
    assert caretaker("vectors", *files).stdout.count(" agree") == 2
    cases = json.loads(files[0].read_text())
    wrong = next(case for case in cases if "output_level" in case["expected"])
    wrong["expected"]["output_level"] += 1
    other = tmp_path / "other.json"
    other.write_text(json.dumps([wrong]))
    assert wrong["id"] in caretaker("vectors", other, exit=1).stdout
    report = json.loads(caretaker("vectors", other, "--json", exit=1).stdout)["report"]
    assert report["agree"] == 0 < report["checks"]
    for bad in ["", "{", "[1]", json.dumps([wrong | {"strategy": "none"}])]:
        other.write_text(bad)
        assert "other.json" in caretaker("vectors", other, exit=2).stderr


def test_a_simulation_comes_near_to_what_is_done_to_a_real_table(caretaker, root, tmp_path, capsys):
    """A day of one row a second, an SSTable an hour; of the real one the hours are as long as its jobs take."""
    root.mkdir()
    policy, workload = tmp_path / "policy.toml", tmp_path / "workload.toml"
    policy.write_text('wal_compact_trigger_count = 4\nretire_delay_secs = 0\nwal_max_data_age_secs = "7d"\n')
    most, sizes = 0, []
    with Pod(root, WAL_COMPACT_TRIGGER_COUNT="4", RETIRE_DELAY_SECS="0", WAL_MAX_DATA_AGE_SECS="604800") as pod:
        fields = [client.key_field("id", pa.int64()), pa.field("data", pa.binary())]
        table = remote.connect(pod.url).create_table("t", schema=pa.schema(fields))
        table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())

        def seen():
            tables = json.loads(pod.ask("/v1/fleet"))["tables"]
            return (tables[0]["word"], tables[0].get("seen") or {}) if tables else ("", {})

        def at_rest(listed):
            def rests(_):
                word, now = seen()
                return word == "idle" and now["unfolded"] == listed and now["folded_listed"] == 0

            return rests

        for flush in range(1, FLUSHES + 1):
            made = [{"id": key, "data": os.urandom(PAYLOAD)} for key in range(flush * ROWS, (flush + 1) * ROWS)]
            write = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            write.execute(pa.Table.from_pylist(made, schema=pa.schema(fields)))
            table.flush_lsm()
            most = max(most, (flush - 1) % 4 + 1)
            pod.until(at_rest(flush % 4), f"it rests after flush {flush}")
            if flush % 4:
                now = seen()[1]
                sizes.append(now["sstable_bytes"] / now["unfolded"])
        done = lambda kind: pod.value("caretaker_jobs_total", type=kind, outcome="done") or 0  # noqa: E731
        real = {
            "passes": done("memwal_compaction"),
            "rows written": float(table.count_rows()),
            "compactions": done("compact"),
            "bytes folded": pod.value("caretaker_job_bytes_total", type="memwal_compaction"),
        }
    workload.write_text(
        f"rows_per_sec = 1\nrows_per_write = {ROWS}\nflush_rows = {ROWS}\nrow_bytes = {round(sum(sizes) / len(sizes) / ROWS)}\n"
        "worker_slots = 32\nbtree_indexes = 0\n"
    )
    totals = json.loads(caretaker("simulate", policy, workload, "--days", 1, "--json").stdout)["totals"]
    jobs = totals["jobs"]
    simulated = {
        "passes": jobs["memwal_compaction"]["done"],
        "rows written": totals["rows"],
        "compactions": jobs.get("compact", {"done": 0})["done"],
        "bytes folded": totals["written_bytes"]["memwal_compaction"],
    }
    errors = {what: abs(simulated[what] - real[what]) / max(1, real[what]) for what in real}
    with capsys.disabled():
        print(f"\nreal {real}, simulated {simulated}, most waiting {most} and {totals['unfolded_max']}")
    assert most == totals["unfolded_max"]
    assert all(error <= ERROR_MAX for error in errors.values()), errors
