"""A request that is refused before its body is read is refused in words, on a connection that goes on."""

import http.client
import json

import pytest

from remote import MINUTE, Pod

LARGE = b"x" * (8 << 20)


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    with Pod(tmp_path_factory.mktemp("db")) as pod:
        yield pod


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/nothing", 404),
        ("POST", "/metrics", 405),
        ("POST", "/v1/table/t/evaluate", 404),
        ("POST", "/v1/table/t/insert/", 400),
        ("POST", "/v1/jobs/describe", 413),
        ("GET", "/healthz", 200),
    ],
)
def test_a_body_that_nobody_wants_is_read_on(pod, method, path, status):
    connection = http.client.HTTPConnection("127.0.0.1", pod.port, timeout=MINUTE)
    connection.connect()
    # Nobody connects again unnoticed.
    connection.auto_open = 0
    connection.request(method, path, body=LARGE)
    answer = connection.getresponse()
    assert answer.status == status, answer.read()
    answer.read()
    connection.request("POST", "/v1/jobs/list", body=b"{}")
    assert json.load(connection.getresponse())["jobs"] == []
