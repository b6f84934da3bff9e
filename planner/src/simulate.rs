//! A model of what each job does to the facts, and a virtual clock over the planner: a workload and a policy
//! in, a timeline out. For the preview and the tests.

mod attempts;
mod base;
mod clock;
mod disk;
mod faults;
mod garbage;
mod knobs;
mod queue;
mod records;
mod rows;
mod series;
mod start;
mod timeline;
mod work;
mod workload;
mod writer;

use alloc::{collections::BTreeSet, vec::Vec};

pub use self::clock::run;
pub use self::faults::Fault;
pub use self::knobs::{PRESETS, Preset, WORKLOAD};
pub use self::start::{DURATION_MS, FAULTS_MAX, JOBS_MAX, SAMPLES, Simulation, Unfit};
pub use self::timeline::{
    JobOutcome, JobRecord, KindTotals, Samples, ShardSamples, Spread, Staleness, Timeline, Totals,
};
pub use self::workload::Workload;

use crate::facts::{CleanupSuccess, RemapFacts};
use crate::facts::{GarbageFacts, GarbageKind, ShardFacts, TableFacts};
use crate::job::{IndexOp, JobSpec, SsTableId};

/// What `facts` look like after `job` has run at `now_ms`, at once and without trouble.
///
/// A job that no longer fits (run [`crate::check::job`] first) changes only what it still names.
pub fn apply(facts: &mut TableFacts, job: &JobSpec, now_ms: u64) {
    match job {
        JobSpec::Fold { shard, sstables, .. } => {
            commit(facts, now_ms);
            base::fold(facts, shard, sstables, now_ms);
            let highest = sstables.iter().map(|s| s.generation).max().unwrap_or(0);
            for shard in named(facts, shard) {
                shard.compacted_generation = shard.compacted_generation.max(highest);
            }
        }
        JobSpec::Retire { shard, sstables } => {
            named(facts, shard).for_each(|shard| retire(shard, sstables, now_ms));
        }
        JobSpec::CatchUp { indexes, .. } => {
            commit(facts, now_ms);
            base::index(facts, indexes, IndexOp::Append);
            for shard in &mut facts.shards {
                let done = indexes.iter().map(|name| (name.clone(), shard.compacted_generation));
                shard.caught_up.extend(done);
            }
        }
        JobSpec::Collect { shard, files, .. } => {
            let files: BTreeSet<_> = files.iter().map(|file| (file.kind, &*file.path, file.position)).collect();
            for garbage in named(facts, shard).filter_map(|s| s.garbage.as_mut()) {
                garbage.retain(|file| !files.contains(&(file.kind, &*file.path, file.position)));
            }
        }
        JobSpec::Index { indexes, op, .. } => {
            facts.version = facts.version.saturating_add(1);
            base::index(facts, indexes, *op);
        }
        JobSpec::Compact { tasks, deferred, target_rows, .. } => {
            facts.version = facts.version.saturating_add(1);
            base::compact(facts, tasks, *deferred, *target_rows, now_ms);
        }
        JobSpec::Cleanup { read_version, .. } => {
            // Files go, and no version comes.
            let (start_version, recorded_version) = (*read_version, facts.version);
            let success = CleanupSuccess { start_version, finished_at_ms: now_ms, recorded_version };
            facts.cleanup.get_or_insert_default().last_success = Some(success);
        }
        JobSpec::Remap { .. } => {
            facts.version = facts.version.saturating_add(1);
            facts.remap = Some(RemapFacts::default());
        }
    }
    facts.failed.retain(|failed| failed.kind != job.kind());
}

/// A new version of the base, which records progress of the MemWAL.
fn commit(facts: &mut TableFacts, now_ms: u64) {
    facts.version = facts.version.saturating_add(1);
    for shard in &mut facts.shards {
        shard.recorded_at_ms = Some(now_ms);
    }
}

fn named<'a>(facts: &'a mut TableFacts, shard: &'a str) -> impl Iterator<Item = &'a mut ShardFacts> {
    facts.shards.iter_mut().filter(move |s| s.shard == shard)
}

/// By identity, never by position (R2.10): what else the list holds by now stays.
fn retire(shard: &mut ShardFacts, sstables: &[SsTableId], now_ms: u64) {
    let (gone, kept): (Vec<_>, Vec<_>) =
        core::mem::take(&mut shard.sstables).into_iter().partition(|s| sstables.contains(&s.id()));
    shard.sstables = kept;
    shard.manifest_version = shard.manifest_version.saturating_add(1);
    let Some(garbage) = &mut shard.garbage else { return };
    garbage.extend(gone.into_iter().map(|s| GarbageFacts {
        kind: GarbageKind::SsTable,
        path: s.path,
        position: s.generation,
        bytes: s.bytes.unwrap_or(0),
        since_ms: Some(now_ms),
    }));
}
