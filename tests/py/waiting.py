"""Waits for what nothing tells of."""

import time

POLL = 0.1
MINUTE = 60


def until(done, what, patience=MINUTE):
    """Asks again and again until `done()` gives something, which is returned. `what`: what is missing then, a
    sentence or a function that makes one."""
    end = time.monotonic() + patience
    while not (found := done()):
        assert time.monotonic() < end, what if isinstance(what, str) else what()
        time.sleep(POLL)
    return found
