"""The document of the routes, and what a server does with whatever it allows."""

import json
import re
import urllib.request
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error

from serving import Serving
from test_client import EAGER
from test_compaction import fragments
from test_races import numbers

SERVE = Path(__file__).parents[2] / "executor/src/serve"
DOCUMENT = json.loads((SERVE / "openapi.json").read_text())
# It ends the server's work.
NEVER = "/v1/drain"
# Written as it comes: most of it is no Arrow at all.
ARROW = "application/vnd.apache.arrow.stream"
EXAMPLES = 6


@schemathesis.serializer(ARROW)
def arrow(context, value):
    return {"data": value if isinstance(value, bytes) else str(value).encode()}


def operations():
    for path, item in DOCUMENT["paths"].items():
        for method in item.keys() & {"get", "post"}:
            yield method, path


def test_it_is_a_valid_document_with_each_route_once():
    validate(DOCUMENT)
    ids = [DOCUMENT["paths"][path][method]["operationId"] for method, path in operations()]
    assert len(set(ids)) == len(ids)
    assert all("security" in DOCUMENT["paths"][path][method] for method, path in operations())


def routes_of_the_source():
    """Paths as the handlers are mounted; those of a loop over names are put together."""
    pattern = re.compile(r'(?:\.route\(|posted\(\w[^"]*|got\(\w[^"]*)"(/[^"]+)"')
    looped = re.compile(r'for (?:name|\(name, names\)) in \[(.*?)\] \{\s(.*?)\n    \}', re.S)
    for file in SERVE.rglob("*.rs"):
        text = file.read_text().partition("#[cfg(test)]")[0]
        for names, body in looped.findall(text):
            for path in re.findall(r'format!\("(/[^"]+)"\)', body):
                path = path.replace("{{", "{").replace("}}", "}")
                yield from (path.replace("{name}", name) for name in re.findall(r'"(\w+)"', names))
        yield from (path for path in pattern.findall(text) if "{{" not in path)


def test_every_route_of_the_source_is_in_it_and_the_other_way_round():
    assert set(routes_of_the_source()) - {"{path}/"} == set(DOCUMENT["paths"])


@pytest.fixture(scope="module", params=["empty", "small"])
def served(request, tmp_path_factory):
    """A server without keys, of a database without tables or with one, which has an index and a tag."""
    root = tmp_path_factory.mktemp("openapi") / "db"
    root.mkdir()
    if request.param == "small":
        fragments(root, "docs", [numbers(at, at + 9) for at in range(0, 60, 10)])
    state = str(root.parent / "state")
    with Serving(root, **EAGER, CARETAKER_STATE_DIR=state) as serving:
        yield serving
        assert serving.process.poll() is None and serving.ask("/healthz") == "ok\n"
    assert not [line for line in serving.said if "panick" in line]


def test_it_is_served_and_each_of_its_routes_is_there(served):
    assert json.loads(served.ask("/openapi.json")) == DOCUMENT
    missing = []
    for method, path in operations():
        if path == NEVER:
            continue
        # A method that no route has: one that is there says so, one that is not is not found.
        address = path.replace("{id}", "none").replace("{index}", "none")
        request = urllib.request.Request(served.url + address, method="PATCH")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        if refused.value.code != 405:
            missing.append(path)
    assert not missing


@pytest.mark.parametrize("method, path", [one for one in operations() if one[1] != NEVER])
def test_whatever_it_allows_is_answered_or_refused_and_never_fails(served, method, path):
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    operation = schema[path][method.upper()]
    quick = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @quick
    @given(case=operation.as_strategy())
    def fuzz(case):
        # Mostly the table that is there: of others there is little to say.
        for names in [{}, {"id": "docs"}]:
            if "{id}" in path and names and "namespace" not in path:
                case.path_parameters = {**case.path_parameters, **names}
            response = case.call(base_url=served.url, timeout=60)
            # It may be asked for what needs a registry or a table that is busy: that is no failure.
            if response.status_code != 503:
                case.validate_response(response, checks=[not_a_server_error])

    fuzz()
