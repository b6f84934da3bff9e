"""Reports from the field about servers, each as the case it describes, and its kin."""

import client  # first: it quiets the libraries

import io
import json
import os
import sqlite3
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import lance
import lancedb
import pyarrow as pa
import pytest

import remote
import stage
import state
from conftest import command, environment, table_path
from remote import Pod, ask, held
from serving import MINUTE
from tables import ID, Build
from test_compaction import fragments
from test_pod import IDLE
from test_races import numbers
from waiting import until

ODD = ["my-table#123", "a?b", "100%", "a b", "表一", "a%2Fb", "a&b=c;d", "ünï", "a+b", "~x", "'q\"", "é" * 40]
ESCAPES = ["a/b", "../other", "/etc", "..", ".", "", "a\\b", "C:\\x", "n\0l", "..\\other", ".hidden", "a\nb", "x" * 300, "é" * 41]
UPSERT = "when_matched_update_all=true&when_not_matched_insert_all=true"


def address(name, what):
    """The path of a request about a table, its name encoded by hand."""
    return f"/v1/table/{quote(name, safe='')}/{what}"


def send(url, path, table):
    """Rows in the body of a POST; status and JSON of the answer."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    request = urllib.request.Request(url + path, data=sink.getvalue(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=MINUTE) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def folded(pod, name):
    """Every row of a table is in its base; returns what its jobs say whose they are."""
    assert ask(pod.url, address(name, "flush_lsm"))[0] == 202
    until(lambda: ask(pod.url, "/v1/compact", {"table": name})[0] == 202, f"{name!r} is not folded")
    listed = lambda: ask(pod.url, address(name, "get_lsm_stats"), {})[1]["lsm_stats"]["buckets"][0]
    until(lambda: not listed()["generations"], f"{name!r} is not folded")
    return {job["table"] for job in ask(pod.url, "/v1/jobs/list", {"table_name": name})[1]["jobs"]}


def written(pod, name):
    """A table that takes LSM writes, by hand-encoded paths: the client itself takes no odd name to create."""
    status, made = send(pod.url, address(name, "create"), remote.rows([(1, 1)]))
    assert status == 200, made
    assert ask(pod.url, address(name, "set_lsm_write_spec"), {"sharding": {"mode": "unsharded"}})[0] == 200
    assert send(pod.url, address(name, f"merge_insert?on=id&{UPSERT}"), remote.rows([(1, 2), (2, 2)]))[0] == 200
    return made["location"]


def test_api_01_a_pass_by_hand_while_one_runs_is_refused_and_not_queued(root):
    root.mkdir()
    spec = lancedb.LsmWriteSpec.bucket("id", 2)
    with Pod(root, **IDLE, CARETAKER_WORKER_JOBS="0") as pod:
        table = remote.create(remote.connect(pod.url), pairs=[(-1, 0)], spec=spec)
        remote.upsert(table, [(key, 1) for key in range(20)])
        table.flush_lsm()
        a, b = (bucket["shard_id"] for bucket in table.get_lsm_stats()["buckets"])
        status, first = ask(pod.url, "/v1/compact", {"table": "t", "shard": a})
        assert status == 202 and len(first["jobs"]) == 1
        for _ in range(2):
            status, refused = ask(pod.url, "/v1/compact", {"table": "t", "shard": a})
            assert (status, refused["code"]) == (429, 21)
            assert first["jobs"][0] in refused["error"]
        status, other = ask(pod.url, "/v1/compact", {"table": "t", "shard": b})
        assert status == 202
        jobs = {job["job_id"] for job in ask(pod.url, "/v1/jobs/list", {})[1]["jobs"]}
        assert jobs == {*first["jobs"], *other["jobs"]}
        for asked in [{"shard": a}, {"table": "t", "shard": "none"}, {"table": "t", "shrad": a}, {"table": 7}]:
            assert ask(pod.url, "/v1/compact", asked)[0] == 400
        assert ask(pod.url, "/v1/compact", {"table": "none"})[0] == 404


def test_api_02_names_of_any_letters_are_answered_as_they_are(root):
    root.mkdir()
    with Pod(root, **IDLE) as pod:
        db = remote.connect(pod.url)
        for name in ODD:
            location = written(pod, name)
            assert location == str(table_path(root, name)) and Path(location).is_dir()
            described = ask(pod.url, address(name, "describe"), {})[1]
            assert (described["table"], described["location"]) == (name, location)
            assert folded(pod, name) == {name}
            assert ask(pod.url, address(name, "pause")) == (200, {"table": name, "paused": True})
            assert ask(pod.url, address(name, "count_rows"), {"predicate": "n = 2"}) == (200, 2)
            assert lance.dataset(location).count_rows("n = 2") == 2
            assert name in {job.table for job in db.list_jobs()}
        # The client fails at a list with a name that it takes for none.
        written(pod, "plain-1.a_b")
        assert list(db.list_tables().tables) == ["plain-1.a_b"]
        shown = subprocess.run(command("status", root, "--json"), env=environment(), capture_output=True, text=True)
        assert {json.loads(line)["table"] for line in shown.stdout.splitlines()} == {*ODD, "plain-1.a_b"}
        # Twice encoded it is another name.
        assert ask(pod.url, address(quote("a b", safe=""), "describe"), {})[0] == 404
        assert ask(pod.url, address("a/b", "describe"), {})[0] == 400
        assert ask(pod.url, address("a%2Fb", "drop")) == (200, {})
        assert ask(pod.url, address("a%2Fb", "describe"), {})[0] == 404
        assert not table_path(root, "a%2Fb").exists() and table_path(root, "a b").exists()


def test_api_03_no_name_leads_out_of_the_root(root):
    inside = root / "inside"
    inside.mkdir(parents=True)
    fragments(root, "other", [numbers(0, 9)])
    kept = inside / "no-table.lance" / "kept"
    kept.parent.mkdir()
    kept.write_text("kept")
    before = state.files(root)
    posts = ["describe", "drop", "insert", "restore", "flush_lsm", "pause", "tags/list", "index/a/drop", "create_index"]
    with Pod(inside, **IDLE) as pod:
        for name in ESCAPES:
            for what in [*posts, "create?mode=overwrite"]:
                status, why = send(pod.url, address(name, what), remote.rows([(1, 1)]))
                assert status == 400 and why["error"], (name, what, status)
            assert ask(pod.url, "/v1/compact", {"table": name})[0] == 400
            # What is encoded twice is a name with percent signs in it, or none.
            for what in posts:
                status, why = send(pod.url, address(quote(name, safe=""), what), remote.rows([(1, 1)]))
                assert status in (400, 404) and why["error"], (name, what, status)
        for what in posts:
            assert send(pod.url, address("no-table", what), remote.rows([(1, 1)]))[0] in (400, 404)
        for path in ["../other", ".", "", "x/../../other", "..%2fother", "%2e%2e/other", "..%5cother", "%c0%ae%c0%ae"]:
            assert ask(pod.url, f"/v1/table/{path}/drop")[0] in (400, 404, 406), path
        for shard in ["../../../other.lance", "/etc", ""]:
            assert ask(pod.url, "/v1/compact", {"table": "no-table", "shard": shard})[0] in (400, 404)
    assert state.files(root) == before


def test_api_03_no_index_tag_or_shard_leads_out_of_its_table(root):
    root.mkdir()
    (root / "kept").write_text("kept")
    with Pod(root, **IDLE) as pod:
        remote.create(remote.connect(pod.url), pairs=[(1, 1)])
        before = state.files(root)
        for name in ["..", "../../kept", "/etc", "a\0", "a/../../../kept", ""]:
            for what in ["drop", "stats", "prewarm"]:
                assert ask(pod.url, address("t", f"index/{quote(name, safe='')}/{what}"))[0] in (400, 404), name
            for what in ["tags/create", "tags/delete", "tags/update"]:
                assert ask(pod.url, address("t", what), {"tag": name, "version": 1})[0] in (400, 404), (name, what)
            assert ask(pod.url, "/v1/compact", {"table": "t", "shard": name})[0] == 400
        assert state.files(root) == before


JOBS = 200_000
PAGE = 1_000
# Jobs that ended, the oldest first; a tenth of them longer ago than they stay listed.
FILL = """
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :jobs),
    t(i, at) AS (SELECT i, :now - CASE WHEN i < :old THEN 15 * 86400000 ELSE 3600000 END + i FROM n)
    INSERT INTO caretaker_job (id, kind, table_name, uri, open_key, state, priority, spec, seen, need_bytes, size_bytes,
        created_ms, run_at_ms, started_ms, ended_ms, attempt, rows_done, rows_total, outcome, result)
    SELECT printf('%08x-%04x-7000-8000-%012x', at >> 16, at & 65535, i), 'compact', 't' || (i % 100), '/t' || (i % 100),
        'compact ' || i, 'succeeded', 0, '{}', '', 0, 0, at, at, at, at, 1, 0, 0, 'done', '{"rows":1}' FROM t
