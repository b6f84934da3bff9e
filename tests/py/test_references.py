"""Cleanups beside tags, branches, broken manifests and wrong clocks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import agree
import state
from conftest import command, environment
from stage import DAY, HOUR, Held, at
from tables import ID, Build
from test_base import FOLD, TIDY, verdicts
from test_cleanup import EAGER, appended, cleaned, ids, versions
from test_compaction import fragments
from test_races import numbers

OFF = {"COMPACTION_SMALL_FRAGMENTS_MIN": "99"}


def test_cln_11_tags_and_branches_keep_what_they_need_until_they_go(caretaker, root):
    path = fragments(root, "referenced", [numbers(0, 9), numbers(10, 19)])
    dataset = lance.dataset(path)
    dataset.tags.create("t1", 1)
    branch = dataset.create_branch("b1", 2)
    branch.insert(numbers(500, 509))
    for first in (20, 30):
        appended(path, first, first + 9)
    caretaker("run", root, **TIDY)
    appended(path, 40, 49)
    side = lambda: ids(lance.dataset(path).checkout_version(("b1", None)))
    both = [*range(20), *range(500, 510)]
    for turn in range(3):
        [done] = cleaned(caretaker, root)
        assert (done["versions"] > 0) == (turn == 0)
        assert ids(lance.dataset(path, version="t1")) == list(range(10))
        assert side() == both and ids(lance.dataset(path)) == list(range(50))
    assert versions(path)[:2] == [1, 2]
    lance.dataset(path).tags.delete("t1")
    cleaned(caretaker, root)
    assert versions(path)[0] == 2
    assert side() == both and ids(lance.dataset(path)) == list(range(50))
    lance.dataset(path).branches.delete("b1")
    cleaned(caretaker, root)
    assert len(versions(path)) == 1
    assert ids(lance.dataset(path)) == list(range(50))
    assert agree.unreferenced(path) == []


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_cln_11_a_reference_made_between_plan_and_deletion_counts(root, kind):
    path = fragments(root, "late", [numbers(at, at + 9) for at in range(0, 40, 10)])
    with Held(root, "cleanup.before", **EAGER | OFF | at(HOUR)) as held:
        dataset = lance.dataset(path)
        if kind == "tag":
            dataset.tags.create("late", 2)
        else:
            dataset.create_branch("late", 2)
        [done] = [job for job in held.release() if job["job"] == "cleanup"]
    assert (done["end"], done["versions"]) == ("cleaned", 2)
    late = "late" if kind == "tag" else ("late", None)
    assert ids(lance.dataset(path).checkout_version(late)) == list(range(20))
    assert versions(path) == [2, 4]


def dangling(path, gone):
    """Leaves a tag `keep-dev` whose branch, version or content is gone."""
    dataset, tag = lance.dataset(path), Path(path, "_refs", "tags", "keep-dev.json")
    dataset.create_branch("dev", 1)
    dataset.tags.create("keep-dev", ("dev", 1) if gone == "branch" else 2)
    match gone:
        case "branch":
            Path(path, "_refs", "branches", "dev.json").unlink()
            shutil.rmtree(Path(path, "tree"))
        case "version":
            tag.write_text(json.dumps(json.loads(tag.read_text()) | {"version": 77}))
        case "content":
            tag.write_text("{")


@pytest.mark.parametrize("gone", ["branch", "version", "content"])
def test_cln_12_a_dangling_tag_is_named_and_not_tried_every_second(caretaker, root, tmp_path, gone):
    path = fragments(root, "dangling", [numbers(at, at + 9) for at in range(0, 50, 10)])
    dangling(path, gone)
    settings = EAGER | at(HOUR) | {"CARETAKER_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(
        command("run", root), env=environment(**settings), capture_output=True, text=True
    )
    assert ids(lance.dataset(path)) == list(range(50))
    assert verdicts(caretaker, path, **settings)["cleanup"]["outcome"] == "not_due"
    assert "panicked" not in done.stderr
    assert (done.returncode, "keep-dev" in done.stdout + done.stderr) in [(0, True), (1, True)]


def broken(path, version, how):
    """Damages the manifest of `version`; returns a function that mends it."""
    manifest = Path(path, "_versions", f"{2**64 - 1 - version}.manifest")
    whole = manifest.read_bytes()
    match how:
        case "cut":
            manifest.write_bytes(whole[: len(whole) // 2])
        case "empty":
            manifest.write_bytes(b"")
        case "garbage":
            manifest.write_bytes(b"\xff" * len(whole))
    return lambda: manifest.write_bytes(whole)


@pytest.mark.parametrize("version", [1, 2, 4])
@pytest.mark.parametrize("how", ["cut", "empty", "garbage"])
def test_cln_10_an_unreadable_manifest_stops_the_cleanup_before_it_deletes(
    caretaker, root, tmp_path, how, version
):
    path = fragments(root, "torn", [numbers(at, at + 9) for at in range(0, 50, 10)])
    lance.dataset(path).tags.create("first", 1)
    settings = (
        EAGER
        | at(HOUR)
        | {"CARETAKER_STATE_DIR": str(tmp_path / "state"), "COMPACTION_SMALL_FRAGMENTS_MIN": "99"}
    )
    mend = broken(path, version, how)
    before = state.files(path)
    done = subprocess.run(
        command("run", root), env=environment(**settings), capture_output=True, text=True
    )
    assert done.returncode == 1 and "cleanup" in done.stderr and "panicked" not in done.stderr
    assert state.files(path) == before
    verdict = lambda ahead: verdicts(caretaker, path, **settings | at(HOUR + ahead))["cleanup"][
        "outcome"
    ]
    assert [verdict(ahead) for ahead in (30, 65)] == ["not_due", "due"]
    mend()
    caretaker("run", root, **settings | at(HOUR + 65))
    assert versions(path) == [1, 5]
    assert ids(lance.dataset(path)) == list(range(50))


WRITE = """
import lance, pyarrow as pa, sys
path, n = sys.argv[1], int(sys.argv[2])
rows = pa.table({"id": range(n * 10, n * 10 + 10)})
lance.write_dataset(rows, path, mode="append" if n else "create")
"""


@pytest.fixture(scope="module")
def clocks(tmp_path_factory):
    """Four versions: two hours old, one hour, stamped three days ahead, ten minutes."""
    path = tmp_path_factory.mktemp("clocks") / "clocks.lance"
    for n, age in enumerate([2 * HOUR, HOUR, -3 * DAY - HOUR, 600]):
        args = [sys.executable, "-c", WRITE, path, str(n)]
        subprocess.run(args, env=environment(**at(-age)), check=True)
    for file in (path / "data").iterdir():
        os.utime(file, times=(2**32, 2**32))
    return path


@pytest.mark.parametrize(
    ("clock", "left"),
    [(0, {1, 2, 3, 4}), (-3 * DAY, {1, 2, 3, 4}), (3 * DAY, {3, 4}), (10 * DAY, {4})],
)
def test_cln_13_a_wrong_clock_removes_nothing_young_and_pins_nothing_for_ever(
    caretaker, root, clocks, clock, left
):
    path = shutil.copytree(clocks, root / clocks.name)
    [done] = cleaned(caretaker, root, clock, CLEANUP_MIN_VERSION_AGE_SECS=str(DAY), **OFF)
    assert done["end"] == "cleaned"
    assert left <= set(versions(path))
    assert clock < 10 * DAY or versions(path) == [4]
    for version in versions(path):
        assert ids(lance.dataset(path, version=version)) == list(range(version * 10))


@pytest.mark.parametrize(
    "value", ["-1s", "-1", "2099-01-01T00:00:00Z", "9999999999999d", "abc", "", " ", "1.5h", "NaN"]
)
def test_cln_15_a_minimum_age_that_is_none_is_refused_wherever_it_stands(caretaker, root, value):
    path = fragments(root, "bad", [numbers(at, at + 9) for at in range(0, 50, 10)])
    key = "cleanup_min_version_age_secs"
    quiet = at(HOUR) | {"COMPACTION_SMALL_FRAGMENTS_MIN": "99"} | {"CLEANUP_INITIAL_VERSION": "1"}
    before = state.files(path)
    if value.strip():
        assert key in caretaker("run", root, exit=2, **quiet | {key.upper(): value}).stderr.lower()
    assert (
        key.replace("_", "-")
        in caretaker("run", root, f"--{key.replace('_', '-')}={value}", exit=2, **quiet).stderr
    )
    config = root.parent / "settings.toml"
    config.write_text(f"{key} = {json.dumps(value)}\n")
    assert key in caretaker("run", root, "--config", config, exit=2, **quiet).stderr
    assert state.files(path) == before
    lance.dataset(path).update_config(
        {f"caretaker.{key}": value, "lance.auto_cleanup.older_than": value}
    )
    kept = versions(path)
    said = caretaker(
        "run", root, **quiet | EAGER | {"CLEANUP_MIN_VERSION_AGE_SECS": str(2 * HOUR)}
    ).stdout
    assert f"caretaker.{key}" in said and "lance.auto_cleanup.older_than" in said
    assert versions(path) == kept


def test_cln_15_without_a_minimum_age_nothing_goes_and_an_unverified_file_keeps_its_week(
    caretaker, root
):
    path = fragments(root, "week", [numbers(at, at + 9) for at in range(0, 50, 10)])
    pending = lance.fragment.write_fragments(numbers(50, 59), path)
    for age in ("0", "0s"):
        caretaker("run", root, **at(40 * DAY) | EAGER | {"CLEANUP_MIN_VERSION_AGE_SECS": age} | OFF)
        assert versions(path) == [1, 2, 3, 4, 5]
    cleaned(caretaker, root, 6 * DAY, **OFF)
    assert versions(path) == [5]
    lance.LanceDataset.commit(path, lance.LanceOperation.Append(pending), read_version=5)
    assert ids(lance.dataset(path)) == list(range(60))


@pytest.mark.parametrize("between", ["nothing", "the write spec was unset"])
def test_r2_15_a_tagged_version_keeps_its_sstables_whatever_came_after(caretaker, root, between):
    root.mkdir()
    build = Build(root, "tagged")
    build.create([ID, pa.field("v", pa.string())], [{"id": i, "v": "base"} for i in range(5)])
    for gen in (1, 2):
        build.put([{"id": gen, "v": f"gen {gen}"}])
        caretaker("run", root, **FOLD | OFF)
        if gen == 1:
            lance.dataset(build.path).tags.create("kept", lance.dataset(build.path).version)
    if between != "nothing":
        spec = build.table.get_lsm_write_spec()
        build.table.unset_lsm_write_spec()
        lance.dataset(build.path).tags.create("without", lance.dataset(build.path).version)
        build.table.set_lsm_write_spec(spec)
    build.put([{"id": 3, "v": "gen 3"}])
    caretaker("run", root, **FOLD | OFF)
    cleaned(caretaker, root, **FOLD | OFF | {"COLLECT_GRACE_SECS": "0"})
    caretaker("run", root, **OFF | {"COLLECT_GRACE_SECS": "0"})
    left = {path.name[-1] for path in Path(build.path).glob("_mem_wal/*/*_gen_*")}
    assert left == {"2", "3"}, "the tagged version records generation 1"
