"""What a cleanup must leave: every row, the files that somebody needs, and those of others."""

import json
import os

import lance
import pyarrow as pa
import pytest

import agree
import check
import client
import state
from conftest import table_path
from stage import DAY, HOUR, at
from tables import ID, Build
from test_base import FOLD, REMAP, TIDY
from test_compaction import fragments
from test_races import numbers

# All versions but the newest may go: by a clock that is an hour ahead they are old enough.
EAGER = {
    "CLEANUP_MIN_VERSION_AGE_SECS": "1",
    "CLEANUP_INITIAL_VERSION": "1",
    "CLEANUP_VERSION_INTERVAL": "1",
}


def cleaned(caretaker, root, ahead=HOUR, **settings):
    """A run with a clock that is `ahead`; the reports of its cleanups."""
    said = caretaker("run", root, "--json", **EAGER | at(ahead) | settings).stdout
    tables = [json.loads(line) for line in said.splitlines()]
    return [job for table in tables for job in table.get("jobs", []) if job["job"] == "cleanup"]


def versions(path):
    return [v["version"] for v in lance.dataset(path).versions()]


def ids(dataset):
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def appended(path, first, last):
    lance.write_dataset(numbers(first, last), path, mode="append")


def test_cln_03_old_index_files_go_with_their_versions(caretaker, root):
    """Rounds of append, index and cleanup, a minute apart; versions are kept for five."""
    text = lambda n: pa.table({"id": [n], "text": [f"word{n}"]})
    path = fragments(root, "rounds", [text(0)])
    lance.dataset(path).create_scalar_index("id", index_type="BTREE")
    lance.dataset(path).create_scalar_index("text", index_type="INVERTED")
    index = {
        "INDEX_UNINDEXED_ROWS_MIN": "1",
        "INDEX_UNINDEXED_PERMILLE": "0",
        "INDEX_SEGMENTS_MAX": "1",
    }
    folders = []
    for minute in range(1, 13):
        lance.write_dataset(text(minute), path, mode="append")
        cleaned(caretaker, root, minute * 60, CLEANUP_MIN_VERSION_AGE_SECS="300", **index)
        folders.append(len(os.listdir(os.path.join(path, "_indices"))))
        agree.indexes(path)
    assert agree.unreferenced(path) == []
    assert max(folders[7:]) <= max(folders[:7]), f"ever more: {folders}"


def everything(root):
    """A table with every kind of file: returns its builder."""
    root.mkdir(exist_ok=True)
    build = Build(root, "everything")
    fields = [ID, pa.field("n", pa.int32()), lance.blob_field("b")]
    fields[0] = client.key_field("id", pa.int64())
    row = lambda i, n: {"id": i, "n": n, "b": bytes([i % 256]) * (300_000 if i % 3 == 0 else 10)}
    build.create(fields, [row(i, 0) for i in range(10)], blobs=["b"], btree=["n"])
    for first in (10, 20, 30):
        rows = [row(i, 0) for i in range(first, first + 10)]
        lance.dataset(build.path).insert(build._arrow(rows))
        build._remember(rows)
    build.put_with_blobs([row(i, 1) for i in (1, 2, 3, 50)])
    return build, row


def test_cln_04_every_kind_of_file_that_is_needed_stays(caretaker, root):
    build, row = everything(root)
    dataset = lance.dataset(build.path)
    dataset.tags.create("first", dataset.version)
    branch = dataset.create_branch("side", dataset.version)
    branch.delete("id = 5")
    kept = {"tag": rows_with_blobs(dataset), "branch": rows_with_blobs(branch)}
    caretaker("run", root, **TIDY)  # SSTables off the list, deletion files, a list of rewrites
    build.put_with_blobs([row(i, 2) for i in (2, 7, 51)])
    lance.dataset(build.path).insert(build._arrow([row(60, 3)]))
    build._remember([row(60, 3)])
    build.done()
    odd = {"strange/file.bin", "data/folder/inner.txt", "_deletions/x.unknown"}
    for name in odd:
        left = table_path(root, build.name) / name
        left.parent.mkdir(exist_ok=True)
        left.write_text("not ours")
    waiting = FOLD | {"WAL_COMPACT_TRIGGER_COUNT": "9", "WAL_MAX_DATA_AGE_SECS": str(99 * DAY)}
    before = {f for f in state.files(build.path) if f.startswith("_mem_wal")}
    for ahead in (8 * DAY, 9 * DAY):
        assert (
            len(cleaned(caretaker, root, ahead, COLLECT_GRACE_SECS=str(99 * DAY), **waiting)) == 1
        )
    assert before <= set(state.files(build.path)), "the fold's own garbage is not for the cleanup"
    assert odd <= set(state.files(build.path))
    check.table(root, build.name, build.expected, waiting=True)
    assert rows_with_blobs(lance.dataset(build.path, version="first")) == kept["tag"]
    assert (
        rows_with_blobs(lance.dataset(build.path).checkout_version(("side", None)))
        == kept["branch"]
    )
    caretaker("run", root, **REMAP)
    check.table(root, build.name, build.expected)


