"""Caretaker beside a writer that never stops, beside itself, and killed at any moment."""

import os
import signal
import subprocess
import sys
import threading

import pytest

import check
import client
import live
import state
from conftest import command, environment, table_path
from tables import Build

ROUNDS = 24
# Short, for many passes, and still longer than any read here takes.
LIVE = {"RETIRE_DELAY_SECS": "2", "WAL_COMPACT_TRIGGER_COUNT": "2"}


class Loop:
    """Commands run again and again in the background; what they end with is kept."""

    def __init__(self, *commands):
        self.commands, self.codes, self.said = commands, [], ""
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def _run(self):
        while not self.ended.is_set():
            for args in self.commands:
                done = subprocess.run(args, env=environment(**LIVE), capture_output=True, text=True)
                self.codes.append(done.returncode)
                if done.returncode:
                    self.said += f"{args[1]} ends with {done.returncode}: {done.stderr}"


def writer(root):
    here = os.path.dirname(os.path.abspath(__file__))
    return subprocess.Popen([sys.executable, os.path.join(here, "live.py"), root, str(ROUNDS)])


def seen_between(way, rows, before, after):
    """`rows` (key to value) must fit some moment between two numbers of finished steps."""
    ids = [key for key, _ in rows]
    assert len(set(ids)) == len(ids), f"{way}: a key is read twice: {sorted(ids)}"
    got = dict(rows)
    for key in live.keys(after):
        allowed = {live.value(key, step) for step in range(before, after + 1)}
        assert got.pop(key, None) in allowed, f"{way}: key {key} is {dict(rows).get(key)}, allowed {allowed}"
    assert not got, f"{way}: never written: {got}"


def read_every_way(root, indexed):
    """Reads the table through one fresh handle and checks each answer against the writer's steps."""
    table = client.connect(root).open_table(live.NAME)
    every = lambda query: [(r["id"], r["v"]) for r in query.limit(check.MANY).select(["id", "v"]).to_list()]
    ways = {
        "LSM path": lambda: every(table.search().use_lsm(True)),
        "LSM filter": lambda: every(table.search().use_lsm(True).where("id >= 0")),
    }
    if indexed:
        ways["text"] = lambda: every(table.search("common", query_type="fts", fts_columns="text").use_lsm(True))
        ways["vector"] = lambda: every(table.search([0.0] * 8, vector_column_name="vec").use_lsm(True).nprobes(9))
    for way, read in ways.items():
        before = live.steps_done(root)
        rows = read()
        # The step after the last finished one may be half done.
        seen_between(way, rows, before, live.steps_done(root) + 1)
    base = [r["id"] for r in table.search().use_lsm(False).limit(check.MANY).select(["id"]).to_list()]
    assert len(set(base)) == len(base), f"base: a key is read twice: {sorted(base)}"


@pytest.mark.parametrize("indexed", [False, True], ids=["no index", "three indexes"])
def test_a_reader_never_sees_a_key_twice_deleted_or_missing_while_passes_run(root, caretaker, indexed):
    live.create(root, indexed)
    reads = 0
    run, compact = command("run", root), command("compact", table_path(root, live.NAME))
    with writer(root) as writing, Loop(run, compact) as loop:
        while writing.poll() is None:
            read_every_way(root, indexed)
            reads += 1
    assert writing.returncode == 0
    assert set(loop.codes) == {0}, loop.said
    assert reads > 10 and any(state.read(table_path(root, live.NAME)).compacted.values())
    settled(root, caretaker)


def test_two_processes_on_one_database_lose_nothing(root, caretaker):
    live.create(root, indexed=True)
    run, compact = command("run", root), command("compact", table_path(root, live.NAME))
    with writer(root) as writing, Loop(run, compact) as one, Loop(compact, run) as other:
        writing.wait()
    assert writing.returncode == 0
    # 3: refused, because the other process holds the shard.
    assert set(one.codes + other.codes) <= {0, 3}, one.said + other.said
    settled(root, caretaker)


def settled(root, caretaker):
    """After one more run the base alone holds what the writer wrote."""
    caretaker("run", root, WAL_COMPACT_TRIGGER_COUNT="1")
    table = client.connect(root).open_table(live.NAME)
    rows = table.search().use_lsm(False).limit(check.MANY).to_list()
    assert live.steps_done(root) == 2 * ROUNDS
    seen_between("base", [(r["id"], r["v"]) for r in rows], 2 * ROUNDS, 2 * ROUNDS)
    assert [s for shard in state.read(table_path(root, live.NAME)).shards.values() for s in shard.sstables] == []


def test_a_process_killed_again_and_again_loses_nothing(caretaker, root):
    builds = [Build.of(shape, root) for shape in ("indexed", "buckets", "tombstones")]
    killed = 0
    for milliseconds in (60, 90, 120, 160, 200, 250, 300, 350, 400, 500):
        process = subprocess.Popen(command("run", root), env=environment(), stdout=subprocess.DEVNULL)
        try:
            process.wait(milliseconds / 1000)
        except subprocess.TimeoutExpired:
            process.kill()
            killed += process.wait() == -signal.SIGKILL
        for build in builds:
            check.table(root, build.name, build.expected, waiting=True)
    assert killed
    caretaker("run", root)
    for build in builds:
        check.table(root, build.name, build.expected)
