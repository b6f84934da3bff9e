"""Clients write over the wire while pods are killed, stopped and fenced, and what they wrote is folded: a checker
knows every write that was acknowledged, and compares at every read and at the end."""

import client  # first: it quiets the libraries

import os
import random
import threading
import time

import lance
import lancedb
import pyarrow as pa
from lancedb.index import BTree

import remote
from conftest import table_path
from remote import Pod, held
from waiting import until

CLIENTS, KEYS = 4, 12
# Deaths of a pod; more of them find more.
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "6"))
# Small memtables and small triggers: passes run all the time, and files go as soon as they may.
BUSY = {
    "WAL_COMPACT_TRIGGER_COUNT": "2",
    "WAL_MAX_DATA_AGE_SECS": "3",
    "RETIRE_DELAY_SECS": "1",
    "COLLECT_GRACE_SECS": "10",
}
SPECS = {"plain": lancedb.LsmWriteSpec.unsharded, "bucket": lambda: lancedb.LsmWriteSpec.bucket("id", 3)}


class History:
    """What was written to each key, in order (`None`: deleted), and which of it was acknowledged last."""

    def __init__(self, keys):
        self.lock = threading.Lock()
        self.tried = {key: [None] for key in keys}
        self.sure = {key: 0 for key in keys}
        self.acknowledged = self.unknown = self.reads = 0

    def begin(self, keys, number):
        with self.lock:
            for key in keys:
                self.tried[key].append(number)

    def done(self, keys, certain):
        with self.lock:
            self.acknowledged += certain
            self.unknown += not certain
            for key in keys if certain else ():
                self.sure[key] = len(self.tried[key]) - 1

    def before(self):
        """A moment from which on something is read."""
        with self.lock:
            return dict(self.sure)

    def wrong(self, before, found):
        """Keys that hold what they could not since that moment: nothing from before the last acknowledged write."""
        with self.lock:
            seen = {key: self.tried[key][at:] for key, at in before.items()}
        return {key: (found.get(key), may) for key, may in seen.items() if found.get(key) not in may}


class Run:
    """One table, its clients and what they did."""

    def __init__(self, name):
        self.name, self.stop = name, threading.Event()
        self.history = History(range(CLIENTS * KEYS))
        self.urls, self.problems = [], []

    def table(self, **config):
        return remote.connect(random.choice(self.urls), **remote.ONCE, **config).open_table(self.name)

    def write(self, number):
        chance = random.Random(f"{self.name} {number}")
        keys = range(number * KEYS, (number + 1) * KEYS)
        turn = 0
        while not self.stop.is_set():
            turn += 1
            some = chance.sample(keys, chance.randint(1, 4))
            gone = chance.random() < 0.25
            self.history.begin(some, None if gone else turn)
            try:
                table = self.table()
                if gone:
                    table.delete(f"id in ({', '.join(map(str, some))})")
                else:
                    remote.upsert(table, [(key, turn) for key in some])
                certain = True
            except Exception:
                # Refused, or nobody knows.
                certain = False
                time.sleep(0.05)
            self.history.done(some, certain)

    def read(self):
        while not self.stop.is_set():
            before = self.history.before()
            try:
                found = held(self.table())
            except AssertionError as twice:
                self.problems.append(str(twice))
                return
            except Exception:
                time.sleep(0.05)
                continue
            self.history.reads += 1
            if wrong := self.history.wrong(before, found):
                self.problems.append(f"{self.name}: key to what it holds and what it may: {wrong}")
                return

    def threads(self, reads):
        work = [threading.Thread(target=self.write, args=(number,)) for number in range(CLIENTS)]
        return work + [threading.Thread(target=self.read)] * reads


def create(pod, name, spec):
    db = remote.connect(pod.url)
    table = db.create_table(name, schema=pa.schema(remote.FIELDS))
    table.create_index("id", config=BTree(), wait_timeout=client.timedelta(seconds=60))
    table.set_lsm_write_spec(spec().with_writer_config_defaults({"max_memtable_rows": "60"}))


