"""What operators ask: how is every table, and who holds its space."""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import lance
import pytest

import state
from client import connect
from conftest import command, environment
from tables import Build
from test_base import CLEAN, FOLD, TIDY, scattered

AGE = {"CLEANUP_MIN_VERSION_AGE_SECS": "1"}


def statuses(caretaker, root, exit=0, **settings):
    """The lines of `status --json`, by table."""
    done = caretaker("status", root, "--json", exit=exit, **settings)
    return {line["table"]: line for line in map(json.loads, done.stdout.splitlines())}


def dry_run(caretaker, path, **settings):
    return json.loads(caretaker("cleanup", path, "--dry-run", "--json", **settings).stdout)


def versions(path):
    return [version["version"] for version in lance.dataset(path).versions()]


def size(path):
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def renamed(root, shape, name):
    """A finished table of `shape`, called `name`."""
    path = root / f"{name}.lance"
    os.rename(Build.of(shape, root).path, path)
    return str(path)


def many(root):
    """A root with a table of each kind."""
    scattered(root, "well", parts=1)
    renamed(root, "plain_int64", "waiting")
    renamed(root, "plain_int64", "unset")
    connect(root).open_table("unset").unset_lsm_write_spec()
    paused = scattered(root, "asleep")
    lance.dataset(paused).update_config({"caretaker.paused": "true"})
    (root / "broken.lance" / "_versions").mkdir(parents=True)


def test_status_says_how_every_table_is_the_worst_first(caretaker, root):
    many(root)
    before = state.files(root)
    seen = statuses(caretaker, root, exit=1)
    assert {table: line["health"] for table, line in seen.items()} == {
        "asleep": "paused",
        "broken": "unreadable",
        "unset": "held",
        "waiting": "due",
        "well": "ok",
    }
    assert list(seen) == sorted(seen), "as they are read"
    waiting = seen["waiting"]
    assert (waiting["unfolded"], waiting["due"]) == (6, ["fold"])
    assert 0 <= waiting["at_ms"] - waiting["oldest_unfolded_at_ms"] < 300_000
    assert [(held["decision"], held["by"]) for held in seen["unset"]["held"]] == [("fold", "detached")]
    assert "broken" in seen["broken"]["error"]
    done = caretaker("status", root, exit=1)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[1:6]] == ["broken", "unset", "asleep", "waiting", "well"]
    assert rows[-1] == "5 tables: 1 unreadable, 1 held, 1 paused, 1 due, 1 ok".split()
    assert "fold held by the missing MemWAL index" in done.stdout and "fold due" in done.stdout
    assert "table `broken`" in done.stderr
    assert state.files(root) == before, "a look changes nothing"


def test_status_of_one_table_and_of_none(caretaker, root):
    many(root)
    assert list(statuses(caretaker, root, exit=1)) == ["asleep", "broken", "unset", "waiting", "well"]
    done = caretaker("status", root, "--table", "well")
    assert done.stdout.splitlines()[-1] == "1 table: 1 ok"
    assert "did you mean `well`" in caretaker("status", root, "--table", "wel", exit=2).stderr
    empty = root / "empty"
    empty.mkdir()
    assert "no tables under" in caretaker("status", empty).stdout