def rows_with_blobs(dataset):
    rows = dataset.scanner(blob_handling="all_binary").to_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("ahead", [HOUR, 8 * DAY, 40 * DAY])
def test_cln_05_files_of_others_below_the_table_stay(caretaker, root, ahead):
    path = fragments(root, "media", [numbers(at, at + 9) for at in range(0, 50, 10)])
    theirs = [
        "media/a.mp4",
        "data/readme.txt",
        "notes.lance",
        "data/.keep",
        "_versions/README",
        "media/b.lance",
    ]
    for name in theirs:
        file = os.path.join(path, name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "w") as opened:
            opened.write("theirs")
        os.utime(file, (0, 0))
    caretaker("run", root, **TIDY)
    [done] = cleaned(caretaker, root, ahead)
    assert done["versions"] > 0
    assert set(theirs) <= set(state.files(path))
    assert ids(lance.dataset(path)) == list(range(50))


@pytest.mark.parametrize("how", ["nothing", "a tag", "opted out"])
def test_cln_06_a_shallow_clone_keeps_what_it_reads(caretaker, root, how):
    path = fragments(root, "source", [numbers(0, 9)])
    match how:
        case "a tag":
            lance.dataset(path).tags.create("cloned", 1)
        case "opted out":
            lance.dataset(path).update_config({"caretaker.cleanup.enabled": "false"})
    clone = table_path(root, "clone")
    lance.dataset(path).shallow_clone(str(clone), 1)
    for first in (100, 200):
        lance.write_dataset(numbers(first, first + 9), path, mode="overwrite")
    cleaned(caretaker, root)
    assert ids(lance.dataset(str(clone))) == list(range(10))
    assert ids(lance.dataset(path)) == list(range(200, 210))


def test_cln_06_care_of_a_clone_leaves_its_source_alone(caretaker, root):
    path = fragments(root, "source", [numbers(at, at + 9) for at in range(0, 40, 10)])
    lance.dataset(path).create_scalar_index("id", index_type="BTREE")
    clone = str(table_path(root.parent / "elsewhere", "clone"))
    version = lance.dataset(path).version
    lance.dataset(path).shallow_clone(clone, version)
    appended(clone, 40, 49)
    lance.dataset(clone).delete("id = 3")
    before = state.files(path)
    caretaker("run", clone, **REMAP)
    cleaned(caretaker, clone, 8 * DAY)
    assert state.files(path) == before
    assert ids(lance.dataset(clone)) == [i for i in range(50) if i != 3]
    agree.indexes(clone, {"id": [3]})
    assert ids(lance.dataset(path)) == list(range(40))


@pytest.mark.parametrize("write", ["append", "delete", "update", "index"])
def test_cln_07_a_writer_that_slept_through_a_cleanup_is_not_lost_and_loses_nothing(
    caretaker, root, write
):
    path = fragments(root, "stalled", [numbers(0, 9)])
    stalled = lance.dataset(path)
    appended(path, 10, 19)
    appended(path, 20, 29)
    [done] = cleaned(caretaker, root)
    assert (done["versions"], versions(path)) == (2, [3])
    want = set(range(30))
    try:
        match write:
            case "append":
                stalled.insert(numbers(30, 39))
                want |= set(range(30, 40))
            case "delete":
                stalled.delete("id = 4")
                want -= {4}
            case "update":
                stalled.update({"id": "id + 1000"}, where="id = 4")
                want = want - {4} | {1004}
            case "index":
                stalled.create_scalar_index("id", index_type="BTREE")
        assert lance.dataset(path).latest_version == 4
    except OSError:
        # Refused is right as well; accepted below the newest version is not.
        want = set(range(30))
    assert ids(lance.dataset(path)) == sorted(want)
    agree.indexes(path)
    caretaker("run", root, **TIDY)
    assert ids(lance.dataset(path)) == sorted(want)
