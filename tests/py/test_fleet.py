"""Two agents, three workers, PostgreSQL and tables under write, while all of them die and get lost.

CARETAKER_FLEET_TABLES says how many tables: 200, or what a machine can do in a few minutes.
"""

import client  # first: it quiets the libraries

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import lance
import pytest

import fleet_writer
import state
from fleet import OPEN, agent, leaseless, worker
from proxy import Proxy
from waiting import MINUTE, until

TABLES = int(os.environ.get("CARETAKER_FLEET_TABLES", "200"))
ROUNDS_MIN = 3
# Longer than a lease, with all that a slow machine adds.
LEASE = 2 * MINUTE
# Everything there is falls due at once, and is gone through over and over.
EAGER = {
    "WAL_COMPACT_TRIGGER_COUNT": "1",
    "AGENT_SWEEP_INTERVAL_SECS": "20",
    "CARETAKER_WORKER_JOBS": "4",
    "CARETAKER_STATE_DIR": "none",
}
COMPLETED = "lance_agent_coverage_cycles_completed_total"
NEVER = "lance_agent_coverage_never_evaluated"
PENDING = "lance_agent_coverage_cycle_pending"


class Fleet:
    """Its processes by name; each is started again when it was killed."""

    def __init__(self, folder, server, stack):
        self.folder, self.server, self.stack = folder, server, stack
        self.database = server.database()
        self.proxies = {name: stack.enter_context(Proxy(server.port)) for name in ("agent b", "worker c")}
        self.processes, self.kills, self.evaluated = {}, Counter(), Counter()
        for name in ("agent a", "agent b", "worker a", "worker b", "worker c"):
            self.start(name)

    def start(self, name):
        proxy = self.proxies.get(name)
        url = self.database.at(proxy.port if proxy else self.server.port)
        kind = name.split()[0]
        if kind == "agent":
            process = agent(self.folder, self.folder / "db", url, **EAGER)
        else:
            process = worker(self.folder, url, **EAGER)
        self.processes[name] = self.stack.enter_context(process)

    def kill(self, name):
        """As hard as can be, in the middle of whatever it does, and starts the next one."""
        self.count(name)
        self.processes[name].kill()
        self.kills[name.split()[0]] += 1
        self.start(name)

    def count(self, name):
        if name.startswith("agent"):
            metrics = self.processes[name].metrics()
            for (series, labels), value in metrics.items():
                if series == "caretaker_evaluations_total":
                    self.evaluated[dict(labels)["outcome"]] += int(value)

    def of(self, name):
        """The condition for the jobs that this worker runs."""
        return f"state = 'running' AND worker LIKE '%-{self.processes[name].pid}-%'"

    def busy(self, name):
        """Until the worker has work in hand."""
        until(lambda: self.database.jobs(self.of(name)), f"{name} gets no jobs", LEASE)

    def ended(self, more):
        """Until so many more jobs have ended."""
        count = lambda: self.database.value("SELECT count(*) FROM caretaker_job WHERE ended_ms IS NOT NULL")
        first = count()
        until(lambda: count() >= first + more, lambda: self.stuck(f"{more} more jobs do not end"), 2 * MINUTE)

    def stuck(self, what):
        return f"{what}: {self.database.jobs(f'state IN {OPEN}')[:5]}"

    def kill_workers(self):
        for name in random.Random(self.kills["worker"]).sample(["worker a", "worker b", "worker c"], 2):
            self.busy(name)
            self.kill(name)

    def lose_worker(self):
        """It goes on working, and is not heard of, until its jobs are others'."""
        self.busy("worker c")
        self.proxies["worker c"].cut()
        gone = self.of("worker c")
        until(lambda: not self.database.jobs(gone), lambda: self.stuck("nobody takes over"), LEASE)
        self.proxies["worker c"].mend()
        self.ended(5)

    def lose_agent(self):
        """Until the other one has all tables, and until each has its own again."""
        tables = lambda name: self.processes[name].value("caretaker_tables")
        self.proxies["agent b"].cut()
        until(lambda: tables("agent a") == TABLES, "agent a does not take over", LEASE)
        self.proxies["agent b"].mend()
        until(lambda: tables("agent a") < TABLES, "agent b does not come back", LEASE)

    def restart_database(self, how):
        self.server.stop(how)
        self.server.start()
        self.ended(5)


@pytest.fixture
def fleet(tmp_path, server):
    fleet_writer.create(tmp_path / "db", TABLES)
    with contextlib.ExitStack() as stack:
        yield Fleet(tmp_path, server, stack)


