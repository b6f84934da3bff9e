"""The fleet page: what it is told, and what people see and do on it, in a real browser."""

import client  # first: it quiets the libraries

import json
import os
import re
import shutil
import signal
import threading
import urllib.error
import urllib.request
from pathlib import Path

import lance
import pytest
from playwright.sync_api import expect, sync_playwright

import remote
from conftest import table_path
from remote import MINUTE, Pod
from serving import Serving
from test_client import EAGER
from test_compaction import fragments
from test_keys import keys  # noqa: F401  (a fixture)
from test_pod import IDLE
from test_races import numbers

WEB = Path(__file__).parents[2] / "web"
AXE = WEB / "node_modules/axe-core/axe.min.js"
SHOTS = Path(os.environ.get("SCREENSHOTS", WEB / "test/artefacts"))
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
HOSTILE = "<img src=x onerror=alert(1)>"
WIDTHS = {"phone": 390, "tablet": 820, "wide": 1440}
expect.set_options(timeout=MINUTE * 1_000)


def get(serving, path, **headers):
    request = urllib.request.Request(serving.url + path, headers=headers)
    return urllib.request.urlopen(request, timeout=MINUTE)


def fleet(serving, query=""):
    return json.loads(serving.ask(f"/v1/fleet{query}"))


def words(serving):
    return {table["table"]: table["word"] for table in fleet(serving)["tables"]}


class Events:
    """The stream of a fleet, event by event."""

    def __init__(self, serving, query=""):
        self.answer = get(serving, f"/v1/fleet/events{query}")
        assert self.answer.headers["content-type"] == "text/event-stream"

    def next(self):
        data = []
        for line in self.answer:
            line = line.decode().rstrip("\n")
            if line.startswith("data:"):
                data.append(line[5:].strip())
            elif not line and data:
                return json.loads("\n".join(data))
        return None

    def until(self, done):
        while True:
            event = self.next()
            assert event is not None, "the stream ended"
            if done(event):
                return event


# ------------------------------------------------------------------------------------ what it is told