def test_status_tells_from_the_history_what_went_well_and_what_fails(caretaker, root, tmp_path):
    history = {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    build = Build.of("plain_int64", root)
    assert statuses(caretaker, root, **history)[build.name]["last_success"] is None
    caretaker("run", root, **FOLD, **history)
    seen = statuses(caretaker, root, **history)[build.name]
    assert (seen["health"], seen["unfolded"], seen["last_success"]["job"]) == ("ok", 0, "memwal_retire")
    assert seen["last_success"]["ended_at_ms"] <= seen["at_ms"]
    assert seen["cleanup_off"] == "cleanup_min_version_age_secs" and seen["last_cleanup"] is None
    # A fold that refuses: SSTables hold a column that the base has not.
    build.put([{"id": 1, "v": "later"}])
    lance.dataset(build.path).drop_columns(["v"])
    caretaker("run", root, exit=1, **FOLD, **history)
    seen = statuses(caretaker, root, **FOLD, **history)[build.name]
    assert (seen["health"], seen["failing"][0]["kind"]) == ("failing", "memwal_compaction")
    assert "memwal_compaction failed once" in caretaker("status", root, **FOLD, **history).stdout


def test_status_names_the_index_that_lags_most(caretaker, root):
    path = scattered(root, parts=1)
    dataset = lance.dataset(path)
    dataset.create_scalar_index("id", index_type="BTREE")
    dataset.insert(dataset.to_table(limit=7))
    assert statuses(caretaker, root)["scattered"]["lagging"] == {"index": "id_idx", "rows": 7}
    assert "7 id_idx" in caretaker("status", root).stdout


def old(root):
    """A table with old versions, one tagged, one with a branch, all older than a second but the last."""
    path = scattered(root, parts=6)
    dataset = lance.dataset(path)
    dataset.tags.create("release-1", 2)
    dataset.create_branch("try", 4)
    dataset.optimize.compact_files()
    time.sleep(1.1)
    lance.dataset(path).update_config({"touched": "now"})
    return path


def test_r4_6_a_dry_run_says_what_would_go_and_who_pins_the_rest(caretaker, root):
    path = old(root)
    before, all_versions = state.files(root), versions(path)
    seen = dry_run(caretaker, path, CLEANUP_MIN_VERSION_AGE_SECS="1", CLEANUP_RETAIN_VERSIONS="2")
    pins = {version: kept["pins"] for kept in seen["space"]["kept"] for version in kept["versions"]}
    newest = all_versions[-1]
    assert pins == {
        newest: [{"by": "current"}],
        newest - 1: [{"by": "newest"}],
        2: [{"by": "tag", "name": "release-1"}],
        4: [{"by": "branch", "name": "try"}],
    }
    assert seen["removes"]["versions"] == [v for v in all_versions if v not in pins]
    young = dry_run(caretaker, path, CLEANUP_MIN_VERSION_AGE_SECS="1d")
    assert young["removes"]["versions"] == [] and young["removes"]["bytes"] == 0
    assert [pin["by"] for kept in young["space"]["kept"] for pin in kept["pins"] if 2 in kept["versions"]] == ["young", "tag"]
    text = caretaker("cleanup", path, "--dry-run", "--cleanup-min-version-age-secs", "1d").stdout
    assert "younger than 1d, tag `release-1`" in text and "the current version" in text
    assert "a cleanup now would remove nothing" in text
    assert state.files(root) == before, "a dry run changes nothing"


@pytest.mark.parametrize("shape", ["scattered", "indexed"])
def test_r4_6_the_real_cleanup_removes_what_the_dry_run_predicts(caretaker, root, shape):
    if shape == "scattered":
        path = old(root)
    else:
        path = Build.of(shape, root).path
        caretaker("run", root, **TIDY)
        lance.dataset(path).tags.create("release-1", 3)
        time.sleep(1.1)
    predicted = dry_run(caretaker, path, **AGE)["removes"]
    assert len(predicted["versions"]) > 2 and predicted["bytes"] > 0
    before, all_versions = size(path), versions(path)
    done = json.loads(caretaker("cleanup", path, "--json", **AGE).stdout)
    # The age of the dry run was another: what is old only now is removed, too.
    assert done["versions"] == len(predicted["versions"])
    assert (done["files"], done["bytes"]) == (predicted["files"], predicted["bytes"])
    assert before - size(path) == predicted["bytes"]
    assert versions(path) == [v for v in all_versions if v not in predicted["versions"]]
    assert lance.dataset(path, version="release-1").count_rows() > 0
    again = caretaker("cleanup", path, **AGE).stdout
    assert "removed nothing" in again


def test_every_byte_below_the_table_has_a_holder(caretaker, root):
    build = Build.of("indexed", root)
    caretaker("run", root, **FOLD)
    build.put([next(iter(build.expected.rows.values()))])
    lance.dataset(build.path).create_branch("try", 4)
    for settings in ({}, AGE):
        space = dry_run(caretaker, build.path, **settings)["space"]
        wal = [amount["bytes"] for amount in space.pop("mem_wal").values() if isinstance(amount, dict)]
        kept = [kept["bytes"] for kept in space.pop("kept")]
        assert sum(wal) + sum(kept) + sum(amount["bytes"] for amount in space.values()) == size(build.path)
        assert wal[0] > 0 and wal[2] > 0, "one SSTable waits, others are needed by an old version"


def test_r4_1_without_a_minimum_age_a_cleanup_says_what_to_set(caretaker, root):
    path = scattered(root)
    before = state.files(root)
    assert "--cleanup-min-version-age-secs 7d" in caretaker("cleanup", path, exit=2).stderr
    shown = caretaker("cleanup", path, "--dry-run").stdout
    assert "is off" in shown and "--cleanup-min-version-age-secs 7d" in shown and "cleanup does not run" in shown
    assert state.files(root) == before


@pytest.mark.parametrize("key", ["caretaker.paused", "caretaker.cleanup.enabled"])
def test_a_table_that_wants_no_cleanup_is_refused_one(caretaker, root, key):
    path = old(root)
    lance.dataset(path).update_config({key: "true" if key.endswith("paused") else "false"})
    before = state.files(root)
    assert key in caretaker("cleanup", path, exit=1, **CLEAN).stderr
    assert key in dry_run(caretaker, path, **CLEAN)["refused"]
    assert state.files(root) == before


def test_a_cleanup_by_hand_is_remembered_as_any_other(caretaker, root, tmp_path):
    history = {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    path = old(root)
    caretaker("cleanup", path, **AGE, **history)
    seen = statuses(caretaker, root, **history)["scattered"]
    assert seen["last_success"]["job"] == "cleanup"
    assert seen["last_cleanup"]["start_version"] == versions(path)[-1]


def test_a_cleanup_is_of_one_table(caretaker, root):
    scattered(root, "one")
    scattered(root, "two")
    assert "name one of them" in caretaker("cleanup", root, exit=2, **AGE).stderr


def test_words_are_plain_where_a_command_can_not_do_what_is_asked(caretaker, root):
    path = scattered(root, parts=1)
    said = caretaker("plan", path, "--at", "2026-12-24T18:00:00Z", exit=2).stderr
    assert "planned for now" in said and "--facts facts.json --at 2026-12-24T18:00:00Z" in said
    assert "`1 GB` is written `1GB`" in caretaker("plan", path, "--wal-compact-trigger-bytes", "1 GB", exit=2).stderr
    shown = caretaker("plan", path).stdout
    assert "index       -     no index" in shown and "unindexed" not in shown


def test_a_table_that_is_folded_is_not_said_to_lag(caretaker, root):
    build = Build.of("plain_int64", root)
    assert "behind, plus the job" in caretaker("plan", build.path).stdout
    caretaker("run", root, **FOLD)
    shown = caretaker("plan", build.path).stdout
    assert "the base holds every flushed row" in shown and "behind, plus the job" not in shown


def test_serve_warns_of_a_root_without_tables(root):
    root.mkdir()
    serving = subprocess.Popen(command("serve", root), env=environment(), stderr=subprocess.PIPE, text=True)
    silent = threading.Timer(60, serving.kill)
    silent.start()
    try:
        assert any("no tables here yet" in line for line in serving.stderr)
    finally:
        serving.terminate()
        serving.communicate(timeout=60)
        silent.cancel()
    assert serving.returncode == 0