def test_a_fleet_that_dies_again_and_again_loses_nothing_and_does_nothing_twice(fleet, capsys):
    began = time.monotonic()
    words = [fleet_writer.__file__, fleet.folder, TABLES, ROUNDS_MIN]
    writer = subprocess.Popen([sys.executable, *map(str, words)])
    try:
        fleet.ended(10)
        fleet.kill_workers()
        fleet.kill("agent a")
        fleet.lose_worker()
        fleet.restart_database(signal.SIGINT)
        fleet.kill_workers()
        fleet.lose_agent()
        fleet.kill("agent b")
        fleet.restart_database(signal.SIGKILL)
        fleet.kill_workers()
        fleet.kill_workers()
        (fleet.folder / "stop").touch()
        assert writer.wait(timeout=4 * MINUTE) == 0
    finally:
        writer.kill()
    wrote = time.monotonic() - began
    settle(fleet)
    figures = judge(fleet)
    seconds = {"seconds written": round(wrote), "seconds in all": round(time.monotonic() - began)}
    with capsys.disabled():
        print("\n" + ", ".join(f"{what} {count}" for what, count in (figures | seconds).items()))


def settle(fleet):
    """Until each agent has gone through all of its tables once more, and nothing is left to do."""
    agents = [fleet.processes[name] for name in ("agent a", "agent b")]
    before = [process.value(COMPLETED) for process in agents]

    def rest():
        if fleet.database.jobs(f"state IN {OPEN}"):
            before[:] = [process.value(COMPLETED) for process in agents]
        # The cycle that was under way may have seen a table too early.
        return all(process.value(COMPLETED) >= had + 2 for process, had in zip(agents, before))

    until(rest, lambda: fleet.stuck("it does not come to rest"), 12 * MINUTE)
    assert [process.value(NEVER) for process in agents] == [0, 0]
    assert sum(process.value("caretaker_tables") for process in agents) == TABLES
    for name in ("agent a", "agent b"):
        fleet.count(name)
    for process in fleet.processes.values():
        assert process.stop() == 0, process.said()[-3000:]


def judge(fleet):
    database = fleet.database
    rounds = int((fleet.folder / "rounds").read_text())
    want, commits = fleet_writer.held(rounds), Counter()
    connection = client.connect(fleet.folder / "db")
    for number in range(TABLES):
        name = fleet_writer.name(number)
        table = connection.open_table(name)
        for lsm in (False, True):
            found = table.search().use_lsm(lsm).limit(10_000).select(["id", "n", "v"]).to_arrow().to_pylist()
            assert sorted(found, key=lambda row: row["id"]) == want, f"{name}, {'union' if lsm else 'base'}"
        commits.update(folded_once(client.path(fleet.folder / "db", name)))
    jobs = database.jobs()
    assert leaseless(database) == [] and {job["state"] for job in jobs} <= {"succeeded", "failed"}
    failed = [(job["kind"], job["message"]) for job in jobs if job["state"] == "failed"]
    assert failed == [], failed
    known = {job["id"] for job in jobs}
    assert commits.keys() <= known, "a commit of a job that never was"
    panics = [log for log in fleet.folder.glob("*.log") if "panicked" in log.read_text(errors="replace")]
    assert panics == []
    events = database.rows("SELECT state, count(*) AS times FROM caretaker_event GROUP BY state")
    times = {event["state"]: event["times"] for event in events}
    outcomes = Counter(job["outcome"] for job in jobs)
    return {
        "tables": TABLES,
        "rounds": rounds,
        "jobs": len(jobs),
        **{f"jobs {outcome}": count for outcome, count in sorted(outcomes.items())},
        "tried again": sum(job["attempt"] > 1 for job in jobs),
        "taken from the dead": times.get("lost", 0),
        "recovered": sum('"recovered"' in (job["result"] or "") for job in jobs),
        "workers killed": fleet.kills["worker"],
        "agents killed": fleet.kills["agent"],
        "folds committed": len(commits),
        **{f"evaluations {outcome}": count for outcome, count in sorted(fleet.evaluated.items())},
    }


def folded_once(path):
    """Jobs of the table's folds. None has two commits, and none takes in what another has."""
    dataset, jobs, before = lance.dataset(path), [], {}
    for version, after in state.folded(path).items():
        properties = made_by(dataset, version)
        grown = {shard for shard in after if after[shard] > before.get(shard, 0)}
        ids = []
        if properties.get("caretaker.job") == "memwal_compaction":
            ids = properties["caretaker.job_id"].split(",")
        said = f"{path}, version {version}: {before}, then {after} by {ids}"
        assert len(grown) == len(ids), said
        assert all(after.get(shard, 0) >= had for shard, had in before.items()), said
        jobs, before = jobs + ids, after
    assert len(set(jobs)) == len(jobs), f"{path}: {jobs}"
    return jobs


def made_by(dataset, version):
    """What a commit says of itself; nothing, where pylance can't read it: that of a rewrite."""
    try:
        return dataset.read_transaction(version).transaction_properties or {}
    except TypeError:
        return {}