"""


def peak(pid):
    """Bytes of memory that a process has had at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) << 10


def pages(url, **asked):
    """Every page of the list, as its ids."""
    token = None
    while True:
        more = {"page_token": token} if token else {}
        status, page = ask(url, "/v1/jobs/list", asked | more)
        assert status == 200 and page.get("page_token") != token or not token
        yield [job["job_id"] for job in page["jobs"]]
        token = page.get("page_token")
        if not token:
            return


def test_api_05_lists_of_any_length_come_in_pages_that_stay_the_same_while_jobs_are_added(root, tmp_path):
    fragments(root, "t", [numbers(at, at + 9) for at in range(0, 60, 10)])
    home = tmp_path / "state"
    settings = IDLE | {"CARETAKER_STATE_DIR": str(home), "CARETAKER_WORKER_JOBS": "0"}
    with Pod(root, **settings) as pod:
        small = peak(pod.process.pid)
    old = JOBS // 10
    with sqlite3.connect(home / "caretaker.sqlite") as registry:
        registry.execute(FILL, {"jobs": JOBS, "old": old, "now": int(time.time() * 1000)})
        kept = {row[0] for row in registry.execute("SELECT id FROM caretaker_job ORDER BY id DESC LIMIT ?", [JOBS - old])}
    registry.close()
    with Pod(root, **settings) as pod:
        found, added = [], 0
        for page in pages(pod.url, limit=10**9):
            assert len(page) <= PAGE
            found += page
            if len(found) % (20 * PAGE) == 0:
                assert ask(pod.url, address("t", "create_index"), {"column": "id", "name": f"i{added}", "index_type": "BTREE"})[0] == 200
                added += 1
        assert added > 3 and len(found) == len(set(found)), "a job comes twice, or none is added"
        assert kept <= set(found), "jobs are missing"
        assert len(next(pages(pod.url))) <= PAGE
        assert [len(page) for page in pages(pod.url, table_name="t7", limit=500)][:3] == [500, 500, 500]
        for limit in [0, 1, -1, 10**30]:
            status, page = ask(pod.url, "/v1/jobs/list", {"limit": limit})
            assert status == 400 if limit in (-1, 10**30) else len(page["jobs"]) == 1
        assert peak(pod.process.pid) < small + (128 << 20)
        until(lambda: not set(pages_of_old(home)), "jobs that ended long ago stay listed", 2 * MINUTE)
    with sqlite3.connect(home / "caretaker.sqlite") as registry:
        assert registry.execute("SELECT count(*) FROM caretaker_archive").fetchone() == (old,)
    registry.close()


