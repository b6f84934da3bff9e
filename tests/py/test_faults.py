"""What goes wrong outside: a clear sentence each time, nothing lost, and the other tables go on."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import check
import client
import state
from conftest import command, environment, table_path
from tables import Build

EAGER = {"WAL_COMPACT_TRIGGER_COUNT": "1"}


@pytest.fixture
def pair(root):
    """A table that will have trouble, and one that must be tended all the same."""
    return Build.of("plain_int64", root), Build.of("tombstones", root)


def sstables(build):
    return sorted(Path(build.path).glob("_mem_wal/*/*_gen_*"))


def test_a_wrong_path_is_refused_by_name(caretaker, tmp_path):
    gone = tmp_path / "no such folder"
    for args in (["run", gone], ["plan", gone], ["serve", gone], ["compact", gone / "t.lance"], ["facts", gone]):
        done = caretaker(*args, exit=2)
        assert str(gone) in done.stderr and "panicked" not in done.stderr


def test_an_empty_folder_has_no_tables_and_that_is_fine(caretaker, tmp_path):
    assert "no tables" in caretaker("run", tmp_path).stdout


def test_a_folder_that_is_no_lance_table_fails_alone(caretaker, root, pair):
    _, other = pair
    junk = table_path(root, "junk")
    (junk / "_versions").mkdir(parents=True)
    (junk / "_versions" / "1.manifest").write_bytes(b"not a manifest")
    done = caretaker("run", root, exit=1, **EAGER)
    assert "junk" in done.stdout + done.stderr
    check.table(root, other.name, other.expected)


def test_a_missing_sstable_folder_stops_its_table_and_names_the_folder(caretaker, root, pair):
    broken, other = pair
    lost = sstables(broken)[0]
    kept = root.parent / "kept"
    shutil.move(lost, kept)
    done = caretaker("run", root, exit=1, **EAGER)
    assert lost.name in done.stdout + done.stderr
    listed = [s.path for shard in state.read(broken.path).shards.values() for s in shard.sstables]
    assert lost.name in listed
    check.table(root, other.name, other.expected)
    shutil.move(kept, lost)
    caretaker("run", root, **EAGER)
    check.table(root, broken.name, broken.expected)


def test_an_unreadable_shard_manifest_stops_its_table_alone(caretaker, root, pair):
    broken, other = pair
    newest = max(Path(broken.path).glob("_mem_wal/*/manifest/*.binpb"), key=lambda p: int(p.stem[::-1], 2))
    whole = newest.read_bytes()
    newest.write_bytes(b"\xff\xff\xff")
    version = lance.dataset(broken.path).version
    done = caretaker("run", root, exit=1, **EAGER)
    assert broken.name in done.stdout + done.stderr
    assert lance.dataset(broken.path).version == version
    check.table(root, other.name, other.expected)
    newest.write_bytes(whole)
    caretaker("run", root, **EAGER)
    check.table(root, broken.name, broken.expected)


def test_a_table_that_lost_its_key_is_skipped_with_the_reason(caretaker, root, pair):
    broken, other = pair
    lance.dataset(broken.path).drop_columns(["id"])
    done = caretaker("run", root, **EAGER)
    assert "no primary key" in done.stdout + done.stderr
    assert "no primary key" in caretaker("plan", broken.path).stdout
    assert len(sstables(broken)) > 0
    check.table(root, other.name, other.expected)


def test_a_value_the_settings_cannot_have_is_refused_by_name_and_source(caretaker, root):
    Build.of("plain_int64", root)
    before = state.files(root)
    for name, value in [
        ("WAL_COMPACT_TRIGGER_COUNT", "-1"),
        ("WAL_COMPACT_TRIGGER_COUNT", "0"),
        ("WAL_COMPACT_TRIGGER_COUNT", "4 "),
        ("COMPACT_PASS_TARGET_BYTES", "0"),
        ("WAL_MAX_DATA_AGE_SECS", "99999999999999999999"),
        ("COMPACT_PASS_MEMORY_BYTES", "many"),
    ]:
        assert name in caretaker("run", root, exit=2, **{name: value}).stderr.upper()
    config = root.parent / "settings.toml"
    config.write_text("wal_compact_triger_count = 4\n")
    refused = caretaker("run", root, "--config", config, exit=2).stderr
    assert "wal_compact_triger_count" in refused and "wal_compact_trigger_count" in refused
    assert state.files(root) == before


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, as root can mount one."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a tmpfs")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_read_only_folder_is_a_clear_error_and_loses_nothing(caretaker, small_disk):
    root = small_disk / "db"
    build = Build.of("plain_int64", root)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = caretaker("run", root, exit=1, **EAGER)
    assert "read-only" in (done.stdout + done.stderr).lower()
    caretaker("plan", root)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    caretaker("run", root, **EAGER)
    check.table(root, build.name, build.expected)


def test_a_full_disk_is_a_clear_error_and_loses_nothing(caretaker, small_disk):
    root = small_disk / "db"
    build = Build.of("indexed", root)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    version = lance.dataset(build.path).version
    done = caretaker("run", root, exit=1, **EAGER)
    assert "no space" in (done.stdout + done.stderr).lower()
    assert lance.dataset(build.path).version == version
    check.table(root, build.name, build.expected, waiting=True)
    ballast.unlink()
    caretaker("run", root, **EAGER)
    check.table(root, build.name, build.expected)


def test_ten_thousand_tables_are_walked_and_the_due_one_is_tended(caretaker, root):
    build = Build.of("plain_int64", root)
    client.connect(root).create_table("idle", [{"id": 1, "v": "a"}])
    idle = table_path(root, "idle")
    for n in range(9_998):
        shutil.copytree(idle, table_path(root, f"idle{n:05}"), copy_function=os.link)
    done = caretaker("run", root, **EAGER)
    assert "10000 tables" in done.stdout.replace(",", "")
    assert len(done.stdout.splitlines()) < 20, "no line for an idle table"
    check.table(root, build.name, build.expected)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert peak < 2 << 30


def test_processes_on_one_root_at_once_lose_nothing(root):
    builds = [Build.of(shape, root) for shape in ("tombstones", "buckets", "indexed")]
    settings = environment(WAL_COMPACT_TRIGGER_COUNT="1", WAL_COMPACT_PREFIX_MAX="1")
    running = [
        subprocess.Popen(command("run", root, "--json"), env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in running:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
    for build in builds:
        check.table(root, build.name, build.expected, waiting=True)
    last = subprocess.run(command("run", root), env=settings, capture_output=True, text=True, timeout=300)
    assert last.returncode == 0, last.stdout + last.stderr
    for build in builds:
        check.table(root, build.name, build.expected)


def test_serve_folds_what_comes_and_ends_on_sigterm(caretaker, root):
    build = Build.of("tombstones", root)
    settings = environment(WAL_COMPACTION_INTERVAL_SECS="1", **EAGER)
    serving = subprocess.Popen(command("serve", root, "--log-format", "json"), env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in serving.stdout:
            said = json.loads(line)
            assert "panicked" not in line
            if "memwal_retire" in json.dumps(said):
                break
        check.table(root, build.name, build.expected)
    finally:
        serving.send_signal(signal.SIGTERM)
    started = time.monotonic()
    serving.stdout.read()
    assert serving.wait(timeout=60) == 0
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("odd", ["loop", "self", "newline", "bytes"])
def test_one_odd_entry_does_not_stop_the_root(caretaker, root, pair, odd):
    folder = os.fsencode(root)
    match odd:
        case "loop":
            (root / "latest").symlink_to(".")
        case "self":
            (root / "x.lance").symlink_to("x.lance")
        case "newline":
            (root / "a\nb.lance").mkdir()
        case "bytes":
            os.mkdir(folder + b"/\xff.lance")
    caretaker("run", root, **EAGER)
    for build in pair:
        check.table(root, build.name, build.expected)


def test_a_folder_that_holds_nothing_of_a_table_is_left_out(caretaker, root, pair):
    (table_path(root, "%E8%AE%A2") / "_mem_wal" / "3f" / "manifest").mkdir(parents=True)
    done = caretaker("run", root, **EAGER)
    assert "%E8%AE%A2" in done.stderr


def test_a_table_that_lost_its_versions_but_not_its_data_fails(caretaker, root, pair):
    broken, other = pair
    shutil.rmtree(Path(broken.path) / "_versions")
    assert broken.name in caretaker("run", root, exit=1, **EAGER).stderr
    check.table(root, other.name, other.expected)


def test_a_shard_that_lost_its_manifest_is_said_aloud(caretaker, root, pair):
    broken, _ = pair
    for folder in Path(broken.path).glob("_mem_wal/*/manifest"):
        shutil.rmtree(folder)
    assert "no manifest" in caretaker("run", root, **EAGER).stderr


def test_compact_folds_what_can_be_folded_beside_a_sealed_shard(caretaker, root):
    build = Build.of("buckets", root)
    shards = sorted({p.parent for p in Path(build.path).glob("_mem_wal/*/manifest")})
    newest = max((shards[0] / "manifest").glob("*.binpb"), key=lambda p: int(p.stem[::-1], 2))
    # The status is field 15; the last value of a field counts.
    newest.write_bytes(newest.read_bytes() + b"\x78\x01")
    done = caretaker("compact", build.path, exit=1)
    assert "being dropped" in done.stdout
    seen = state.read(build.path)
    assert {i: seen.waiting(s) == [] for i, s in seen.shards.items()} == {s.name: s != shards[0] for s in shards}


def test_a_refusal_of_a_program_that_reads_json_is_json(caretaker, root, pair):
    said = json.loads(caretaker("compact", root, "--json", exit=2).stdout)
    assert said["kind"] == "invalid" and "database" in said["error"]


def test_compact_says_why_a_table_without_lsm_writes_has_nothing_to_fold(caretaker, root):
    path = table_path(root, "plain")
    lance.write_dataset(pa.table({"id": [1, 2]}), path)
    assert "takes no LSM writes" in caretaker("compact", path).stdout
