//! How many shards, and fragments, a second the planner decides, natively.
//!
//! `cargo bench -p caretaker-benches --bench plan`; the throughput is in elements, one a shard or a
//! fragment.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use planner::facts::{FragmentFacts, IndexFacts, ShardFacts, SsTableFacts, TableFacts};
use planner::plan::{Trigger, plan_table};
use planner::policy::Policy;

const NOW_MS: u64 = 1_800_000_000_000;

/// A table half of whose shards are due, with every index a little behind.
fn table(shards: u64, sstables: u64, indexes: u64) -> TableFacts {
    let indexes: Vec<IndexFacts> = (0..indexes)
        .map(|n| IndexFacts {
            name: format!("column_{n}_idx"),
            kind: "btree".into(),
            unindexed_rows: Some(n),
            ..IndexFacts::default()
        })
        .collect();
    let shard = |n: u64| ShardFacts {
        shard: format!("{n:08x}-0000-5000-8000-000000000000"),
        manifest_version: 100,
        sstables: (1..=sstables)
            .map(|generation| SsTableFacts {
                generation: 50 + generation,
                path: format!("{n:08x}_gen_{generation}"),
                bytes: Some(16 << 20),
                rows: Some(20_000),
                flushed_at_ms: Some(NOW_MS - 60_000 + generation),
            })
            .collect(),
        compacted_generation: 50 + if n.is_multiple_of(2) { 0 } else { sstables / 2 },
        caught_up: indexes.iter().map(|index| (index.name.clone(), 50)).collect(),
        ..ShardFacts::default()
    };
    TableFacts {
        table: "items".into(),
        version: 7,
        primary_key: vec!["id".into()],
        shards: (0..shards).map(shard).collect(),
        indexes,
        ..TableFacts::default()
    }
}

/// One in three is full; the others are small, and a little is deleted.
fn fragment(id: u64) -> FragmentFacts {
    let rows = if id.is_multiple_of(3) { 2_000_000 } else { 1_000 };
    FragmentFacts { id, rows, deleted: Some(id % 50), bytes: Some(rows * 100), coverage: 1, excluded: false }
}

fn plans(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan_table");
    for (shards, sstables, indexes) in [(1, 4, 1), (64, 8, 10), (64, 64, 10), (1024, 8, 10)] {
        let facts = table(shards, sstables, indexes);
        let policy = Policy::default();
        group.throughput(Throughput::Elements(shards));
        let name = format!("{shards} shards x {sstables} sstables x {indexes} indexes");
        group.bench_with_input(BenchmarkId::from_parameter(name), &facts, |bencher, facts| {
            bencher.iter(|| plan_table(black_box(facts), &policy, NOW_MS, Trigger::Tick));
        });
    }
    let fragments = 1_000_000;
    let facts = TableFacts { fragments: Some((0..fragments).map(fragment).collect()), ..table(0, 0, 3) };
    let policy = Policy::default();
    group.throughput(Throughput::Elements(fragments));
    group.bench_function("1000000 fragments", |bencher| {
        bencher.iter(|| plan_table(black_box(&facts), &policy, NOW_MS, Trigger::Tick));
    });
    group.finish();
}

criterion_group!(benches, plans);
criterion_main!(benches);