def pages_of_old(home):
    with sqlite3.connect(f"file:{home}/caretaker.sqlite?mode=ro", uri=True) as registry:
        ids = registry.execute("SELECT id FROM caretaker_job WHERE ended_ms < ? LIMIT 1", [int(time.time() * 1000) - 14 * 86_400_000])
        return list(ids)


def test_api_05_a_table_of_fifty_thousand_fragments_is_told_of_in_numbers(root):
    root.mkdir()
    path = str(table_path(root, "many"))
    rows = pa.table({"id": pa.array([1], pa.int64())})
    [one] = lance.fragment.write_fragments(rows, path)
    lance.LanceDataset.commit(path, lance.LanceOperation.Overwrite(rows.schema, [one] * 50_000))
    with Pod(root, **IDLE, CARETAKER_WORKER_JOBS="0") as pod:
        for what, most in [("stats", 2_000), ("describe", 2_000), ("version/list", 2_000)]:
            status, said = ask(pod.url, address("many", what), {})
            assert status == 200 and len(json.dumps(said)) < most
        assert ask(pod.url, address("many", "stats"), {})[1]["fragment_stats"]["num_fragments"] == 50_000
        # Facts have a line of each fragment.
        for what, most in [("facts", 64 * 50_000), ("plan", 1 << 20)]:
            assert len(pod.ask(address("many", what))) < most, what
        pod.until_value("lance_agent_coverage_never_evaluated", 0.0)


@pytest.mark.parametrize("way", ["plain", "link", "relative"])
def test_api_07_a_root_with_spaces_is_served_by_any_path(tmp_path, monkeypatch, way):
    real = tmp_path / "My Share" / "töst dir"
    real.mkdir(parents=True)
    (tmp_path / "a link").symlink_to(real)
    monkeypatch.chdir(tmp_path)
    root = {"plain": real, "link": tmp_path / "a link", "relative": Path("My Share/töst dir")}[way]
    with Pod(root, **IDLE) as pod:
        location = written(pod, "tbl one")
        assert Path(location) == real / "tbl one.lance"
        assert folded(pod, "tbl one") == {"tbl one"}
        assert lance.dataset(location).count_rows() == 2
        assert ask(pod.url, address("tbl one", "count_rows"), {}) == (200, 2)
    for path in [location, os.path.relpath(location), tmp_path / "a link" / "tbl one.lance"]:
        for args in [["status", path], ["run", path], ["compact", path], ["cleanup", path, "--dry-run"]]:
            done = subprocess.run(command(*args), env=environment(), capture_output=True, text=True, timeout=MINUTE)
            assert done.returncode in (0, 3), f"{args}: {done.stdout}{done.stderr}"
    assert not list(tmp_path.rglob("*%20*"))
    # Lance stages files of shards below a folder whose letters beyond ASCII are encoded: none stays there.
    assert not [path for path in tmp_path.rglob("*%*/**/*") if path.is_file()]


