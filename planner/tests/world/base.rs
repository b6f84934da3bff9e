//! Arbitrary facts of the base, and the knobs that belong to them.

use planner::facts::{CleanupFacts, CleanupSuccess, FailedFacts, FragmentFacts, MismatchFacts};
use planner::facts::{RemapFacts, RunningFacts, TableFacts};
use planner::policy::{AgentPolicy, CleanupPolicy, CompactionPolicy, IndexPolicy, Policy, RemapPolicy};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::number;

const JOBS: [&str; 5] = ["compact", "cleanup", "remap", "reindex_btree", "reindex_fts"];

/// Small knobs for a policy.
pub(crate) fn knobs() -> impl Strategy<Value = (IndexPolicy, CompactionPolicy, CleanupPolicy, RemapPolicy)> {
    let index = (1u64..20, 0u64..200, 1u64..60, 1u64..4).prop_map(|(rows_min, permille, age_ms_max, segments_max)| {
        IndexPolicy { rows_min, permille, age_ms_max, segments_max }
    });
    let compaction = ((1u64..5, 1u64..200, 1u64..60), (0u64..1001, 2u64..9, 1u64..100, 0u64..2)).prop_map(
        |((small_min, target_bytes, target_rows), (deleted_permille, fragments_max, job_bytes, defer_remap))| {
            CompactionPolicy {
                small_min,
                target_bytes,
                target_rows,
                deleted_permille,
                fragments_max,
                job_bytes,
                defer_remap,
            }
        },
    );
    let cleanup = (0u64..3, 1u64..5, 1u64..60, 1u64..10, 1u64..60).prop_map(
        |(min_age_ms, version_interval, interval_ms, initial_version, retry_delay_ms)| CleanupPolicy {
            min_age_ms,
            version_interval,
            interval_ms,
            initial_version,
            retry_delay_ms,
            ..CleanupPolicy::default()
        },
    );
    let remap = (1u64..4, 1u64..60).prop_map(|(rewrites_min, age_ms_max)| RemapPolicy { rewrites_min, age_ms_max });
    (index, compaction, cleanup, remap)
}

/// Facts of the base, on top of a table's.
pub(crate) fn of(facts: impl Strategy<Value = TableFacts>) -> impl Strategy<Value = TableFacts> {
    let index = (option::of(0u64..30), option::of(0u64..130), option::of(1u64..6), prop::bool::weighted(0.2));
    let fragment = (0u64..40, option::weighted(0.9, 0u64..40), option::weighted(0.7, 0u64..60), 0u32..3, 0u8..12);
    let history = (option::of((0u64..9, 0u64..130, 0u64..9)), option::of(0u64..130), prop::bool::weighted(0.1));
    let remap = (0u64..5, option::of(0u64..130), 0usize..4);
    let jobs = vec((0..JOBS.len(), 0u64..130, any::<bool>()), 0..2);
    let failed = vec((0..JOBS.len(), 0u64..4, 0u64..130), 0..2);
    let base = (option::weighted(0.8, vec(fragment, 0..14)), option::of(history), option::of(remap));
    let rest = (vec(index, 4), jobs, failed, prop::bool::weighted(0.2), 0u64..200);
    (facts, base, rest).prop_map(|(facts, (fragments, history, remap), (indexes, jobs, failed, stable, rows))| {
        let mut facts = TableFacts { stable_row_ids: stable, rows: Some(rows), ..facts };
        for (index, (rows, since, segments, withdrawn)) in facts.indexes.iter_mut().zip(indexes) {
            (index.unindexed_rows, index.unindexed_since_ms) = (rows, since);
            (index.segments, index.withdrawn) = (segments, withdrawn);
        }
        facts.fragments = fragments.map(|all| {
            let each = all.into_iter().enumerate();
            each.map(|(at, (rows, deleted, bytes, coverage, excluded))| FragmentFacts {
                id: 3 * at as u64,
                rows,
                deleted: deleted.map(|deleted| deleted.min(rows)),
                bytes,
                coverage: coverage / 2,
                excluded: excluded == 0,
            })
            .collect()
        });
        facts.cleanup = history.map(|(last, last_failure_at_ms, opted_out)| {
            let success = |(start_version, finished_at_ms, recorded_version)| CleanupSuccess {
                start_version,
                finished_at_ms,
                recorded_version,
            };
            CleanupFacts { opted_out, last_success: last.map(success), last_failure_at_ms }
        });
        facts.remap = remap.map(|(rewrites, oldest_at_ms, indexes)| {
            let indexes = facts.indexes.iter().take(indexes).map(|index| index.name.clone()).collect();
            RemapFacts { rewrites, oldest_at_ms, indexes }
        });
        let open = |(kind, since_ms, deferred)| RunningFacts { deferred, ..open(kind, since_ms) };
        facts.running = jobs.into_iter().map(open).collect();
        facts.failed = failed.into_iter().map(|(kind, times, last)| failure(kind, times, last)).collect();
        facts
    })
}

