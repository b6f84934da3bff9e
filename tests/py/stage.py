"""A debug build held at a place of `executor/src/fault.rs`, or with another clock (`stage.c`)."""

import functools
import json
import subprocess
import tempfile
from pathlib import Path

from conftest import command, environment

SOURCE = Path(__file__).with_name("stage.c")
HOUR = 3600
DAY = 24 * HOUR


@functools.cache
def library():
    """The library, built once a session; who can link the binary has a C compiler."""
    built = Path(tempfile.mkdtemp(prefix="stage")) / "stage.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-fno-builtin", "-o", built, SOURCE, "-ldl"], check=True
    )
    return str(built)


def at(seconds):
    """Settings of a process whose clock is `seconds` ahead of the others' (or behind)."""
    return {"LD_PRELOAD": library(), "STAGE_CLOCK_SECS": str(int(seconds))}


def held_at(place):
    """Settings of a process that is held where it first comes by `place`, until its input ends."""
    return {"CARETAKER_HOLD_AT": place}


class Held:
    """`caretaker run` held where it first comes by `place`, from `with` until `release`."""

    def __init__(self, root, place, *args, **settings):
        self.root, self.place = root, place
        self.args = args or ("run", root, "--json")
        self.settings = environment(**settings | held_at(place))

    def __enter__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command(*self.args), env=self.settings, text=True, **pipes)
        first = self.process.stdout.readline()
        if first != "held\n":
            said = first + "".join(self.process.communicate())
            raise AssertionError(f"`{self.place}` was never passed: {said}")
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()

    def release(self, exit=0):
        """Lets it go on to its end, which must be `exit`; returns its jobs."""
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == exit, f"exit code {self.process.returncode}: {out}{err}"
        return jobs(out)


def jobs(said):
    """The ended jobs in what `run --json` said."""
    reports = [json.loads(line) for line in said.splitlines() if line != "held"]
    return [job for report in reports for job in report.get("jobs", [])]
