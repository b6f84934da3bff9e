"""The LanceDB client, unchanged, asks a server for its jobs."""

import json
import urllib.error
import urllib.request

import lancedb
import pytest

from serving import Serving
from test_compaction import fragments
from test_races import numbers

EAGER = {"COMPACTION_SMALL_FRAGMENTS_MIN": "2", "CLEANUP_MIN_VERSION_AGE_SECS": "1"}


@pytest.fixture
def served(root, tmp_path):
    """A server whose one table was compacted, and a client of it."""
    fragments(root, "docs", [numbers(at, at + 9) for at in range(0, 60, 10)])
    with Serving(root, **EAGER, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        serving.until_value("caretaker_jobs_total", 1.0, type="compact", outcome="done")
        yield serving, lancedb.connect("db://dev", api_key="none", host_override=serving.url)


def post(serving, path, body):
    request = urllib.request.Request(serving.url + path, json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read()), answer.headers
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read()), refused.headers


def test_list_jobs_and_open_job_show_what_was_done(served):
    _, db = served
    done = {job.job_type: job for job in db.list_jobs()}
    compact = done["compact"]
    assert (compact.table, compact.state) == ("docs", "finished")
    job = db.open_job(compact.job_id)
    assert job.status() == "finished"
    job.refresh()
    assert job.spec["job"] == "compact" and job.result["fragments_removed"] == 6
    assert job.failure is None
    events = job.events()
    assert events.column("state").to_pylist() == ["created", "claim", "claim_complete", "succeeded"]
    assert events.schema.field("rows_processed").type == "uint64"
    assert job.events(limit=2).num_rows == 2


def test_a_job_that_has_ended_can_be_cancelled_and_changes_nothing(served):
    serving, db = served
    id = next(job.job_id for job in db.list_jobs() if job.job_type == "compact")
    assert db.cancel_job(id) is True and db.cancel_job("nobody") is False
    assert db.open_job(id).status() == "finished"
    with pytest.raises(Exception, match="409.*has ended"):
        db.pause_job(id)
    assert db.resume_job(id) == "not_paused"


def test_pages_filters_and_refusals_are_as_the_client_expects_them(served):
    serving, _ = served
    status, page, headers = post(serving, "/v1/jobs/list", {"limit": 1})
    assert (status, headers["phalanx-version"]) == (200, "0.3.0")
    assert len(page["jobs"]) == 1 and page["page_token"] == page["jobs"][0]["job_id"]
    status, rest, _ = post(serving, "/v1/jobs/list", {"page_token": page["page_token"]})
    assert page["page_token"] not in [job["job_id"] for job in rest["jobs"]]
    assert "page_token" not in rest
    found = post(serving, "/v1/jobs/list", {"state": "done", "job_type": "compact"})[1]["jobs"]
    assert [job["state"] for job in found] == ["succeeded"]
    assert post(serving, "/v1/jobs/list", {"table_name": "none"})[1] == {"jobs": []}
    for path, body, status, code in [
        ("describe", {"job_id": "nobody"}, 404, 10),
        ("describe", {}, 400, 13),
        ("list", {"state": "lost"}, 400, 13),
        ("query_events", {}, 400, 13),
        ("query_events", {"job_id": "nobody"}, 404, 10),
    ]:
        answered = post(serving, f"/v1/jobs/{path}", body)
        assert (answered[0], answered[1]["code"]) == (status, code), (path, body)