/// Any numbers at all.
pub(crate) fn wild(facts: impl Strategy<Value = TableFacts>) -> impl Strategy<Value = TableFacts> {
    let fragment = (number(), number(), option::of(number()), option::of(number()), 0u32..2, any::<bool>());
    let fragment = fragment.prop_map(|(id, rows, deleted, bytes, coverage, excluded)| FragmentFacts {
        id,
        rows,
        deleted,
        bytes,
        coverage,
        excluded,
    });
    let history = (option::of((number(), number(), number())), option::of(number()));
    let remap = (number(), option::of(number()), vec("[a-c]", 0..3));
    let index = (option::of(number()), option::of(number()), any::<(bool, bool)>());
    let key = "caretaker.(paused|cleanup.enabled|collect_files_max|x)|lance.(compaction|auto_cleanup).[a-z_]{1,20}";
    let config = prop::collection::btree_map(key, "true|false|[0-9]{1,21}|[0-9a-z. ]{0,9}", 0..3);
    let jobs = vec((0..JOBS.len(), number()), 0..3);
    let base = (option::of(vec(fragment, 0..9)), option::of(history), option::of(remap));
    let switches = (any::<bool>(), option::weighted(0.1, number()));
    (facts, base, vec(index, 4), jobs, config, switches).prop_map(
        |(mut facts, (fragments, history, remap), indexes, jobs, config, (stable, mismatch))| {
            facts.fragments = fragments;
            facts.cleanup = history.map(|(last, last_failure_at_ms)| CleanupFacts {
                opted_out: false,
                last_success: last.map(|(start_version, finished_at_ms, recorded_version)| CleanupSuccess {
                    start_version,
                    finished_at_ms,
                    recorded_version,
                }),
                last_failure_at_ms,
            });
            facts.remap = remap.map(|(rewrites, oldest_at_ms, indexes)| RemapFacts { rewrites, oldest_at_ms, indexes });
            for (index, (since, segments, (withdrawn, inline_only))) in facts.indexes.iter_mut().zip(indexes) {
                (index.unindexed_since_ms, index.segments) = (since, segments);
                (index.withdrawn, index.inline_only) = (withdrawn, inline_only);
            }
            facts.running = jobs.iter().map(|(kind, at)| open(*kind, *at)).collect();
            facts.failed = jobs.iter().map(|(kind, at)| failure(*kind, *at, *at)).collect();
            facts.overrides = config;
            facts.stable_row_ids = stable;
            facts.mismatch = mismatch.map(|at_ms| MismatchFacts { kind: "compact".into(), at_ms });
            facts
        },
    )
}

/// Any number in any knob.
pub(crate) fn wild_knobs(policy: impl Strategy<Value = Policy>) -> impl Strategy<Value = Policy> {
    (policy, vec(number(), 25)).prop_map(|(policy, n)| Policy {
        index: IndexPolicy { rows_min: n[0], permille: n[1], age_ms_max: n[2], segments_max: n[3] },
        compaction: CompactionPolicy {
            small_min: n[4],
            target_bytes: n[5],
            target_rows: n[6],
            deleted_permille: n[7],
            fragments_max: n[8],
            job_bytes: n[9],
            defer_remap: n[10],
        },
        cleanup: CleanupPolicy {
            min_age_ms: n[11],
            version_interval: n[12],
            interval_ms: n[13],
            initial_version: n[14],
            retry_delay_ms: n[15],
            retain_versions: n[16],
            delete_rate_max: n[17],
        },
        remap: RemapPolicy { rewrites_min: n[18], age_ms_max: n[19] },
        agent: AgentPolicy { tick_ms: n[20], sweep_ms: n[21], budget: n[22], backoff_ms: n[23], timeout_ms: n[24] },
        ..policy
    })
}

fn open(kind: usize, since_ms: u64) -> RunningFacts {
    RunningFacts { kind: JOBS[kind].into(), since_ms, holder: "job".into(), deferred: false, indexes: vec![] }
}

fn failure(kind: usize, times: u64, last_at_ms: u64) -> FailedFacts {
    FailedFacts { kind: JOBS[kind].into(), times, last_at_ms }
}
