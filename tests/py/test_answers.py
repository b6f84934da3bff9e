"""Answers are compared around jobs: equal ones pass, changed ones fail the job and hold the table."""

import json
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from stage import Held, jobs
from tables import SHAPES, Build
from conftest import table_path

ALWAYS = {"ANSWERS_CHECK_PERCENT": "100"}
FOLD = ALWAYS | {"WAL_COMPACT_TRIGGER_COUNT": "1"}
TIDY = FOLD | {"COMPACTION_SMALL_FRAGMENTS_MIN": "2", "REMAP_REWRITES_MIN": "1"}
CLEAN = ALWAYS | {
    "CLEANUP_MIN_VERSION_AGE_SECS": "1",
    "CLEANUP_INITIAL_VERSION": "1",
    "CLEANUP_VERSION_INTERVAL": "1",
}


def numbers(root, name="numbers", parts=4, shift=0):
    """A table of small fragments with an index; `shift` changes values and nothing else."""
    path = str(table_path(root, name))
    for part in range(parts):
        ids = range(part * 100, part * 100 + 100)
        data = pa.table({"id": list(ids), "x": [i * 7 % 1000 + 1000 + shift for i in ids]})
        lance.write_dataset(data, path, mode="append" if part else "create")
    return path


def last_file(path):
    """The data file of the last fragment."""
    return Path(path, "data", lance.dataset(path).get_fragments()[-1].data_files()[0].path)


def new_files(path, before):
    return sorted(set(Path(path, "data").glob("*.lance")) - before)


def held(caretaker, path, kind, **history):
    """Whether what is due on the table waits for somebody to look at what this kind of job changed."""
    plan = json.loads(caretaker("plan", path, "--json", **TIDY, **history).stdout)
    holds = [v["hold"] for v in plan["verdicts"] if v["outcome"] == "held"]
    return bool(holds) and all(hold["by"] == "mismatch" and hold["kind"] == kind for hold in holds)


@pytest.mark.parametrize("shape", SHAPES)
def test_answers_of_every_shape_are_compared_and_equal(caretaker, root, shape):
    Build.of(shape, root)
    done = jobs(caretaker("run", root, "--json", **TIDY).stdout)
    compared = [job for job in done if "answers" in job]
    assert [job["job"] for job in done] == [job["job"] for job in compared]
    fold = next(job for job in compared if job["job"] == "memwal_compaction")
    assert fold["answers"]["rows"] >= fold["rows_inserted"] + fold["rows_updated"]
    # Only what has no answers to compare is passed over.
    skipped = [why for job in compared for why in job["answers"].get("skipped", [])]
    assert all(why.startswith("index ") and why.endswith("no answers to compare") for why in skipped), skipped


def test_a_compaction_that_changes_a_value_is_found_and_the_table_is_held(caretaker, root, tmp_path):
    path, other = numbers(root), numbers(tmp_path / "other", shift=1)
    history = {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    caretaker("run", tmp_path / "other", **TIDY)
    changed = last_file(other)
    before = set(Path(path, "data").glob("*.lance"))
    with Held(root, "compact.committed", **TIDY, **history) as run:
        [written] = new_files(path, before)
        assert written.stat().st_size == changed.stat().st_size
        shutil.copyfile(changed, written)
        [job] = [job for job in run.release(exit=1) if job["job"] == "compact"]
    assert (job["end"], job["kind"]) == ("failed", "mismatch")
    assert "other rows" in job["why"]
    job_version = lance.dataset(path).version
    for _ in range(4):
        lance.write_dataset(pa.table({"id": [1000], "x": [1]}), path, mode="append")
    assert held(caretaker, path, "compact", **history)
    caretaker("run", root, **TIDY, **history)
    assert len(lance.dataset(path).get_fragments()) == 5
    # What there was before is still there, and stays.
    assert lance.dataset(path, version=job_version - 1).to_table()["x"].to_pylist()[:3] == [1000, 1007, 1014]
    caretaker("cleanup", path, exit=1, **CLEAN, **history)
    said = caretaker("verify", path, exit=1, **history)
    assert "compact" in said.stderr and "--accept" in said.stderr
    caretaker("verify", path, "--accept", **history)
    caretaker("verify", path, "--rows", **history)
    assert not held(caretaker, path, "compact", **history)


def lsm(root, shift):
    build = Build(root, "lsm")

    def rows(ids):
        return [{"id": i, "x": i * 7 % 1000 + 1000 + shift} for i in ids]

    build.create([pa.field("id", pa.int64(), False), pa.field("x", pa.int64())], rows(range(100)))
    for start in (50, 100, 150, 200):
        build.put(rows(range(start, start + 100)))
    return build.path


def test_a_fold_that_changes_a_value_is_found_before_anything_is_retired(caretaker, root, tmp_path):
    path, other = lsm(root, 0), lsm(tmp_path / "other", 1)
    caretaker("run", tmp_path / "other", **FOLD)
    changed = last_file(other)
    history = {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    before = set(Path(path, "data").glob("*.lance"))
    with Held(root, "fold.committed", **FOLD, **history) as run:
        [written] = new_files(path, before)
        assert written.stat().st_size == changed.stat().st_size
        shutil.copyfile(changed, written)
        done = run.release(exit=1)
    assert [(job["job"], job["end"]) for job in done] == [("memwal_compaction", "failed")]
    assert done[0]["kind"] == "mismatch"
    caretaker("run", root, **FOLD, **history)
    facts = json.loads(caretaker("facts", path, "--json", **history).stdout)
    assert len(facts["shards"][0]["sstables"]) == 4 and facts["mismatch"]["kind"] == "memwal_compaction"
    assert json.loads(caretaker("status", root, "--json", **history).stdout.splitlines()[0])["health"] == "failing"


def test_a_cleanup_that_takes_a_live_file_is_found(caretaker, root):
    path = numbers(root, parts=2)
    dataset = lance.dataset(path)
    gone = Path(path, "data", dataset.get_fragments()[0].data_files()[0].path)
    dataset.delete("id = 199")
    with Held(root, "cleanup.after", **CLEAN) as run:
        gone.unlink()
        [job] = [job for job in run.release(exit=1) if job["job"] == "cleanup"]
    assert job["kind"] == "mismatch" and "can't be read any more" in job["why"]


def test_an_index_that_answers_otherwise_is_found(caretaker, root, tmp_path):
    path, other = numbers(root, parts=2), numbers(tmp_path / "other", parts=2, shift=1)
    settings = ALWAYS | {"INDEX_UNINDEXED_ROWS_MIN": "1", "INDEX_UNINDEXED_PERMILLE": "0"}
    for table in (path, other):
        lance.dataset(table).create_scalar_index("x", index_type="BTREE")
        lance.write_dataset(lance.dataset(table).to_table(), table, mode="append")
    caretaker("run", tmp_path / "other", **settings)

    def newest(table):
        return max(Path(table, "_indices").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)

    with Held(root, "index.after", **settings) as run:
        for file in newest(path).iterdir():
            shutil.copyfile(Path(newest(other), file.name), file)
        [job] = [job for job in run.release(exit=1) if job["job"].startswith("reindex_")]
    assert job["kind"] == "mismatch" and "full scan" in job["why"]
    said = caretaker("verify", path, exit=1)
    assert "replace=True" in said.stderr


def test_no_answers_are_compared_where_the_policy_says_so(caretaker, root):
    numbers(root)
    done = jobs(caretaker("run", root, "--json", **TIDY | {"ANSWERS_CHECK_PERCENT": "0"}).stdout)
    assert done and not any("answers" in job for job in done)
