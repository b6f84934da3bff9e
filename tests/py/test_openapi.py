"""The document of the routes, and what a server does with whatever it allows."""

import client  # first: it quiets the libraries

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error

import remote
from serving import Serving
from test_pod import IDLE
from test_client import EAGER
from test_compaction import fragments
from test_races import numbers

SERVE = Path(__file__).parents[2] / "executor/src/serve"
DOCUMENT = json.loads((SERVE / "openapi.json").read_text())
# It ends the server's work.
NEVER = "/v1/drain"
# Its answer has no end.
ENDLESS = "/v1/fleet/events"
# Written as it comes: most of it is no Arrow at all.
ARROW = "application/vnd.apache.arrow.stream"
EXAMPLES = 6
# After which there is less to ask about.
LAST = ("/drop", "/tags/version", "/tags/delete")
TAKING = ("/disable_rte", "/unset_lsm_write_spec", "/v1/table/{id}/drop")


@schemathesis.serializer(ARROW)
def arrow(context, value):
    return {"data": value if isinstance(value, bytes) else str(value).encode()}


def operations():
    for path, item in DOCUMENT["paths"].items():
        for method in sorted(item.keys() & {"get", "post"}):
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


@pytest.fixture(scope="module", params=["empty", "small", "lsm"])
def served(request, tmp_path_factory):
    """A server without keys, of a database without tables, with one, or with one whose rows are in shards too."""
    root = tmp_path_factory.mktemp("openapi") / "db"
    root.mkdir()
    if request.param == "small":
        fragments(root, "docs", [numbers(at, at + 9) for at in range(0, 60, 10)])
    settings = IDLE | {"CARETAKER_WORKER_JOBS": "0"} if request.param == "lsm" else EAGER
    with Serving(root, **settings, CARETAKER_STATE_DIR=str(root.parent / "state")) as serving:
        if request.param == "lsm":
            waiting(serving)
        yield serving
        assert serving.process.poll() is None and serving.ask("/healthz") == "ok\n"
    assert not [line for line in serving.said if "panick" in line]


def waiting(serving):
    """A table with rows in its base, in an SSTable and in a memtable."""
    table = remote.create(remote.connect(serving.url), "docs", [(1, 1)])
    remote.upsert(table, [(2, 1)])
    table.flush_lsm()
    remote.upsert(table, [(3, 1)])
    return table


def answered(serving, method, path, body=None, key=None):
    """Status, headers, and the answer, which is as the document says: a refusal too."""
    headers = {"content-type": "application/json"} | ({"x-api-key": key} if key else {})
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    request = urllib.request.Request(serving.url + path[1], data if method == "post" else None, headers, method=method.upper())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, found, said = answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as refused:
        status, found, said = refused.code, refused.headers, refused.read()
    known = DOCUMENT["paths"][path[0]][method]["responses"]
    of = known.get(str(status)) or known["default"] if status >= 400 else known[str(status)]
    of = DOCUMENT["components"]["responses"]["Refused"] if "$ref" in of else of
    assert {name for name in of["headers"] if name in found} == of["headers"].keys(), (path, found)
    content = of.get("content", {})
    if not content:
        assert not said, (path, said)
    else:
        kind = found["content-type"].partition(";")[0]
        assert kind in content, (path, kind)
        if kind == "application/json":
            schema = content[kind]["schema"] | {"components": DOCUMENT["components"]}
            Draft202012Validator(schema).validate(json.loads(said))
    return status, found, said


def test_what_it_answers_is_as_the_document_says(root):
    root.mkdir()
    with Serving(root, **IDLE, CARETAKER_WORKER_JOBS="0") as serving:
        waiting(serving)
        assert answered(serving, "post", ("/v1/table/{id}/create_index", "/v1/table/docs/create_index"),
                        {"column": "n", "index_type": "BTREE"})[0] == 200
        table = "/v1/table/docs"
        job = json.loads(serving_jobs(serving))["jobs"][0]["job_id"]
        bodies = {
            "tags/create": {"tag": "a", "version": 1}, "tags/update": {"tag": "a", "version": 1}, "tags/version": {"tag": "a"},
            "tags/delete": {"tag": "a"}, "query": {"k": 3}, "explain_plan": {"query": {"k": 3}}, "analyze_plan": {"k": 3},
            "update": {"updates": [["v", "'x'"]]}, "delete": {"predicate": "id = 1"}, "jobs/describe": {"job_id": job},
            "jobs/cancel": {"job_id": job}, "jobs/pause": {"job_id": job}, "jobs/resume": {"job_id": job},
            "jobs/query_events": {"job_id": job}, "add_columns": {"new_columns": [{"name": "more", "expression": "cast(1 as int)"}]},
            "drop_columns": {"columns": ["more"]}, "alter_columns": {"alterations": [{"path": "v", "rename": "v"}]},
            "update_field_metadata": {"updates": [{"path": "v", "metadata": {"a": "b"}}]},
            "set_lsm_write_spec": {"sharding": {"mode": "unsharded"}},
        }  # fmt: skip
        order = sorted(operations(), key=lambda one: (one[1].endswith(LAST), one[1].endswith(TAKING), one[1] == NEVER))
        seen = {}
        for method, path in order:
            if path == ENDLESS:
                continue
            at = path.replace("/namespace/{id}", "/namespace/$").replace("{id}", "docs").replace("{index}", "n_idx")
            body = next((body for end, body in bodies.items() if path.endswith(end)), None)
            seen[path] = answered(serving, method, (path, at), body)[0]
        # No rows come with these, the index is not built, the spec is there and keeps columns from being computed, a table
        # is not renamed, and a job that was cancelled is not paused.
        refused = {path.rpartition("/")[2] for path, status in seen.items() if status >= 400}
        assert refused <= {"create", "insert", "merge_insert", "rename", "restore", "stats", "prewarm", "drop", "enable_rte",
                           "set_lsm_write_spec", "create_index", "compact_rte", "compact_lsm", "compact", "readyz",
                           "disable_rte", "unset_lsm_write_spec", "pause", "policy", "add_columns", "drop_columns", "evaluate"}, seen  # fmt: skip
        assert seen["/v1/table/{id}/query"] == seen["/v1/table/{id}/get_lsm_stats"] == 200


def serving_jobs(serving):
    return answered(serving, "post", ("/v1/jobs/list", "/v1/jobs/list"))[2]


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


@pytest.mark.parametrize("method, path", [one for one in operations() if one[1] not in (NEVER, ENDLESS)])
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
