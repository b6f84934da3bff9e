"""Reports from the field, each as the case it describes; what happened elsewhere must not happen here."""

import os
import random
import subprocess

import lance
import pyarrow as pa
import pytest

import check
from conftest import command, environment
from tables import ID, Build

EAGER = {"WAL_COMPACT_TRIGGER_COUNT": "1"}
MIB = 1 << 20


def made(root, name, *args, **indexes):
    root.mkdir(parents=True, exist_ok=True)
    build = Build(root, name)
    build.create(*args, **indexes)
    return build


def killed(root, place, **settings):
    """A run that dies at `place`."""
    env = environment(CARETAKER_CRASH_AT=place, **settings)
    assert subprocess.run(command("run", root), env=env, capture_output=True, timeout=300).returncode < 0


def test_cat_02_vector_search_sees_a_row_at_every_stage(caretaker, root):
    rng = random.Random(2)
    fields = [ID, pa.field("vec", pa.list_(pa.float32(), 2))]
    far = [{"id": i, "vec": [rng.uniform(-1, 1), rng.uniform(-1, 1)]} for i in range(1000)]
    build = made(root, "near", fields, far, vector="vec", maintained=["vec_idx"])

    def nearest():
        query = check.client.connect(root).open_table("near").search([9.0, 9.0]).use_lsm(True)
        return [row["id"] for row in query.nprobes(4).limit(2).select(["id"]).to_list()]

    build.put([{"id": 5000, "vec": [9.0, 9.0]}])
    for stage in ("written", "folded", "caught up", "compacted"):
        match stage:
            case "folded":
                killed(root, "fold.committed", **EAGER)
            case "caught up":
                caretaker("run", root, **EAGER)
            case "compacted":
                caretaker("run", root, COMPACTION_SMALL_FRAGMENTS_MIN="2", **EAGER)
        first, second = nearest()
        assert first == 5000 and second != 5000, stage


def test_cat_10_a_text_index_answers_right_through_a_hundred_small_rounds(caretaker, root):
    fields = [ID, pa.field("t", pa.string())]
    rows = [{"id": 1, "t": "red fox"}, {"id": 2, "t": "blue fox"}, {"id": 3, "t": "green owl"}]
    build = made(root, "words", fields, rows, text="t", maintained=["t_idx"])

    def found(word):
        table = lance.dataset(build.path).to_table(full_text_query=word, columns=["id"])
        return sorted(table.column("id").to_pylist())

    def all_found():
        return [found("red"), found("fox"), found("owl")]

    caretaker("run", root, **EAGER)
    assert all_found() == [[1], [1, 2], [3]]
    build.put([{"id": 4, "t": "red owl"}])
    caretaker("run", root, **EAGER)
    assert all_found() == [[1, 4], [1, 2], [3, 4]]
    build.delete([{"id": 1, "t": "red fox"}])
    caretaker("run", root, **EAGER)
    assert all_found() == [[4], [2], [3, 4]]
    for turn in range(100):
        build.put([{"id": 100 + turn, "t": f"vole turn{turn}"}])
        caretaker("run", root, **EAGER)
    assert found("vole") == list(range(100, 200))
    assert all_found() == [[4], [2], [3, 4]]
    assert [found(f"turn{turn}") for turn in range(0, 100, 9)] == [[100 + turn] for turn in range(0, 100, 9)]


def test_cat_12_folds_and_catch_ups_that_race_leave_no_old_value_in_the_index(root):
    fields = [ID, pa.field("st", pa.string()), pa.field("x", pa.int32())]
    row = lambda i, st: {"id": i, "st": st, "x": i}
    build = made(root, "states", fields, [row(i, "new") for i in range(300)], bitmap=["st"], maintained=[])
    count = lambda value: lance.dataset(build.path).count_rows(f"st = '{value}'")
    scan = lambda value: lance.dataset(build.path).to_table(columns=["st"]).column(0).to_pylist().count(value)
    for start in range(0, 300, 30):
        block = range(start, start + 30)
        for state in ("run", "done"):
            build.put([row(i, state) for i in block])
            racing = [
                subprocess.Popen(command("run", root), env=environment(**EAGER), stdout=subprocess.DEVNULL)
                for _ in range(2)
            ]
            assert [process.wait(timeout=300) for process in racing] == [0, 0]
            assert [count(s) for s in ("new", "run", "done")] == [scan(s) for s in ("new", "run", "done")]
    assert [count(s) for s in ("new", "run", "done")] == [0, 0, 300]


@pytest.mark.parametrize("between", [{}, {"COMPACTION_SMALL_FRAGMENTS_MIN": "2"}])
def test_fld_26_a_key_whose_old_fragment_is_gone_comes_back(caretaker, root, between):
    root.mkdir(parents=True)
    build = made(root, "gone", [ID, pa.field("v", pa.string())], [{"id": i, "v": "o"} for i in range(5)], btree=["id"])
    later = [{"id": i, "v": "o"} for i in range(5, 10)]
    lance.dataset(build.path).insert(build._arrow(later))
    build._remember(later)
    build.delete([{"id": i, "v": "o"} for i in range(5)])
    caretaker("run", root, WAL_COMPACT_PREFIX_MAX="1", **EAGER, **between)
    build.put([{"id": 2, "v": "back"}])
    caretaker("run", root, WAL_COMPACT_PREFIX_MAX="1", **EAGER, **between)
    dataset = lance.dataset(build.path)
    assert dataset.count_rows() == 6
    assert dataset.to_table(filter="id = 2").to_pylist() == [{"id": 2, "v": "back"}]
    build.done()
    check.table(root, build.name, build.expected)


def test_fld_34_memory_follows_what_is_folded_and_not_the_base(root):
    peaks = []
    for size in (10_000, 200_000):
        folder = root / str(size)
        fields = [ID, pa.field("text", pa.string())]
        rng = random.Random(size)
        row = lambda i: {"id": i, "text": f"{rng.getrandbits(4096):01024x}"}
        build = made(folder, "large", fields, [row(0)])
        for start in range(1, size, 20_000):
            block = [row(i) for i in range(start, min(size, start + 20_000))]
            lance.dataset(build.path).insert(build._arrow(block))
        for part in range(4):
            build.put([row(i) for i in [*range(part * 100, part * 100 + 62), *range(size + part * 63, size + part * 63 + 63)]])
        running = subprocess.Popen(command("run", folder), env=environment(**EAGER), stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(running.pid, 0)
        assert status == 0
        assert lance.dataset(build.path).count_rows() == size + 4 * 63
        peaks.append(used.ru_maxrss * 1024)
    # The larger base alone is 200 MiB of text.
    assert peaks[1] < peaks[0] + 100 * MIB, peaks
