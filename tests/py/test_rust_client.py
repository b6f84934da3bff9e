"""LanceDB's client for Rust against a server of ours: each test in `tests/client` is one here."""

import client  # first: it quiets the libraries

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clients import servers

SOURCE = Path(__file__).parent.parent / "client" / "src" / "main.rs"
NAMES = re.findall(r"^    \w+::(\w+),$", SOURCE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """How each test ended, and what it said. They wait more than they work, so several run at once."""
    with servers(tmp_path_factory) as environment, ThreadPoolExecutor(6) as pool:
        run = lambda name: subprocess.run(
            [os.environ["CLIENT_TESTS"], name], env=environment, capture_output=True, text=True, timeout=120
        )
        return dict(zip(NAMES, pool.map(run, NAMES)))


@pytest.mark.parametrize("name", NAMES)
def test_rust_client(results, name):
    assert results[name].returncode == 0, results[name].stdout + results[name].stderr
