"""Who may ask a server for what."""

import http.client
import json
import ssl
import subprocess
import urllib.error
import urllib.request

import lancedb
import pytest

import state
from conftest import command, environment
from serving import Serving
from test_compaction import fragments
from test_openapi import DOCUMENT, operations
from test_races import numbers


@pytest.fixture
def keys(caretaker, root, tmp_path):
    """A key of each scope, and the settings of a server that knows both."""
    fragments(root, "docs", [numbers(0, 9)])
    made = {}
    for name in ["read", "admin"]:
        done = caretaker("new-key", name, "--scope", name, "--json")
        made[name] = json.loads(done.stdout)
    file = tmp_path / "keys.toml"
    file.write_text("".join(key["entry"] for key in made.values()))
    assert not any(key["key"] in file.read_text() for key in made.values())
    settings = {"CARETAKER_API_KEYS": str(file), "CARETAKER_STATE_DIR": str(tmp_path / "state")}
    return {name: key["key"] for name, key in made.items()}, settings


def asked(serving, path, key=None, method="GET", body=None, context=None):
    headers = {"x-api-key": key} if key else {}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(serving.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        assert "error" in json.loads(refused.read())
        return refused.code


def test_an_address_that_others_can_reach_is_not_served_without_keys(root):
    fragments(root, "docs", [numbers(0, 9)])
    args = command("serve", root, "--listen", "0.0.0.0:0")
    done = subprocess.run(args, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "new-key" in done.stderr


def test_a_key_may_do_what_its_scope_says_and_who_changed_something_is_written_down(root, keys):
    known, settings = keys
    with Serving(root, **settings) as serving:
        assert asked(serving, "/healthz") == 200
        serving.until(lambda s: asked(s, "/readyz") == 200, "it is never ready")
        for key, status in [(None, 401), ("ck_guess", 401), (known["read"], 200)]:
            assert asked(serving, "/metrics", key) == status
        evaluate = lambda key: asked(serving, "/v1/table/docs/evaluate", key, "POST")
        assert [evaluate(key) for key in (None, known["read"], known["admin"])] == [401, 403, 202]
        for key, status in [(known["read"], 403), (known["admin"], 404)]:
            assert asked(serving, "/v1/jobs/cancel", key, "POST", {"job_id": "none"}) == status
        db = lancedb.connect("db://dev", api_key=known["read"], host_override=serving.url)
        assert isinstance(db.list_jobs(), list)
        with pytest.raises(Exception, match="may look"):
            db.cancel_job("none")
        stranger = lancedb.connect("db://dev", api_key="ck_guess", host_override=serving.url)
        with pytest.raises(Exception, match="401|not known"):
            stranger.list_jobs()
    said = "".join(serving.said)
    changed = [json.loads(line) for line in serving.said if "asked for" in line]
    tried = [("read", 403), ("admin", 202), ("read", 403), ("admin", 404), ("read", 403)]
    assert [(line["key"], line["status"]) for line in changed] == tried
    assert not any(key in said for key in known.values())


def test_no_route_changes_anything_for_a_key_that_may_look_or_answers_without_one(root, keys):
    known, settings = keys
    with Serving(root, **settings) as serving:
        serving.until(lambda s: asked(s, "/readyz") == 200, "it is never ready")
        before = state.files(root)
        for method, path in operations():
            needed = {scope for way in DOCUMENT["paths"][path][method]["security"] for scopes in way.values() for scope in scopes}
            # Also by names that look as if they only looked.
            for name in ["docs", "query", "stats", "list%2Fquery"]:
                at = path.replace("{id}", name).replace("{index}", "stats")
                for at in [at, f"{at}/"] if "{id}" in path else [at]:
                    got = [asked(serving, at, key, method.upper(), {}) for key in (None, "ck_guess", known["read"])]
                    if not needed:
                        assert got[0] == 200
                    elif needed == {"admin"}:
                        assert got == [401, 401, 403], (path, at)
                    else:
                        assert got[:2] == [401, 401] and got[2] not in (401, 403), (path, at)
        for way in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"]:
            assert asked(serving, "/v1/table/docs/drop", known["read"], way) == 403
        assert state.files(root) == before


def test_a_key_comes_in_either_header_and_every_answer_has_the_id_of_its_request(root, keys):
    known, settings = keys
    with Serving(root, **settings) as serving:

        def told(path, **headers):
            request = urllib.request.Request(serving.url + path, headers={k.replace("_", "-"): v for k, v in headers.items()})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status, answer.headers["x-request-id"]
            except urllib.error.HTTPError as refused:
                return refused.code, refused.headers["x-request-id"]

        key = known["read"]
        assert told("/metrics", authorization=f"Bearer {key}", x_request_id="mine") == (200, "mine")
        assert told("/metrics", authorization=f"bearer  {key}")[0] == 200
        for odd in [f"Basic {key}", key, "Bearer", "Bearer ", f"Bearer {key}x"]:
            assert told("/metrics", authorization=odd, x_request_id="mine") == (401, "mine"), odd
        given = [told(path, x_api_key=key) for path in ["/metrics", "/none", "/v1/table/none/facts", "/v1/drain"]]
        assert [status for status, _ in given] == [200, 404, 404, 405]
        assert all(given_id for _, given_id in given) and len({given_id for _, given_id in given}) == 4
        assert told("/metrics", x_api_key=key, x_request_id="x" * 10_000)[1] != "x" * 10_000


def with_certificate(tmp_path):
    """A certificate of this machine, and the settings of a server that has it."""
    certificate, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(made + ["-keyout", private, "-out", certificate], check=True, capture_output=True)
    return certificate, {"CARETAKER_TLS_CERT": str(certificate), "CARETAKER_TLS_KEY": str(private)}


def test_with_a_certificate_it_is_encrypted(root, keys, tmp_path):
    known, settings = keys
    certificate, encrypted = with_certificate(tmp_path)
    with Serving(root, **settings | encrypted) as serving:
        serving.url = serving.url.replace("http:", "https:")
        trusting = ssl.create_default_context(cafile=certificate)
        assert asked(serving, "/metrics", known["read"], context=trusting) == 200
        assert asked(serving, "/metrics", context=trusting) == 401
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY"):
            asked(serving, "/metrics", known["read"])
        serving.url = serving.url.replace("https:", "http:")
        with pytest.raises((OSError, http.client.HTTPException)):
            asked(serving, "/metrics", known["read"])


@pytest.mark.parametrize("broken", ["keys", "certificate", "half"])
def test_a_file_that_is_not_as_it_must_be_is_refused_by_name(root, keys, tmp_path, broken):
    _, settings = keys
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    settings |= {
        "keys": {"CARETAKER_API_KEYS": str(bad)},
        "certificate": {"CARETAKER_TLS_CERT": str(bad), "CARETAKER_TLS_KEY": str(bad)},
        "half": {"CARETAKER_TLS_CERT": str(bad)},
    }[broken]
    args = command("serve", root, "--listen", "127.0.0.1:0")
    done = subprocess.run(args, env=environment(**settings), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and ("bad.pem" in done.stderr or "go together" in done.stderr)