def test_the_stream_tells_all_first_and_then_what_changes(root, tmp_path):
    fragments(root, "docs", [numbers(0, 9)])
    fragments(root, "quiet", [numbers(0, 9)])
    with Serving(root, **IDLE, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        serving.until(lambda s: set(words(s).values()) == {"idle"}, "it comes to rest")
        events = Events(serving)
        first = events.next()
        assert {table["table"] for table in first["tables"]} == {"docs", "quiet"}
        assert first["tables_total"] == 2 and first["words"] == {"idle": 2} and not first["away"]
        version = first["tables"][0]["seen"]["version"]
        lance.write_dataset(numbers(10, 19), str(table_path(root, "docs")), mode="append")
        changed = events.until(lambda event: event["tables"])
        assert [table["table"] for table in changed["tables"]] == ["docs"]
        assert changed["tables"][0]["seen"]["version"] == version + 1
        shutil.rmtree(table_path(root, "quiet"))
        assert events.until(lambda event: event["gone"])["gone"] == ["quiet"]


def test_tables_are_found_by_name_the_worst_come_first_and_an_answer_has_a_limit(root, tmp_path):
    for name in ["a1", "a2", "b1"]:
        fragments(root, name, [numbers(0, 9)])
    broken = table_path(root, "b2")
    shutil.copytree(table_path(root, "b1"), broken)
    for manifest in (broken / "_versions").iterdir():
        manifest.write_bytes(b"no manifest")
    with Serving(root, **IDLE, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        serving.until(lambda s: words(s) == {"a1": "idle", "a2": "idle", "b1": "idle", "b2": "failed"}, "all are looked at")
        assert [table["table"] for table in fleet(serving)["tables"]] == ["b2", "a1", "a2", "b1"]
        assert [table["table"] for table in fleet(serving, "?find=A&limit=1")["tables"]] == ["a1"]
        assert fleet(serving, "?find=A&limit=1")["tables_found"] == 2
        assert fleet(serving)["tables"][0]["failing"]["why"]
        for limit in ["0", "10001", "x", "-1"]:
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(serving, f"/v1/fleet?limit={limit}")
            assert refused.value.code == 400


def test_web_03_words_tell_the_truth(root, tmp_path):
    for name in ["idle", "off", "failed"]:
        fragments(root, name, [numbers(0, 9)])
    lance.dataset(str(table_path(root, "off"))).update_config({"caretaker.paused": "true"})
    for manifest in (table_path(root, "failed") / "_versions").iterdir():
        manifest.write_bytes(b"no manifest")
    with Serving(root, **IDLE, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        wanted = {"idle": "idle", "off": "disabled", "failed": "failed"}
        serving.until(lambda s: words(s) == wanted, f"words are {wanted}")


def test_a_stream_ends_with_the_server_and_only_so_many_follow_it(root, tmp_path):
    fragments(root, "docs", [numbers(0, 9)])
    with Serving(root, **IDLE, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        streams = [Events(serving) for _ in range(64)]
        with pytest.raises(urllib.error.HTTPError) as refused:
            Events(serving)
        assert refused.value.code == 429
        assert all(stream.next() for stream in streams)
        ended = []
        listener = threading.Thread(target=lambda: ended.append(list(iter(streams[0].next, None))))
        listener.start()
    listener.join(timeout=MINUTE)
    assert ended, "the stream goes on"


def test_who_holds_the_space_of_a_table_adds_up_to_its_folder(root, tmp_path):
    path = fragments(root, "docs", [numbers(at, at + 9) for at in range(0, 50, 10)])
    lance.dataset(path).tags.create("kept", 2)
    with Serving(root, **IDLE, CARETAKER_WORKER_JOBS="0", CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        shown = json.loads(serving.ask("/v1/table/docs/space"))
    files = [file for file in Path(path).rglob("*") if file.is_file()]
    assert sum(row["bytes"] for row in shown["rows"]) == sum(file.stat().st_size for file in files)
    assert "no minimum age" in shown["holders"]["refused"]
    assert any("tag `kept`" in row["who"] for row in shown["rows"])


def test_pages_need_no_key_and_may_ask_nobody_but_their_server(root, keys):  # noqa: F811
    known, settings = keys
    with Serving(root, **settings) as serving:
        for path in ["/", "/preview/", "/icon.svg"]:
            answer = get(serving, path)
            rules = answer.headers["content-security-policy"]
            assert answer.status == 200 and "default-src 'none'" in rules and "unsafe-inline" not in rules
        tag = get(serving, "/").headers["etag"]
        with pytest.raises(urllib.error.HTTPError) as same:
            get(serving, "/", **{"if-none-match": tag})
        assert same.value.code == 304
        assert get(serving, "/", **{"accept-encoding": "gzip, zstd"}).headers["content-encoding"] == "zstd"
        asset = re.search(r'src="\./(assets/[^"]+)"', get(serving, "/").read().decode())[1]
        assert "immutable" in get(serving, f"/{asset}").headers["cache-control"]
        assert get(serving, f"/preview/{asset}").status == 200
        for path in ["/v1/fleet", "/v1/fleet/events", "/v1/table/docs/space"]:
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(serving, path)
            assert refused.value.code == 401
            assert get(serving, path, **{"x-api-key": known["read"]}).status == 200


def test_a_page_of_another_origin_changes_nothing_where_nobody_is_asked_for_a_key(root, tmp_path):
    fragments(root, "docs", [numbers(0, 9)])
    with Serving(root, **IDLE, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        serving.until(lambda s: words(s), "it has looked")
        pause = serving.url + "/v1/table/docs/pause"
        for origin, status in [("http://evil.example", 403), ("null", 403), (serving.url, 200), (None, 200)]:
            headers = {"origin": origin} if origin else {}
            request = urllib.request.Request(pause, b"", headers, method="POST")
            try:
                found = urllib.request.urlopen(request, timeout=MINUTE).status
            except urllib.error.HTTPError as refused:
                found = refused.code
            assert found == status, origin


# ------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    """A page; what the browser complains about fails the test, but for answers that are refusals."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, timezone_id="Europe/Paris")
    page = context.new_page()
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("dialog", lambda dialog: page.complaints.append(f"dialog: {dialog.message}"))
    page.on(
        "console",
        lambda message: message.type == "error"
        and "Failed to load resource" not in message.text
        and page.complaints.append(message.text),
    )
    yield page
    complaints = page.complaints
    context.close()
    assert not complaints


def row(page, name):
    return page.locator("#tables tbody").filter(has=page.get_by_role("button", name=name, exact=True))


def state(page, name):
    return row(page, name).locator(".pill").first


def open_row(page, name):
    row(page, name).get_by_role("button", name=name, exact=True).click()
    return row(page, name).locator(".detail")


def test_a_fold_is_seen_while_it_happens(root, tmp_path, page):
    root.mkdir()
    eager = {"WAL_COMPACT_TRIGGER_COUNT": "3", "WAL_MAX_DATA_AGE_SECS": "3600", "RETIRE_DELAY_SECS": "0"}
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    with Pod(root, **eager) as pod:
        table = remote.create(remote.connect(pod.url), "orders", [(1, 1)])
        page.goto(pod.url)
        expect(page.locator("#live")).to_have_text("Live")
        expect(row(page, "orders")).to_be_visible()
        for turn in range(3):
            remote.upsert(table, [(turn, turn), (7, turn)])
            table.flush_lsm()
        job = page.locator("#jobs li").filter(has_text="memwal_compaction").first
        expect(job).to_contain_text("orders")
        expect(job.locator(".pill")).to_have_text("done")
        expect(page.locator("#decisions li").filter(has_text="memwal_compaction").first).to_contain_text("3 >= 3")
        expect(row(page, "orders").locator("[data-column='Not folded']")).to_contain_text(re.compile("^0"))
        expect(state(page, "orders")).to_have_text("idle")
        detail = open_row(page, "orders")
        detail.get_by_role("button", name="Why, and why not of orders").click()
        expect(detail.locator(".more table")).to_contain_text("Fold")
        assert asked and all(url.startswith(pod.url) for url in asked), "it asks nobody else"


def test_work_is_asked_for_stopped_paused_and_cancelled(root, tmp_path, page):
    fragments(root, "docs", [numbers(at, at + 9) for at in range(0, 60, 10)])
    settings = EAGER | {"CARETAKER_WORKER_JOBS": "0", "CARETAKER_STATE_DIR": str(tmp_path / "state")}
    with Serving(root, **settings) as serving:
        page.goto(serving.url)
        job = page.locator("#jobs li").filter(has_text="docs").first
        expect(job.locator(".pill")).to_have_text("waits")
        job.get_by_role("button", name=re.compile("^Cancel")).click()
        expect(page.locator("#jobs li .pill").filter(has_text="cancelled").first).to_be_visible()
        detail = open_row(page, "docs")
        detail.get_by_role("button", name="Pause docs").click()
        expect(state(page, "docs")).to_have_text("disabled")
        assert lance.dataset(str(table_path(root, "docs"))).config()["caretaker.paused"] == "true"
        detail.get_by_role("button", name="Resume docs").click()
        expect(state(page, "docs")).not_to_have_text("disabled")
        detail.get_by_role("button", name="Evaluate now docs").click()
        expect(page.locator("#said")).to_have_text("Asked to evaluate `docs`.")
        detail.get_by_role("button", name="Who holds its space of docs").click()
        expect(detail.locator(".space")).to_contain_text("the current version")


def test_keys_are_asked_for_and_say_what_may_be_done(root, keys, page):  # noqa: F811
    known, settings = keys
    with Serving(root, **settings) as serving:
        page.goto(serving.url)
        dialog = page.locator("#ask")
        expect(dialog).to_be_visible()
        page.get_by_label("Key", exact=True).fill(known["read"])
        dialog.get_by_role("button", name="Use it").click()
        expect(row(page, "docs")).to_be_visible()
        detail = open_row(page, "docs")
        detail.get_by_role("button", name="Pause docs").click()
        expect(page.locator("#notice")).to_contain_text("refused")
        page.get_by_role("button", name="Key…").click()
        page.get_by_label("Key", exact=True).fill(known["admin"])
        dialog.get_by_role("button", name="Use it").click()
        expect(page.locator("#live")).to_have_text("Live")
        if not detail.is_visible():
            detail = open_row(page, "docs")
        detail.get_by_role("button", name="Pause docs").click()
        expect(state(page, "docs")).to_have_text("disabled")
        assert known["admin"] not in page.content()


def test_an_agent_that_does_not_answer_is_shown_as_such_with_the_age_of_what_is_shown(root, tmp_path, page):
    fragments(root, "docs", [numbers(0, 9)])
    with Serving(root, **IDLE, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        page.goto(serving.url)
        expect(page.locator("#live")).to_have_text("Live")
        serving.process.send_signal(signal.SIGSTOP)
        try:
            expect(page.locator("#live")).to_have_text(re.compile(r"^No answer: all of this is \d+ s old"))
        finally:
            serving.process.send_signal(signal.SIGCONT)
        expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#live")).to_have_text(re.compile("^No answer"))
    expect(row(page, "docs")).to_be_visible()


def test_web_02_names_and_errors_are_text(root, tmp_path, page):
    path = fragments(root, HOSTILE, [numbers(0, 9)])
    for manifest in (Path(path) / "_versions").iterdir():
        manifest.write_bytes(b"</script><script>alert(2)</script>")
    fragments(root, 'a"><b>x', [numbers(0, 9)])
    with Serving(root, **IDLE, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        page.goto(serving.url)
        for name in [HOSTILE, 'a"><b>x']:
            expect(row(page, name)).to_be_visible()
            open_row(page, name)
        expect(state(page, HOSTILE)).to_have_text("failed")
        assert page.locator("main img, main b, main script").count() == 0


def test_it_is_used_by_keyboard_alone(root, tmp_path, page):
    fragments(root, "docs", [numbers(0, 9)])
    with Serving(root, **IDLE, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        page.goto(serving.url)
        expect(row(page, "docs")).to_be_visible()
        page.keyboard.press("/")
        expect(page.locator("#find")).to_be_focused()
        page.keyboard.type("nothing like it")
        expect(row(page, "docs")).to_have_count(0)
        page.locator("#find").fill("")
        name = row(page, "docs").get_by_role("button", name="docs", exact=True)
        name.focus()
        page.keyboard.press("Enter")
        expect(row(page, "docs").locator(".detail")).to_be_visible()
        expect(name).to_be_focused()


def test_the_preview_opens_with_the_facts_of_a_table(root, tmp_path, page):
    fragments(root, "docs", [numbers(at, at + 9) for at in range(0, 60, 10)])
    with Serving(root, **IDLE, CARETAKER_STATE_DIR=str(tmp_path / "state")) as serving:
        page.goto(serving.url)
        detail = open_row(page, "docs")
        detail.get_by_role("link", name="Preview a policy").click()
        page.wait_for_url(re.compile("/preview/"))
        expect(page.get_by_text("docs").first).to_be_visible()
        expect(page.locator("#facts")).to_have_value(re.compile('"table": ?"docs"'))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible_and_fits_every_width(root, tmp_path, page, scheme):
    assert AXE.exists(), "run `make wasm` first"
    fragments(root, "orders", [numbers(at, at + 9) for at in range(0, 60, 10)])
    fragments(root, "customers", [numbers(0, 9)])
    lance.dataset(str(table_path(root, "customers"))).update_config({"caretaker.paused": "true"})
    for manifest in (Path(fragments(root, "broken", [numbers(0, 9)])) / "_versions").iterdir():
        manifest.write_bytes(b"no manifest")
    settings = EAGER | {"CARETAKER_WORKER_JOBS": "0", "CARETAKER_STATE_DIR": str(tmp_path / "state")}
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.emulate_media(color_scheme=scheme)
    with Serving(root, **settings) as serving:
        page.goto(serving.url)
        expect(state(page, "broken")).to_have_text("failed")
        expect(page.locator("#jobs li").first).to_be_visible()
        open_row(page, "orders")
        for name, width in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name}: it scrolls sideways"
            page.screenshot(path=SHOTS / f"fleet-{scheme}-{name}.png", full_page=True)
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] })")
        serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert not serious, [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious]
