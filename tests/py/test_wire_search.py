"""What a search over the wire answers is what the same rows answer in a table that is opened without a server."""

import client  # first: it quiets the libraries

import itertools
import random

import lancedb
import numpy as np
import pytest
from lancedb.index import FTS, IvfFlat
from lancedb.query import ColumnOrdering, BoostQuery, MatchQuery, MultiMatchQuery, PhraseQuery

import wire
from remote import Pod
from wire import PLAIN, WAIT, late, query, rows

ALL = 10_000


class Twins:
    """One table's rows on a server, in the base, in SSTables and in memtables, and in a table without one."""

    def __init__(self, db, kind, local, seed):
        self.served = wire.create(db, kind, rows(range(200)))
        self.local = local.create_table(next(wire.names), rows(range(200)))
        # Also rows that are written again, deleted, and written again after that.
        chance = random.Random(seed)
        for turn in range(1, 6):
            ids = chance.sample(range(260), 30)
            came, gone = rows(ids, seed=turn), tuple(chance.sample(range(260), 8))
            for table in (self.served, self.local):
                wire.upsert(table, came)
                table.delete(f"id in {gone}")
            if kind != PLAIN and turn in (2, 4):
                self.served.flush_lsm()

    def each(self, ask):
        """What a query finds in both."""
        return [ask(table).to_list() for table in (self.served, self.local)]


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    root = tmp_path_factory.mktemp("search") / "db"
    root.mkdir()
    with Pod(root, **wire.IDLE) as pod:
        yield pod


@pytest.fixture(scope="module", params=wire.PAIRS, ids="-".join)
def twins(pod, tmp_path_factory, request):
    face, kind = request.param
    return Twins(wire.connect(pod.url, face), kind, lancedb.connect(tmp_path_factory.mktemp("local")), seed=kind)


def by_id(found):
    return sorted(found, key=lambda row: row["id"])


