"""Who may ask a server for what."""

import http.client
import json
import ssl
import subprocess
import urllib.error
import urllib.request

import lancedb
import pytest

from conftest import command, environment
from serving import Serving
from test_compaction import fragments
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
