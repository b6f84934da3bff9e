"""Processes of a fleet in the background: agents and workers on one registry, killed, held and cut off."""

import itertools
import json
import signal
import subprocess
import urllib.request

from conftest import command, environment
from serving import series
from waiting import MINUTE, until

COUNT = itertools.count()
# What follows on an event follows at once; what follows on time, soon.
QUICK = {"AGENT_TICK_SECS": "1", "WAL_COMPACTION_INTERVAL_SECS": "1", "TOKIO_WORKER_THREADS": "2"}
OPEN = "('pending', 'running', 'paused')"


class Process:
    """`caretaker <args>`, its log in a file of `folder`."""

    def __init__(self, folder, *args, **settings):
        self.log = folder / f"{args[0]}-{next(COUNT)}.log"
        words = [*args, "--log-format", "json", "--listen", "127.0.0.1:0"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command(*words),
                env=environment(**QUICK | settings),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        self.pid = self.process.pid
        self.until_said("answering HTTP")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.runs():
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def runs(self):
        return self.process.poll() is None

    def said(self):
        return self.log.read_text(errors="replace")

    def until_said(self, what, patience=MINUTE):
        def said():
            text = self.said()
            assert what in text or self.runs(), f"it ended: {text[-3000:]}"
            return what in text

        until(said, lambda: f"it never said `{what}`: {self.said()[-3000:]}", patience)

    def until_held(self):
        """Until it stands at the place of CARETAKER_HOLD_AT."""
        self.until_said("held\n")

    def release(self):
        """Lets it go on from there."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self, patience=MINUTE):
        """Asks it to end, and says how it did."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=patience)

    def metrics(self):
        [line] = [line for line in self.said().splitlines() if "answering HTTP" in line][:1]
        with urllib.request.urlopen(f"http://{json.loads(line)['address']}/metrics", timeout=MINUTE) as answer:
            return series(answer.read().decode())

    def value(self, name, **labels):
        return self.metrics().get((name, frozenset(labels.items())))


def agent(folder, root, url, **settings):
    """An agent that runs no jobs itself."""
    none = {"CARETAKER_WORKER_JOBS": "0"}
    return Process(folder, "serve", root, "--registry", url, **none | settings)


def worker(folder, url, **settings):
    return Process(folder, "worker", "--registry", url, **settings)


def lapse(database, where="true"):
    """The workers of running jobs were silent for longer than a lease."""
    database.run(f"UPDATE caretaker_job SET heartbeat_ms = 0 WHERE state = 'running' AND {where}")


def until_quiet(database, patience=MINUTE):
    """Until no job is open."""
    still = lambda: database.jobs(f"state IN {OPEN}")
    until(lambda: not still(), lambda: f"jobs stay open: {still()[:3]}", patience)


def leaseless(database):
    """Running jobs that nobody would ever take over."""
    return database.jobs("state = 'running' AND (lease IS NULL OR heartbeat_ms IS NULL)")
