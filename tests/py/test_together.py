"""Every kind of job beside a writer and beside every other kind: one process is held in the middle
of its job while somebody else does all of his. Whoever commits first, no row is lost or doubled,
every index answers as a scan does, and the run after finds nothing left to do."""

import copy
import shutil

import lance
import pytest

import agree
import check
import client
import ripe
import state
from stage import Held, jobs
from tables import Build

# Where a process is held, and the kind of job it does. What comes next there is a commit of the
# base, which another may have made impossible, each in its way.
BEFORE_COMMIT = {
    "fold.before_commit": "fold",
    "catchup.after": "fold",
    "index.after": "index",
    "compact.rewritten": "compact",
    "remap.after": "remap",
}
# It is made there, or none is made at all: the other kinds may come together.
ELSEWHERE = {
    "fold.scanned": "fold",
    "fold.written": "fold",
    "fold.committed": "fold",
    "compact.committed": "compact",
    "cleanup.before": "cleanup",
    "cleanup.after": "cleanup",
    "retire.before": "retire",
    "retire.after": "retire",
    "collect.file": "collect",
}
KINDS = BEFORE_COMMIT | ELSEWHERE


@pytest.fixture(scope="module")
def templates(caretaker, tmp_path_factory):
    """Ripe tables by the way their rows are addressed; tests work on copies."""
    ways = {"addresses": {}, "stable ids": ripe.STABLE}
    return {
        way: ripe.ripe(caretaker, tmp_path_factory.mktemp("ripe"), **storage)
        for way, storage in ways.items()
    }


@pytest.fixture
def build(templates, root, request):
    template = templates[getattr(request, "param", "addresses")]
    shutil.copytree(template.root, root)
    copied = Build(root, template.name)
    copied.expected, copied.written = copy.deepcopy(template.expected), {}
    copied.table = client.connect(root).open_table(copied.name)
    return copied


def ended(said, kind):
    """How the jobs of this kind ended."""
    return [job["end"] for job in said if job["job"].startswith(ripe.JOBS[kind])]


def settled(caretaker, build, *kinds):
    """What must be true at last, before and after one more run of all that was at work here."""
    check.lsm_path(build.table, build.expected)
    agree.indexes(build.path)
    settings = ripe.only("fold", "retire", *kinds)
    caretaker("run", build.root, **settings)
    check.full_scan(lance.dataset(build.path), build.expected)
    check.lsm_path(build.table, build.expected)
    agree.indexes(build.path)
    assert all(shard.sstables == [] for shard in state.read(build.path).shards.values())
    left = jobs(caretaker("run", build.root, "--json", **settings).stdout)
    # Without a history a cleanup is due each time.
    assert [job["job"] for job in left if job["job"] != "cleanup"] == [], "it was not left in order"


PAIRS = [(place, other) for place in BEFORE_COMMIT for other in ripe.DUE]
PAIRS += [("cleanup.before", "cleanup"), ("retire.before", "retire"), ("collect.file", "collect")]
# A fold holds its latch: another fold or retirement waits for the next run. And it leaves none.
NOTHING = [
    ("fold.before_commit", "fold"),
    ("fold.before_commit", "retire"),
    ("catchup.after", "fold"),
]


@pytest.mark.parametrize(("place", "other"), PAIRS)
def test_a_job_and_another_process_that_does_a_whole_job_meanwhile(caretaker, build, place, other):
    kind = KINDS[place]
    with Held(build.root, place, **ripe.only(kind)) as held:
        theirs = jobs(caretaker("run", build.root, "--json", **ripe.only(other)).stdout)
        check.lsm_path(client.connect(build.root).open_table(build.name), build.expected)
        own = held.release()
    assert bool(ended(theirs, other)) == ((place, other) not in NOTHING)
    assert ended(own, kind)
    settled(caretaker, build, kind, other)


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_job_and_all_other_kinds_meanwhile(caretaker, build, place):
    kind = KINDS[place]
    others = [other for other in ripe.DUE if other not in ("compact inline", kind)]
    with Held(build.root, place, **ripe.only(kind)) as held:
        caretaker("run", build.root, **ripe.only(*others))
        check.lsm_path(client.connect(build.root).open_table(build.name), build.expected)
        held.release()
    settled(caretaker, build, kind, *others)


@pytest.mark.parametrize("build", ["stable ids"], indirect=True)
@pytest.mark.parametrize("other", ["fold", "index", "compact"])
@pytest.mark.parametrize("place", ["catchup.after", "compact.rewritten"])
def test_with_stable_row_ids_two_jobs_at_once_lose_nothing_either(caretaker, build, place, other):
    with Held(build.root, place, **ripe.only(KINDS[place])) as held:
        caretaker("run", build.root, **ripe.only(other))
        held.release()
    settled(caretaker, build, KINDS[place], other)


def add(build):
    rows = [ripe.row(i, 7) for i in (200, 201)]
    build.table.add(build._arrow(rows))
    build._remember(rows)


def delete(build):
    """From fragments that are rewritten and from one that is not; no key that an SSTable has."""
    lance.dataset(build.path).delete("id IN (3, 47, 53)")
    for key in (3, 47, 53):
        del build.expected.rows[key,]
        build.expected.gone.append((key,))


def update(build):
    lance.dataset(build.path).update({"state": "'touched'"}, where="id IN (4, 48, 54)")
    for key in (4, 48, 54):
        build.expected.rows[key,]["state"] = "touched"


def merge(build):
    """Through the LSM path, with keys that a fold works on as well."""
    build.put([ripe.row(i, 8) for i in (1, 5, 49, 55, 90, 300)])
    build.delete([ripe.row(i, 0) for i in (16, 51)])


WRITES = [add, delete, update, merge]


@pytest.mark.parametrize("write", WRITES)
def test_a_compaction_and_one_write_meanwhile(caretaker, build, write):
    with Held(build.root, "compact.rewritten", **ripe.only("compact")) as held:
        write(build)
        check.lsm_path(build.table, build.expected)
        held.release()
    settled(caretaker, build, "compact")


PLACES = [*BEFORE_COMMIT, "fold.scanned", "cleanup.before", "retire.before", "collect.file"]
STABLE = ["fold.before_commit", "index.after", "compact.rewritten"]
WAYS = [(place, "addresses") for place in PLACES] + [(place, "stable ids") for place in STABLE]


@pytest.mark.parametrize(("place", "build"), WAYS, indirect=["build"])
def test_a_job_and_writes_of_every_kind_meanwhile(caretaker, build, place):
    with Held(build.root, place, **ripe.only(KINDS[place])) as held:
        for write in WRITES:
            write(build)
        check.lsm_path(build.table, build.expected)
        held.release()
    settled(caretaker, build, KINDS[place])
