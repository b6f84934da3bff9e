"""Runs the binary named by CARETAKER on tables of the real client."""

import os
import subprocess
from pathlib import Path

import pytest

import postgres

# Passes here have no readers that opened the table before them, except where a test says so.
# Each run begins without a history: tables of one test are not those of another.
SETTINGS = {"RETIRE_DELAY_SECS": "0", "CARETAKER_STATE_DIR": "none"}


def pytest_configure(config):
    if not os.access(os.environ.get("CARETAKER", ""), os.X_OK):
        raise pytest.UsageError("set CARETAKER to the caretaker binary, as `make real` does")


def command(*args):
    return [os.environ["CARETAKER"], *map(str, args)]


def environment(**settings):
    return {**os.environ, **SETTINGS, **settings}


@pytest.fixture(scope="session")
def caretaker():
    """Runs `caretaker <args>`; `exit` is the exit code it must end with."""

    def run(*args, exit=0, **settings):
        done = subprocess.run(command(*args), env=environment(**settings), capture_output=True, text=True, timeout=300)
        said = f"caretaker {' '.join(map(str, args))}\n{done.stdout}{done.stderr}"
        assert done.returncode == exit, f"exit code {done.returncode} instead of {exit}: {said}"
        return done

    return run


@pytest.fixture
def root(tmp_path):
    return tmp_path / "db"


def table_path(root, name):
    return Path(root) / f"{name}.lance"


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL; whoever stops it starts it again."""
    running = postgres.Server()
    yield running
    running.close()


@pytest.fixture
def database(server):
    """A fresh database of it."""
    if not server.runs():
        server.start()
    return server.database()
