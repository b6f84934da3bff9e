//! Arbitrary facts and policies. `facts` can be true; `wild` need not.

mod base;

use std::collections::BTreeMap;

use planner::facts::{GarbageFacts, GarbageKind, IndexFacts, PassFacts, ShardFacts, ShardStatus};
use planner::facts::{SsTableFacts, TableFacts};
use planner::plan::Trigger;
use planner::policy::Policy;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

/// Times in the generated facts lie around this.
pub(crate) const NOW_MS: u64 = 100;
const KINDS: [&str; 5] = ["btree", "fts", "ivfpq", "zonemap", "fm"];

pub(crate) fn trigger() -> impl Strategy<Value = Trigger> {
    prop_oneof![Just(Trigger::Tick), Just(Trigger::Relief), Just(Trigger::Forced)]
}

/// Small knobs, so that small facts cross them; the walk is off now and then.
pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let fold = (0u64..3, 1u64..7, 1u64..100, 1u64..60);
    let limits = (1u64..6, 1u64..60, 0u64..60, 1u64..4, 0u64..40);
    (fold, limits, base::knobs()).prop_map(|((tick_ms, trigger_count, trigger_bytes, age_ms_max), limits, knobs)| {
        let (index, compaction, cleanup, remap) = knobs;
        let (prefix_max, pass_bytes, grace_ms, collect_files_max, retire_delay_ms) = limits;
        Policy {
            tick_ms,
            trigger_count,
            trigger_bytes,
            age_ms_max,
            prefix_max,
            pass_bytes,
            grace_ms,
            collect_files_max,
            retire_delay_ms,
            index,
            compaction,
            cleanup,
            remap,
            ..Policy::default()
        }
    })
}

/// Facts that [`planner::check::facts`] accepts.
pub(crate) fn facts() -> impl Strategy<Value = TableFacts> {
    let indexes = btree_map("[a-e]", 0..KINDS.len(), 0..4).prop_map(|indexes| {
        let index =
            |(name, kind): (String, usize)| IndexFacts { name, kind: KINDS[kind].into(), ..IndexFacts::default() };
        indexes.into_iter().map(index).collect::<Vec<_>>()
    });
    let key = prop_oneof![9 => Just(vec!["id".to_string()]), 1 => Just(vec![])];
    let facts = (indexes, btree_map("[0-9a-f]{2}", shard(), 0..4), key, prop::bool::weighted(0.1)).prop_map(
        |(indexes, shards, primary_key, paused)| TableFacts {
            table: "t".into(),
            version: 7,
            primary_key,
            indexes,
            shards: shards.into_iter().map(|(shard, facts)| ShardFacts { shard, ..facts }).collect(),
            paused,
            ..TableFacts::default()
        },
    );
    base::of(facts)
}

fn shard() -> impl Strategy<Value = ShardFacts> {
    (0u64..9).prop_flat_map(|folded| {
        let listed = btree_set(1u64..14, 0..9).prop_flat_map(|generations| {
            let each = generations.len();
            (Just(generations), vec((option::weighted(0.8, 0u64..50), option::weighted(0.8, 0u64..130)), each))
        });
        let covered = btree_map("[a-f]", 0..=folded, 0..6);
        let retained = prop_oneof![option::of(0..=folded), Just(Some(u64::MAX))];
        let files = option::of(vec((0u8..3, 1u64..14, 0u64..50, option::weighted(0.8, 0u64..130)), 0..9));
        let seldom = || prop::bool::weighted(0.1);
        let state = (seldom(), seldom(), seldom(), 0u64..14, option::of(0u64..130));
        (Just(folded), listed, covered, retained, files, state).prop_map(build_shard)
    })
}

type Sizes = (std::collections::BTreeSet<u64>, Vec<(Option<u64>, Option<u64>)>);
type File = (u8, u64, u64, Option<u64>);
type Parts = (u64, Sizes, BTreeMap<String, u64>, Option<u64>, Option<Vec<File>>, (bool, bool, bool, u64, Option<u64>));

