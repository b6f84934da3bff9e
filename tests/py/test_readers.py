"""Readers of old versions read on while the version is young, has a tag, or a branch needs it."""

import lance
import pytest

import client
import ripe
from stage import HOUR, at, jobs
from test_base import REMAP, TIDY
from test_cleanup import EAGER, appended, cleaned, ids, versions
from test_compaction import fragments
from test_races import numbers

# Everything a deployment may have on, with versions kept for two hours.
CARE = REMAP | EAGER | {"CLEANUP_MIN_VERSION_AGE_SECS": str(2 * HOUR), "COLLECT_GRACE_SECS": "0"}


def read(table):
    """Every row of the base; the client has no other way to read an old version."""
    return sorted(
        table.search().use_lsm(False).limit(1_000_000).to_list(), key=lambda row: row["id"]
    )


def found(table):
    """What each kind of index of this handle finds."""
    queries = [
        table.search().where("n = 1"),
        table.search().where("state = 'state2'"),
        table.search("gen0", query_type="fts", fts_columns="text"),
        table.search(ripe.row(0, 0)["vec"], vector_column_name="vec").nprobes(9),
    ]
    return [
        sorted(row["id"] for row in query.use_lsm(False).limit(9).to_list()) for query in queries
    ]


@pytest.mark.parametrize("storage", [{}, ripe.STABLE], ids=["addresses", "stable ids"])
def test_a_reader_on_a_young_version_reads_on_through_all_care(caretaker, root, storage):
    build = ripe.ripe(caretaker, root, **storage)
    oldest = lance.dataset(build.path).version
    caretaker("run", root, **CARE | at(3 * HOUR))
    old = client.connect(root).open_table(build.name)
    old.checkout(old.version)
    scanning = lance.dataset(build.path, version=old.version).scanner(batch_size=1).to_batches()
    rows, hits, first = read(old), found(old), next(scanning)
    done = []
    for gen in range(2):
        build.put([ripe.row(i, 10 + gen) for i in range(gen, 60, 7)])
        done += jobs(caretaker("run", root, "--json", **CARE | at(4.5 * HOUR)).stdout)
        assert read(old) == rows and found(old) == hits
    assert {"memwal_compaction", "compact", "cleanup", "memwal_retire"} <= {
        job["job"] for job in done
    }
    assert oldest not in versions(build.path) and old.version in versions(build.path)
    assert first.num_rows + sum(batch.num_rows for batch in scanning) == len(rows)
    caretaker("run", root, **CARE | at(6 * HOUR))
    assert old.version not in versions(build.path), "its age is what kept it"


@pytest.mark.parametrize("kind", ["a tag", "a branch"])
def test_a_version_with_a_name_is_readable_after_any_number_of_cleanups(caretaker, root, kind):
    path = fragments(root, "named", [numbers(at_, at_ + 9) for at_ in range(0, 40, 10)])
    lance.dataset(path).create_scalar_index("id", index_type="BTREE")
    dataset = lance.dataset(path)
    dataset.delete("id = 5")
    version = dataset.version
    if kind == "a tag":
        dataset.tags.create("kept", version)
    else:
        dataset.create_branch("kept", version)
    name = "kept" if kind == "a tag" else ("kept", None)
    want = [i for i in range(40) if i != 5]
    for turn in range(4):
        appended(path, 100 + turn, 100 + turn)
        lance.dataset(path).delete(f"id = {turn}")
        caretaker("run", root, **TIDY, **EAGER | at((turn + 1) * 9 * 24 * HOUR))
        kept = lance.dataset(path).checkout_version(name)
        assert ids(kept) == want
        assert [kept.count_rows(f"id = {key}") for key in (4, 5, 39)] == [1, 0, 1]
    assert versions(path)[0] == version and versions(path)[1] > version + 4


def test_a_branch_that_is_written_keeps_its_rows_and_those_it_came_from(caretaker, root):
    path = fragments(root, "forked", [numbers(0, 9), numbers(10, 19)])
    branch = lance.dataset(path).create_branch("side", 2)
    for turn in range(3):
        branch.insert(numbers(500 + turn, 500 + turn))
        branch.delete(f"id = {turn}")
        lance.write_dataset(numbers(900, 909), path, mode="overwrite")
        [done] = cleaned(caretaker, root, **TIDY)
        side = lance.dataset(path).checkout_version(("side", None))
        assert ids(side) == [*range(turn + 1, 20), *range(500, 501 + turn)]
        assert ids(lance.dataset(path)) == list(range(900, 910))
    assert done["end"] == "cleaned" and versions(path) == [2, lance.dataset(path).version]


@pytest.mark.parametrize("storage", [{}, ripe.STABLE], ids=["addresses", "stable ids"])
def test_the_client_sees_and_uses_every_index_after_care(caretaker, root, storage):
    """But for a BTree that was rebuilt: the client is of Lance 13, which does not read those of Lance 14."""
    rebuilt = storage == ripe.STABLE
    build = ripe.ripe(caretaker, root, **storage)
    caretaker("run", root, **ripe.only("fold", "index", "compact inline", "retire"))
    table = client.connect(root).open_table(build.name)
    kinds = {index.name: index.index_type for index in table.list_indices()}
    assert kinds == ({} if rebuilt else {"n_idx": "BTree"}) | {
        "state_idx": "Bitmap",
        "text_idx": "FTS",
        "vec_idx": "IvfFlat",
    }
    found = table.search().use_lsm(False).where("n = 1").to_list()
    assert len(found) == lance.dataset(build.path).count_rows("n = 1") > 0
    for condition in ["state = 'state2'"] + ["n = 1"] * (not rebuilt):
        plan = table.search().use_lsm(False).where(condition).explain_plan(verbose=True)
        assert "ScalarIndexQuery" in plan, condition
    vector = ripe.row(0, 0)["vec"]
    assert "ANN" in table.search(vector, vector_column_name="vec").use_lsm(False).explain_plan()