def alike(found, expected):
    """The same rows with the same values in one order, but for what a distance loses in its last digits."""
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    for one, other in zip(found, expected):
        assert one.keys() == other.keys()
        for name, value in other.items():
            if isinstance(value, float):
                assert one[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
            else:
                assert one[name] == value, name


@pytest.mark.parametrize(
    "which",
    [None, "n > 12", "id in (3, 70, 199, 230)", "text like 'ape%'", "kind = 1 and n < 9 or id = 4", "n is null",
     "array_has(tags, 'tag2')", "id between 190 and 240 and not (n = 3)", "id < 0"],
)
def test_filters(twins, which):
    found, expected = twins.each(lambda table: query(table).limit(ALL) if which is None else (
        query(table).where(which).limit(ALL)))
    assert by_id(found) == by_id(expected) and (found or which in ("n is null", "id < 0"))
    assert twins.served.count_rows(which) == len(expected)


@pytest.mark.parametrize("columns", [["text", "id"], ["id", "vector"], {"id": "id", "x": "n * 2 + kind", "t": "upper(text)"}])
def test_columns_and_expressions(twins, columns):
    found, expected = twins.each(lambda table: query(table).select(columns).limit(ALL))
    assert by_id(found) == by_id(expected)
    # Of expressions the client writes an object, sorted.
    assert list(found[0]) == (columns if isinstance(columns, list) else sorted(columns))


def test_orders_limits_and_offsets(twins):
    keys = [("id", True), ("id", False), ("n", True), ("n", False)]
    for (name, ascending), limit, offset, which in itertools.product(keys, [5, ALL], [0, 7], [None, "n > 9"]):
        # The key makes the order one.
        order = [ColumnOrdering(column_name=name, ascending=ascending), ColumnOrdering(column_name="id")]

        def ask(table):
            found = query(table).select(["id", "n"]).order_by(order).limit(limit).offset(offset)
            return found if which is None else found.where(which)

        found, expected = twins.each(ask)
        assert found == expected, (name, ascending, limit, offset, which)


def test_an_order_by_what_is_not_asked_for(twins):
    found = query(twins.served).select(["n"]).order_by([ColumnOrdering(column_name="id", ascending=False)]).limit(9)
    expected = sorted(twins.local.search().limit(ALL).to_list(), key=lambda row: -row["id"])[:9]
    assert found.to_list() == [{"n": row["n"]} for row in expected]


def test_pages_without_an_order_hold_every_row_once(twins):
    expected = [row["id"] for row in twins.local.search().select(["id"]).limit(ALL).to_list()]
    found = []
    while page := query(twins.served).select(["id"]).limit(70).offset(len(found)).to_list():
        found += [row["id"] for row in page]
    assert sorted(found) == sorted(expected)


def vectors(count):
    return np.random.default_rng(9).random((count, wire.DIMENSION), dtype=np.float32)


def check_vectors(twins):
    for vector in vectors(1):
        for make in [
            lambda table: query(table, vector).limit(10),
            lambda table: query(table, vector).limit(200),
            lambda table: query(table, vector).limit(7).offset(5),
            lambda table: query(table, vector).where("n > 12").limit(10),
            lambda table: late(query(table, vector), "n > 12").limit(40),
            lambda table: query(table, vector).distance_range(0.3, 0.8).limit(100),
            lambda table: query(table, vector).distance_range(upper_bound=0.5).limit(100),
            lambda table: query(table, vector).distance_range(lower_bound=0.9).where("kind = 0").limit(9),
            lambda table: query(table, vector).limit(5).select(["id", "n"]),
            lambda table: query(table, vector).limit(5).select({"id": "id", "x": "n + 1"}),
        ]:
            # An index is asked for all it has: what it leaves out is no fault of ours.
            alike(*twins.each(lambda table: make(table).nprobes(20)))


def test_nearest_vectors(twins):
    check_vectors(twins)
    for metric in ["l2", "cosine", "dot"]:
        alike(*twins.each(lambda table: query(table, vectors(1)[0]).distance_type(metric).limit(20)))


def test_several_vectors_at_once(twins):
    asked = list(vectors(3))
    found = query(twins.served, asked).limit(4).select(["id"]).to_list()
    for at, vector in enumerate(asked):
        of_one = [row["id"] for row in found if row["query_index"] == at]
        assert of_one == [row["id"] for row in twins.local.search(vector).limit(4).to_list()]


def words(row):
    return set(row["text"].split())


def test_words_and_vectors_with_indexes(twins):
    for column, config in [("vector", IvfFlat(num_partitions=4)), ("text", FTS(with_position=True))]:
        twins.served.create_index(column, config=config, wait_timeout=WAIT)
    twins.local.create_index("vector", config=IvfFlat(num_partitions=4))
    twins.local.create_index("text", config=FTS(with_position=True))
    check_vectors(twins)
    check_words(twins)
    # Lance looks for misspelt words in indexes only, so that not all is found that is newer.
    found = query(twins.served, text=MatchQuery("bera", "text", fuzziness=2)).limit(ALL).to_list()
    assert found and all("bear" in words(row) for row in found)
    # Newer than the indexes.
    for table in (twins.served, twins.local):
        wire.upsert(table, rows(range(0, 300, 7), seed=50))
        table.delete("id in (1, 7, 14, 200)")
    check_vectors(twins)
    check_words(twins)
    sharded = twins.served.get_lsm_write_spec() is not None
    both = query(twins.served, vectors(1)[0], "ape").limit(10)
    if sharded and not wire.NEW:
        # That client brings the two together by row ids alone.
        with pytest.raises(Exception, match="does not support with_row_id"):
            both.to_list()
    else:
        assert len({row["id"] for row in both.to_list()}) == 10
    if sharded:
        twins.served.checkpoint_lsm()
        check_vectors(twins)
        check_words(twins)


def check_words(twins):
    ape, cat = MatchQuery("ape", "text"), MatchQuery("cat", "text")
    for text in [
        "row7",
        "ape cat",
        "nothing",
        PhraseQuery("ape cat", "text"),
        MatchQuery("ape cat", "text", operator="AND"),
        MultiMatchQuery("gnu", ["text"]),
        ape & cat,
        ape | cat,
        BoostQuery(ape, cat),
    ]:
        for which in [None, "n > 10"]:

            def ask(table):
                found = query(table, text=text).select(["id", "text"]).limit(ALL)
                return found if which is None else found.where(which)

            found, expected = twins.each(ask)
            # Scores are of the words of each part of the table: only an answer's rows are one.
            assert {row["id"] for row in found} == {row["id"] for row in expected}, (text, which)
            assert len(found) == len(expected)
            scores = [row["_score"] for row in found]
            assert scores == sorted(scores, reverse=True)
    everything = twins.local.search().limit(ALL).to_list()
    found = query(twins.served, text="ape").limit(ALL).to_list()
    assert {row["id"] for row in found} == {row["id"] for row in everything if "ape" in words(row)}