fn build_shard(
    (folded, listed, caught_up, retained, files, (sealed, detached, pass, manifest, recorded_at_ms)): Parts,
) -> ShardFacts {
    let sstables = listed.0.into_iter().zip(listed.1);
    let sstable = |(generation, (bytes, flushed_at_ms))| SsTableFacts {
        generation,
        path: format!("listed_{generation}"),
        bytes,
        rows: None,
        flushed_at_ms,
    };
    let file = |(kind, position, bytes, since_ms): File| GarbageFacts {
        kind: [GarbageKind::SsTable, GarbageKind::WalEntry, GarbageKind::Manifest][usize::from(kind)],
        path: format!("unlisted_{kind}_{position}"),
        position,
        bytes,
        since_ms,
    };
    let garbage = files.map(|files| {
        let by_path: BTreeMap<String, _> = files.into_iter().map(file).map(|f| (f.path.clone(), f)).collect();
        by_path.into_values().collect()
    });
    ShardFacts {
        shard: String::new(),
        status: if sealed { ShardStatus::Sealed } else { ShardStatus::Active },
        manifest_version: manifest,
        sstables: sstables.map(sstable).collect(),
        compacted_generation: folded,
        detached,
        recorded_at_ms,
        caught_up,
        retained_generation: retained,
        retained_by: None,
        garbage,
        pass: pass.then(|| PassFacts { since_ms: 3, holder: "job".into() }),
    }
}

/// Any number, the extremes often.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..4, Just(u64::MAX), Just(u64::MAX - 1), any::<u64>()]
}

/// Facts that may contradict themselves in every way the types allow.
pub(crate) fn wild() -> impl Strategy<Value = TableFacts> {
    let index = ("[a-c\n]", 0..KINDS.len(), option::of(number()));
    let index = index.prop_map(|(name, kind, unindexed_rows)| IndexFacts {
        name,
        kind: KINDS[kind].into(),
        unindexed_rows,
        ..IndexFacts::default()
    });
    let rest = (number(), option::of(number()), vec("[a-c]", 0..3), any::<bool>());
    let facts = (".{0,50}", vec(index, 0..4), vec(wild_shard(), 0..4), rest).prop_map(
        |(table, indexes, shards, (version, rows, primary_key, paused))| TableFacts {
            table,
            version,
            rows,
            primary_key,
            indexes,
            shards,
            paused,
            ..TableFacts::default()
        },
    );
    base::wild(facts)
}

fn wild_shard() -> impl Strategy<Value = ShardFacts> {
    let sstable = (number(), "[a-c]", option::of(number()), option::of(number()));
    let sstable = sstable.prop_map(|(generation, path, bytes, flushed_at_ms)| SsTableFacts {
        generation,
        path,
        bytes,
        rows: None,
        flushed_at_ms,
    });
    let file = (0usize..3, "[a-e]", number(), number(), option::of(number()));
    let file = file.prop_map(|(kind, path, position, bytes, since_ms)| GarbageFacts {
        kind: [GarbageKind::SsTable, GarbageKind::WalEntry, GarbageKind::Manifest][kind],
        path,
        position,
        bytes,
        since_ms,
    });
    let times = (option::of(number()), option::of(number()));
    let state = (any::<(bool, bool)>(), number(), number(), option::of(number()), option::of(".{0,9}"));
    let lists = (vec(sstable, 0..6), btree_map("[a-d\n]", number(), 0..4), option::of(vec(file, 0..6)));
    ("[0-9a-f-]{1,3}|.{0,40}", state, lists, times).prop_map(|(shard, state, lists, (pass, recorded_at_ms))| {
        let ((sealed, detached), manifest_version, compacted_generation, retained_generation, retained_by) = state;
        let (sstables, caught_up, garbage) = lists;
        ShardFacts {
            shard,
            status: if sealed { ShardStatus::Sealed } else { ShardStatus::Active },
            manifest_version,
            sstables,
            compacted_generation,
            detached,
            recorded_at_ms,
            caught_up,
            retained_generation,
            retained_by,
            garbage,
            pass: pass.map(|since_ms| PassFacts { since_ms, holder: "job".into() }),
        }
    })
}

/// Knobs of any value at all, also those that [`Policy::set`] refuses.
pub(crate) fn wild_policy() -> impl Strategy<Value = Policy> {
    let policy = vec(number(), 11).prop_map(|n| Policy {
        tick_ms: n[0],
        trigger_count: n[1],
        trigger_bytes: n[2],
        age_ms_max: n[3],
        prefix_max: n[4],
        pass_bytes: n[5],
        concurrency: n[6],
        pass_memory_bytes: n[7],
        grace_ms: n[8],
        collect_files_max: n[9],
        retire_delay_ms: n[10],
        ..Policy::default()
    });
    base::wild_knobs(policy)
}
