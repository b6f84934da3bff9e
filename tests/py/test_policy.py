"""Plugins that decide for a server: loaded, changed, compared, promoted, gone back from; and the past asked again."""

import client  # first: it quiets the libraries

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

import remote
from remote import Pod, ask
from serving import Serving
from waiting import until

PLUGINS = Path(os.environ.get("PLUGINS", Path(__file__).parents[2] / "target/wasm"))
BUILT_IN, JAVASCRIPT = PLUGINS / "planner.wasm", PLUGINS / "javascript.wasm"
# As a deployment has it: the tests' own is linted.
PLAIN = {"RETIRE_DELAY_SECS": "30"}
EAGER = {"WAL_COMPACT_TRIGGER_COUNT": "1", "COLLECT_GRACE_SECS": "0"}


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def policy(serving, change=None):
    if change is None:
        return json.loads(serving.ask("/v1/policy"))
    status, answer = ask(serving.url, "/v1/policy", change)
    assert status == 200, answer
    return answer


def decided(serving, by):
    return serving.value("caretaker_policy_decisions_total", by=by) or 0


def evaluated(serving, by, more=1):
    """Asks for evaluations until so many more are decided by them."""
    wanted = decided(serving, by) + more

    def reached():
        # 404 until the next walk has found the table.
        ask(serving.url, "/v1/table/t/evaluate", {})
        return decided(serving, by) >= wanted

    until(reached, f"{by} decides nothing")


@pytest.fixture
def plugin(tmp_path):
    """A file that may be changed."""
    return Path(shutil.copy(BUILT_IN, tmp_path / "policy.wasm"))


def replace(file, with_what):
    """As a deployment does it: whole, and at once."""
    new = file.with_suffix(".new")
    new.write_bytes(with_what)
    new.rename(file)


