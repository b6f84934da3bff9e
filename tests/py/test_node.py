"""LanceDB's client for Node.js against a server of ours: each test in `tests/js` is one here."""

import client  # first: it quiets the libraries

import re
import subprocess
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from conftest import environment
from remote import Pod
from test_pod import IDLE

JS = Path(__file__).parent.parent / "js"
FILES = sorted(JS.glob("test/*.test.mjs"))
NAMES = [name for file in FILES for name in re.findall(r'^ *test\("(.+)", ', file.read_text(), re.MULTILINE)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What became of each test: nothing, or why it failed."""
    report = tmp_path_factory.mktemp("node") / "report.xml"
    roots = [tmp_path_factory.mktemp(name) for name in ("served", "still")]
    # On the one that stands still nobody works jobs off.
    with Pod(roots[0], **IDLE) as pod, Pod(roots[1], **IDLE, CARETAKER_WORKER_JOBS="0") as still:
        urls = {"CARETAKER_URL": pod.url, "CARETAKER_STILL_URL": still.url}
        how = ["--test-concurrency=2", "--test-reporter=junit", f"--test-reporter-destination={report}"]
        done = subprocess.run(
            ["node", "--test", *how, *map(str, FILES)],
            env=environment(**urls), capture_output=True, text=True, timeout=300,
        )
    cases = xml.parse(report).iter("testcase")
    found = {case.get("name"): [failure.text for failure in case.findall("failure")] for case in cases}
    assert found.keys() == set(NAMES), f"{found}\n{done.stdout}{done.stderr}"
    return found


@pytest.mark.parametrize("name", NAMES)
def test_node(results, name):
    assert not results[name], "\n".join(results[name])
