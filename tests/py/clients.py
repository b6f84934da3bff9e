"""Servers for the tests that are written in other clients' languages."""

from contextlib import ExitStack, contextmanager

from conftest import environment
from remote import Pod

# Nothing is folded unless somebody asks.
IDLE = {"WAL_COMPACT_TRIGGER_COUNT": "100", "WAL_MAX_DATA_AGE_SECS": "3600"}


BOUNDS = {"CARETAKER_POD_SLOW_SSTABLES": "2", "CARETAKER_POD_STOP_SSTABLES": "4"}


@contextmanager
def servers(folders):
    """The environment that names three servers. On the one that stands still nobody works jobs off; the other one
    serves the same tables."""
    folder = folders.mktemp("still")
    with ExitStack() as pods:
        served = pods.enter_context(Pod(folders.mktemp("served"), **IDLE))
        still = pods.enter_context(Pod(folder, **IDLE, **BOUNDS, CARETAKER_WORKER_JOBS="0"))
        # It would wait for somebody to fold what was flushed.
        pods.callback(still.kill)
        other = pods.enter_context(Pod(folder, **IDLE))
        yield environment(CARETAKER_URL=served.url, CARETAKER_STILL_URL=still.url, CARETAKER_OTHER_URL=other.url)