def test_a_plugin_folds_what_a_client_writes_and_each_job_says_who_planned_it(caretaker, root, tmp_path):
    root.mkdir()
    state = {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    with Pod(root, **EAGER, **state, CARETAKER_POLICY_PLUGIN=f"{BUILT_IN}@{sha256(BUILT_IN)}") as pod:
        table = remote.create(remote.connect(pod.url))
        remote.upsert(table, [(1, 1), (2, 2)])
        table.flush_lsm()
        until(lambda: pod.value("caretaker_jobs_total", type="memwal_compaction", outcome="done"), "nothing is folded")
        assert remote.held(table) == {1: 1, 2: 2}
        assert decided(pod, "plugin") > 0 and decided(pod, "built_in") == 0
        assert policy(pod)["active"]["sha256"] == sha256(BUILT_IN)
        name = f"built-in 0.1.0 ({sha256(BUILT_IN)[:12]})"
        assert pod.value("caretaker_policy_active", role="active", planner=name) == 1
    jobs = caretaker("jobs", "list", "--json", **state).stdout.splitlines()
    [fold] = [job for job in map(json.loads, jobs) if job["kind"] == "memwal_compaction"]
    history = [json.loads(line) for line in caretaker("policy", "history", "--json", **state).stdout.splitlines()]
    # What the end of the server orders is no question of policy.
    assert {one["planner"] for one in history} <= {sha256(BUILT_IN), "built-in 0.1.0"}
    assert {one["planner"] for one in history if one["policy"] == fold["policy"]} == {sha256(BUILT_IN)}
    [kept] = [json.loads(line) for line in caretaker("policy", "list", "--json", **state).stdout.splitlines()]
    assert (kept["sha256"], kept["bytes"]) == (sha256(BUILT_IN), BUILT_IN.stat().st_size)
    # Without the file: it is kept, so that every decision can be derived again.
    for one in history:
        assert "bit for bit" in caretaker("policy", "replay", one["id"], **state).stdout


def test_a_plugin_is_changed_under_a_running_server_and_gone_back_from(root, plugin):
    root.mkdir()
    with Serving(root, **EAGER, CARETAKER_POLICY_PLUGIN=str(plugin)) as serving:
        remote.create(remote.connect(serving.url))
        evaluated(serving, "plugin")
        first = sha256(plugin)
        replace(plugin, JAVASCRIPT.read_bytes())
        until(lambda: policy(serving)["active"]["sha256"] == sha256(JAVASCRIPT), "its file is not read again")
        evaluated(serving, "plugin")
        # What is no plugin changes nothing, and is told of.
        for broken in (b"", b"no plugin at all", JAVASCRIPT.read_bytes()[:1000]):
            failures = serving.value("caretaker_policy_load_failures_total")
            replace(plugin, broken)
            until(lambda: serving.value("caretaker_policy_load_failures_total") > failures, "it is not tried")
            assert policy(serving)["active"]["sha256"] == sha256(JAVASCRIPT)
        evaluated(serving, "plugin")
        assert policy(serving, {"action": "rollback"})["active"]["sha256"] == first
        assert policy(serving, {"action": "use", "plugin": "built-in"})["active"]["sha256"] is None
        evaluated(serving, "built_in")
        # Whatever was loaded once is a name away.
        used = policy(serving, {"action": "use", "plugin": sha256(JAVASCRIPT)[:16]})
        assert used["active"]["sha256"] == sha256(JAVASCRIPT)
        assert {kept["sha256"] for kept in used["plugins"]} == {first, sha256(JAVASCRIPT)}
        assert ask(serving.url, "/v1/policy", {"action": "use", "plugin": "0" * 64})[0] == 400
        missing = {"action": "load", "path": str(plugin.with_name("none.wasm"))}
        status, answer = ask(serving.url, "/v1/policy", missing)
        assert status == 400 and "can't be read" in json.dumps(answer)
        other = {"action": "load", "path": str(BUILT_IN), "sha256": "0" * 64}
        status, answer = ask(serving.url, "/v1/policy", other)
        assert status == 400 and "not the plugin that was meant" in json.dumps(answer)
        assert serving.value("caretaker_policy_plugin_failures_total", kind="trap") == 0


def test_a_server_whose_plugin_is_broken_maintains_its_tables_and_a_command_says_so(caretaker, root, plugin):
    root.mkdir()
    plugin.write_bytes(b"broken")
    with Pod(root, **EAGER, CARETAKER_POLICY_PLUGIN=str(plugin)) as pod:
        table = remote.create(remote.connect(pod.url))
        remote.upsert(table, [(1, 1)])
        table.checkpoint_lsm()
        assert remote.held(table) == {1: 1}
        evaluated(pod, "built_in")
        assert pod.value("caretaker_policy_load_failures_total") >= 1
        assert any("not loaded; the built-in planner decides" in line for line in pod.said)
        # Mended, it decides without a restart.
        replace(plugin, BUILT_IN.read_bytes())
        evaluated(pod, "plugin")
    said = caretaker("plan", root, "--policy-plugin", plugin.with_name("none.wasm"), exit=2).stderr
    assert "can't be read" in said
    pinned = caretaker("plan", root, "--policy-plugin", f"{plugin}@{'0' * 64}", exit=2).stderr
    assert "not the plugin that was meant" in pinned


def test_a_candidate_is_compared_and_promoted_when_it_has_passed_the_gate(caretaker, root, tmp_path):
    root.mkdir()
    state = {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    # It folds, and knows nothing of catch-up, compaction and indexes: those differ.
    beside = {"CARETAKER_POLICY_SHADOW": str(JAVASCRIPT), "CARETAKER_POLICY_GATE": "5"}
    with Pod(root, **EAGER, **state, **beside) as pod:
        table = remote.create(remote.connect(pod.url))
        status, answer = ask(pod.url, "/v1/policy", {"action": "promote"})
        assert status == 429 and "5 are asked for (policy_gate)" in json.dumps(answer)
        for step in range(3):
            remote.upsert(table, [(step, step)])
            table.flush_lsm()
        until(lambda: pod.value("caretaker_policy_shadow_total", said="differs"), "the candidate differs nowhere")
        evaluated(pod, "built_in", 5)
        until(lambda: policy(pod)["shadow"]["evaluations"] >= 5, "the candidate is not asked")
        assert policy(pod)["shadow"]["refused"] == 0 and policy(pod)["active"]["sha256"] is None
        promoted = policy(pod, {"action": "promote"})
        assert promoted["active"]["sha256"] == sha256(JAVASCRIPT) and promoted["shadow"] is None
        assert ask(pod.url, "/v1/policy", {"action": "promote"})[0] == 400
        remote.upsert(table, [(9, 9)])
        table.checkpoint_lsm()
        assert remote.held(table) == {0: 0, 1: 1, 2: 2, 9: 9}
    diff = [json.loads(line) for line in caretaker("policy", "diff", "--json", **state).stdout.splitlines()]
    assert diff and all(one["differences"] and one["refused"] is None for one in diff)
    assert {one["decision"]["candidate"] for one in diff} == {sha256(JAVASCRIPT)}
    text = caretaker("policy", "diff", **state).stdout
    assert "->" in text and sha256(JAVASCRIPT)[:12] in text


def test_another_policy_is_asked_about_the_past(caretaker, root, tmp_path):
    root.mkdir()
    state = {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    with Pod(root, **EAGER, **state) as pod:
        table = remote.create(remote.connect(pod.url))
        remote.upsert(table, [(1, 1)])
        table.checkpoint_lsm()
        evaluated(pod, "built_in", 3)
    lazy, same = tmp_path / "lazy.toml", tmp_path / "same.toml"
    lazy.write_text("wal_compact_trigger_count = 30\nretire_delay_secs = 86400\n")
    tested = caretaker("policy", "backtest", lazy, "--json", **state).stdout.splitlines()
    *differing, summary = map(json.loads, tested)
    assert summary["summary"]["differing"] == len(differing) > 0
    assert summary["summary"]["was"]["jobs"] > summary["summary"]["now"]["jobs"]
    assert "would have differed" in caretaker("policy", "backtest", lazy, **state).stdout
    same.write_text("wal_compact_trigger_count = 1\ncollect_grace_secs = 0\nretire_delay_secs = 0\n")
    [unchanged] = caretaker("policy", "backtest", same, "--json", "--table", "t", **state).stdout.splitlines()
    assert json.loads(unchanged)["summary"]["differing"] == 0
    [plugin] = caretaker("policy", "backtest", BUILT_IN, "--json", **state).stdout.splitlines()
    assert json.loads(plugin)["summary"]["differing"] == 0
    assert json.loads(plugin)["summary"]["decisions"] == summary["summary"]["decisions"]
    late = caretaker("policy", "backtest", lazy, "--from", "2200-01-01T00:00:00Z", **state).stdout
    assert "no such decisions" in late
    missing = caretaker("policy", "replay", "nothing", exit=2, **state).stderr
    assert "there is no decision `nothing`" in missing and "caretaker policy history" in missing


def test_a_run_records_its_decisions_too_and_nothing_where_that_is_switched_off(caretaker, root, tmp_path):
    remote_free = client.connect(root)
    remote_free.create_table("t", [{"id": 1}])
    for bytes_, wanted in (("1MiB", True), ("0", False)):
        state = {"CARETAKER_STATE_DIR": str(tmp_path / bytes_), "CARETAKER_DECISION_RECORD_BYTES": bytes_}
        caretaker("run", root, **state)
        caretaker("plan", root, **state)
        history = caretaker("policy", "history", "--json", **state).stdout.splitlines()
        # A plan that is only shown is no decision.
        assert (len(history) > 0) is wanted, history
        assert len({json.loads(line)["id"] for line in history}) == len(history)


def test_the_kit_says_whether_a_plugin_is_fit(caretaker, tmp_path):
    report = json.loads(caretaker("policy", "check", BUILT_IN, "--json").stdout)
    assert report["same_as_built_in"] == report["cases"] > 0
    assert all(check["failed"] == 0 for check in report["checks"])
    assert "fit to be a planner" in caretaker("policy", "check", JAVASCRIPT).stdout
    broken = tmp_path / "broken.wasm"
    broken.write_bytes(BUILT_IN.read_bytes()[:100_000])
    assert "not fit" in caretaker("policy", "check", broken, exit=1).stdout
    assert "can't be read" in caretaker("policy", "check", tmp_path / "none", exit=2).stderr


def test_lint_tells_of_settings_that_are_unsafe_or_useless(caretaker):
    assert "0 settings" in caretaker("policy", "lint", **PLAIN).stdout
    odd = caretaker("policy", "lint", "--wal-compact-trigger-count", "50", "--json", exit=1, **PLAIN).stdout
    lints = {lint["key"]: lint["why"] for lint in json.loads(odd)["lints"]}
    assert "50 SSTables" in lints["wal_compact_trigger_count"]
    assert "`-1`" in caretaker("policy", "lint", "--wal-compact-trigger-count", "-1", exit=2).stderr


def test_lint_holds_settings_against_tables(caretaker, root):
    table = client.connect(root).create_table("t", [{"id": n, "text": "x" * 100} for n in range(100)])
    assert caretaker("policy", "lint", root, **PLAIN).stdout == "0 settings to look at\n"
    table.tags.create("kept", table.version)
    table.add([{"id": 1, "text": "y"}])
    short = ("--cleanup-min-version-age-secs", "7200", "--longest-read-secs", "86400")
    found = caretaker("policy", "lint", root, *short, "--json", exit=1, **PLAIN).stdout.splitlines()
    own, of_table = map(json.loads, found)
    assert own["table"] is None and of_table["table"] == "t"
    why = {lint["key"]: lint["why"] for lint in of_table["lints"]}
    assert "cleanup_min_version_age_secs" in why, of_table
    assert "no table `none`" in caretaker("policy", "lint", root, "--table", "none", exit=2).stderr