class Nobody(Pod):
    """A server that may not write where the tables are: nothing is closed to root, so it is another user."""

    def __init__(self, root, **settings):
        super().__init__(root, **settings)
        if os.getuid() == 0:
            self.args = ["setpriv", "--reuid", "65534", "--clear-groups", *self.args]


@pytest.fixture
def readonly():
    """A folder that everybody may read, and that is closed by whoever fills it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder) / "db"
        change(folder, 0o755, 0o644)


def change(root, folders, files):
    for at, _, names in os.walk(root):
        os.chmod(at, folders)
        for name in names:
            os.chmod(os.path.join(at, name), files)


def everything(root):
    """Every file, and every folder with when it was changed."""
    folders = {at: os.stat(at).st_mtime_ns for at, _, _ in os.walk(root)}
    return state.files(root), folders


def test_api_09_what_only_looks_changes_nothing(readonly):
    readonly.mkdir()
    fragments(readonly, "docs", [numbers(at, at + 9) for at in range(0, 60, 10)])
    with Pod(readonly, **IDLE) as pod:
        table = remote.create(remote.connect(pod.url), pairs=[(1, 1)])
        remote.upsert(table, [(2, 1)])
    built = Build(readonly, "waits")
    built.create([ID, pa.field("v", pa.string())], [{"id": 1, "v": "a"}], btree=["id"])
    built.put([{"id": 2, "v": "b"}])
    change(readonly, 0o555, 0o444)
    before = everything(readonly)
    looks = ["describe", "stats", "version/list", "tags/list", "count_rows", "index/list", "get_lsm_stats", "get_rte_spec"]
    with Nobody(readonly, **IDLE, CARETAKER_WORKER_JOBS="0") as server:
        for path in ["/v1/table/", "/metrics", "/healthz", "/openapi.json"]:
            assert server.ask(path)
        for name in ["docs", "t", "waits"]:
            for what in ["facts", "plan"]:
                assert json.loads(server.ask(address(name, what)))["table"] == name
            for what in looks:
                status, said = ask(server.url, address(name, what), {})
                assert status == 200, (name, what, said)
        assert held(remote.connect(server.url).open_table("t")) == {1: 1, 2: 1}
        assert ask(server.url, "/v1/jobs/list", {})[0] == 200
        server.until_value("lance_agent_coverage_never_evaluated", 0.0)
        for what, body in [("delete", {"predicate": "id = 1"}), ("pause", {}), ("drop", {})]:
            assert ask(server.url, address("docs", what), body)[0] >= 400
        with pytest.raises(Exception) as refused:
            remote.upsert(remote.connect(server.url, **remote.ONCE).open_table("t"), [(3, 1)])
        assert "Permission denied" in str(refused.value.__cause__)
        assert everything(readonly) == before
    for args in [["status", readonly], ["plan", readonly], ["cleanup", readonly / "docs.lance", "--dry-run"]]:
        who = ["setpriv", "--reuid", "65534", "--clear-groups"] if os.getuid() == 0 else []
        keep = environment(CLEANUP_MIN_VERSION_AGE_SECS="3")
        done = subprocess.run([*who, *command(*args)], env=keep, capture_output=True, text=True, timeout=MINUTE)
        assert done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"
    assert everything(readonly) == before


def test_api_09_a_cleanup_deletes_what_its_dry_run_named(caretaker, root):
    fragments(root, "docs", [numbers(at, at + 9) for at in range(0, 60, 10)])
    path = table_path(root, "docs")
    aged = stage.at(stage.HOUR) | {"CLEANUP_MIN_VERSION_AGE_SECS": "60"}
    before = state.files(path)
    named = json.loads(caretaker("cleanup", path, "--dry-run", "--json", **aged).stdout.splitlines()[-1])
    assert state.files(path) == before
    caretaker("cleanup", path, **aged)
    gone = before.keys() - state.files(path).keys()
    assert gone and len(gone) == named["space"]["removable"]["files"], (gone, named)