def busy(runs, done):
    """Lets the clients write until each has had so many answers more."""
    goal = {run.name: run.history.acknowledged + done for run in runs}
    until(
        lambda: all(run.history.acknowledged >= goal[run.name] or run.problems for run in runs),
        lambda: f"nobody is answered: {[vars(run.history) for run in runs]}",
    )
    assert not [problem for run in runs for problem in run.problems]


def base(root, name):
    table = lance.dataset(str(table_path(root, name))).to_table(columns=["id", "n"]).to_pydict()
    assert len(set(table["id"])) == len(table["id"]), "a key is in the base twice"
    return dict(zip(table["id"], table["n"]))


def compare(root, runs, pod):
    """Everything is folded, and is what was acknowledged."""
    for run in runs:
        table = remote.connect(pod.url).open_table(run.name)
        everything = held(table)
        table.checkpoint_lsm()
        assert everything == held(table) == held(table, False) == base(root, run.name)
        assert table.count_rows() == len(everything)
        wrong = run.history.wrong(run.history.before(), everything)
        assert not wrong, f"{run.name}: key to what it holds and what it may: {wrong}"


def started(runs, reads):
    threads = [thread for run in runs for thread in run.threads(reads)]
    for thread in threads:
        thread.start()
    return threads


def ended(runs, threads):
    for run in runs:
        run.stop.set()
    for thread in threads:
        thread.join()


def test_the_checker_finds_a_write_that_is_lost_or_comes_back():
    history = History([1])
    for number, certain in [(1, True), (2, True), (None, False), (3, False)]:
        history.begin([1], number)
        history.done([1], certain)
    moment = history.before()
    assert not any(history.wrong(moment, found) for found in ({1: 2}, {1: 3}, {}))
    assert history.wrong(moment, {1: 1}) and history.wrong(moment, {1: 4})


def test_no_acknowledged_write_is_lost_while_a_pod_dies_again_and_again(root):
    root.mkdir()
    runs = [Run(name) for name in SPECS]
    with Pod(root, **BUSY) as pod:
        for run in runs:
            create(pod, run.name, SPECS[run.name])
            run.urls = [pod.url]
        threads = started(runs, reads=1)
        try:
            for turn in range(ROUNDS):
                busy(runs, 15)
                if turn % 3 == 2:
                    assert pod.stop() == 0
                else:
                    pod.kill()
                pod.start()
            busy(runs, 15)
        finally:
            ended(runs, threads)
        compare(root, runs, pod)
        folds = pod.value("caretaker_jobs_total", type="memwal_compaction", outcome="done")
    figures(runs, ROUNDS, folds)


def test_of_pods_that_take_shards_from_each_other_none_loses_a_write(root):
    root.mkdir()
    runs = [Run(name) for name in SPECS]
    with Pod(root, **BUSY) as one, Pod(root, **BUSY) as two:
        for run in runs:
            create(one, run.name, SPECS[run.name])
            run.urls = [one.url, two.url]
        threads = started(runs, reads=0)
        try:
            for pod in (one, two) * (ROUNDS // 2):
                busy(runs, 15)
                pod.kill()
                pod.start()
            busy(runs, 15)
        finally:
            ended(runs, threads)
        # As a second pod would have it claimed.
        assert two.stop() == 0
        compare(root, runs, one)
        two.start()
        folds = one.value("caretaker_jobs_total", type="memwal_compaction", outcome="done")
    figures(runs, ROUNDS, folds)


def figures(runs, deaths, folds):
    for run in runs:
        done = run.history
        print(f"\n{run.name}: acknowledged {done.acknowledged}, unknown {done.unknown}, reads checked {done.reads}", end="")
    print(f"\npods ended {deaths}, folds of the last one {folds}")
