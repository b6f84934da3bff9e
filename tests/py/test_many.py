"""Ten thousand tables and one that is never quiet: each is evaluated, and memory stays bounded."""

import re
import shutil
import threading
import time
from pathlib import Path

import lance
import pyarrow as pa

from conftest import table_path
from serving import MINUTE, Serving

TABLES = 10_000
COMPLETED = "lance_agent_coverage_cycles_completed_total"
# Beyond what ten thousand tables are known by, nothing may grow from one cycle to the next: only the cache of
# metadata fills up (64 MiB, executor/src/table.rs), and the allocator keeps some. 10 KiB lost a table would show.
MIB = 1 << 20
GROWTH = (64 + 32) * MIB


def resident(process):
    """Bytes of memory that the process has now."""
    [line] = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def scraped(serving, wanted, patience=5 * MINUTE):
    """Scrapes as Prometheus would, now and then: ten thousand tables are many series. Ends when each of `wanted`
    (name to least value) is reached."""
    end, reached = time.monotonic() + patience, {}
    while any(reached.get(name, -1) < least for name, least in wanted.items()):
        assert time.monotonic() < end and serving.process.poll() is None, (wanted, reached, serving.said[-5:])
        time.sleep(2)
        text = serving.ask("/metrics")
        reached = {name: float(re.search(rf"^{name} (.*)$", text, re.M)[1]) for name in wanted}


def test_one_hot_table_beside_ten_thousand_idle_ones_starves_nobody(root):
    first = table_path(root, "t0000")
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), str(first))
    for n in range(1, TABLES):
        shutil.copytree(first, table_path(root, f"t{n:04}"))
    hot = str(table_path(root, "hot"))
    lance.write_dataset(pa.table({"id": [0]}), hot)
    stop, events = threading.Event(), []
    # Sweeps follow one upon the other, so that a cycle is as short as this machine allows. No walk,
    # no file events: the flood comes through the hook, one event after the other.
    settings = {
        "AGENT_BUDGET": "500",
        "AGENT_SWEEP_INTERVAL_SECS": "1",
        "WAL_COMPACTION_INTERVAL_SECS": "0",
        "CARETAKER_STATE_DIR": "none",
    }
    with Serving(root, **settings) as serving:
        scraped(serving, {"caretaker_tables": TABLES + 1})

        def flood():
            while not stop.is_set():
                if len(events) % 50 == 0:
                    lance.write_dataset(pa.table({"id": [0]}), hot, mode="append")
                events.append(serving.ask("/v1/table/hot/evaluate", "POST"))

        writer = threading.Thread(target=flood)
        writer.start()
        try:
            scraped(serving, {COMPLETED: 2})
            before = resident(serving.process)
            scraped(serving, {COMPLETED: 3})
            grown = resident(serving.process) - before
        finally:
            stop.set()
            writer.join()
        metrics = serving.metrics()
        plain = {name: value for (name, labels), value in metrics.items() if not labels}
        assert plain["lance_agent_coverage_never_evaluated"] == plain["caretaker_tables_failing"] == 0
        assert plain["lance_agent_coverage_cycle_target"] == TABLES + 1
        # It had more events than there were evaluations, and was tended besides.
        done = metrics["caretaker_evaluations_total", frozenset({("outcome", "done")})]
        assert len(events) > 500 and done > 2 * TABLES
    assert len(lance.dataset(hot).get_fragments()) < len(events) / 50
    assert grown < GROWTH, f"{grown / MIB:.0f} MiB more after a further cycle"
