"""LanceDB's client for Node.js against a server of ours: each test in `tests/js` is one here."""

import client  # first: it quiets the libraries

import re
import subprocess
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from clients import servers

FILES = sorted((Path(__file__).parent.parent / "js" / "test").glob("*.test.mjs"))
NAMES = [name for file in FILES for name in re.findall(r'^ *test\("(.+)", ', file.read_text(), re.MULTILINE)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Why each test failed: nothing, if it did not."""
    report = tmp_path_factory.mktemp("node") / "report.xml"
    how = ["--test-concurrency=2", "--test-reporter=junit", f"--test-reporter-destination={report}"]
    with servers(tmp_path_factory) as environment:
        done = subprocess.run(
            ["node", "--test", *how, *map(str, FILES)], env=environment, capture_output=True, text=True, timeout=300
        )
    cases = xml.parse(report).iter("testcase")
    found = {case.get("name"): [failure.text for failure in case.findall("failure")] for case in cases}
    assert found.keys() == set(NAMES), f"{found}\n{done.stdout}{done.stderr}"
    return found


@pytest.mark.parametrize("name", NAMES)
def test_node(results, name):
    assert not results[name], "\n".join(results[name])
