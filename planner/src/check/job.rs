use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};

use super::{Found, Rule, Violation, maintenance};
use crate::decision::collect::{Need, Rules};
use crate::facts::{ShardFacts, ShardStatus, TableFacts};
use crate::gate;
use crate::job::{GarbageId, JobSpec, SsTableId};
use crate::plan::Hold;

/// Whether a job may run on a table as it is now, by identity (R2.10, R3.6).
///
/// The shard's own latch is not looked at: whoever runs the job holds it. A `Collect` needs facts
/// whose garbage was walked.
///
/// # Errors
/// Every violation. [`Rule::is_stale`] tells what was overtaken from what was never right.
pub fn job(job: &JobSpec, facts: &TableFacts) -> Result<(), Vec<Violation>> {
    let mut found = Found::default();
    let Some(id) = job.shard() else {
        of_table(&mut found, facts, job);
        return found.result();
    };
    let Some(shard) = facts.shards.iter().find(|s| s.shard == id) else {
        found.add(Rule::Missing, format!("table `{}` has no shard `{id}`", facts.table));
        return found.result();
    };
    gate(&mut found, facts, shard, job);
    match job {
        JobSpec::Fold { sstables, .. } => fold(&mut found, shard, sstables),
        JobSpec::Retire { sstables, .. } => retire(&mut found, facts, shard, sstables),
        JobSpec::Collect { files, .. } => collect(&mut found, shard, files),
        _ => {}
    }
    found.result()
}

fn of_table(found: &mut Found, facts: &TableFacts, job: &JobSpec) {
    if !matches!(job, JobSpec::CatchUp { .. }) {
        stopped(found, facts);
    }
    match job {
        JobSpec::CatchUp { kind, indexes } => named(found, facts, kind, indexes),
        JobSpec::Index { kind, indexes, op } => {
            named(found, facts, kind, indexes);
            maintenance::index(found, facts, indexes, *op);
        }
        JobSpec::Compact { tasks, deferred, .. } => maintenance::compact(found, facts, tasks, *deferred),
        JobSpec::Cleanup { .. } => maintenance::cleanup(found, facts),
        JobSpec::Remap { indexes } => maintenance::remap(found, facts, indexes),
        JobSpec::Fold { .. } | JobSpec::Retire { .. } | JobSpec::Collect { .. } => {}
    }
}

fn stopped(found: &mut Found, facts: &TableFacts) {
    let why = match gate::stopped(facts) {
        None => return,
        Some(Hold::Mismatch { kind, .. }) => format!("has answers that `{kind}` changed"),
        Some(_) => "is paused".into(),
    };
    found.add(Rule::Gate, format!("table `{}` {why}: only catch-up runs", facts.table));
}

fn gate(found: &mut Found, facts: &TableFacts, shard: &ShardFacts, job: &JobSpec) {
    let (table, id) = (&facts.table, &shard.shard);
    stopped(found, facts);
    if shard.status == ShardStatus::Sealed {
        found.add(Rule::Gate, format!("shard `{id}` is sealed: it is left alone"));
    }
    if shard.detached {
        found.add(Rule::Gate, format!("shard `{id}`: table `{table}` has no MemWAL index to record progress in"));
    }
    if matches!(job, JobSpec::Fold { .. }) && facts.primary_key.is_empty() {
        found.add(Rule::Gate, format!("table `{table}` has no primary key to fold by"));
    }
}

fn fold(found: &mut Found, shard: &ShardFacts, sstables: &[SsTableId]) {
    let id = &shard.shard;
    if sstables.is_empty() {
        found.add(Rule::Empty, format!("the fold of shard `{id}` names no SSTable"));
    }
    let folded = shard.compacted_generation;
    let mut all_there = true;
    let listed = Listed::of(shard);
    for sstable in sstables {
        let SsTableId { generation, path } = sstable;
        if *generation <= folded {
            all_there = false;
            found.add(Rule::Folded, format!("shard `{id}`: generation {generation} is folded already, up to {folded}"));
        } else if !listed.has(sstable) {
            all_there = false;
            found.add(Rule::Missing, not_listed(id, *generation, path));
        }
    }
    let oldest = shard.unfolded();
    let prefix = oldest.iter().map(|s| s.id()).take(sstables.len());
    if all_there && !prefix.eq(sstables.iter().cloned()) {
        let first: Vec<u64> = oldest.iter().take(sstables.len()).map(|s| s.generation).collect();
        found.add(
            Rule::Prefix,
            format!("shard `{id}`: the oldest SSTables that are not folded are {first:?}, in this order"),
        );
    }
}

fn retire(found: &mut Found, facts: &TableFacts, shard: &ShardFacts, sstables: &[SsTableId]) {
    let id = &shard.shard;
    if sstables.is_empty() {
        found.add(Rule::Empty, format!("the retirement of shard `{id}` names no SSTable"));
    }
    let behind = facts.furthest_behind(shard);
    let listed = Listed::of(shard);
    for sstable in sstables {
        let SsTableId { generation, path } = sstable;
        if !listed.has(sstable) {
            found.add(Rule::Missing, not_listed(id, *generation, path));
        }
        let folded = shard.compacted_generation;
        if *generation > folded {
            found.add(
                Rule::NotFolded,
                format!("shard `{id}`: generation {generation} is not folded, only up to {folded}"),
            );
        }
        if let Some((index, covers)) = behind.filter(|(_, covers)| *covers < *generation) {
            found.add(
                Rule::NotCovered,
                format!("shard `{id}`: index `{index}` covers generation {covers}, not {generation}"),
            );
        }
    }
}

fn collect(found: &mut Found, shard: &ShardFacts, files: &[GarbageId]) {
    let id = &shard.shard;
    if files.is_empty() {
        found.add(Rule::Empty, format!("the collection of shard `{id}` names no file"));
    }
    let garbage = shard.garbage.as_deref().unwrap_or_default();
    let rules = Rules::new(shard, garbage);
    let known: BTreeMap<&str, _> = garbage.iter().map(|g| (g.path.as_str(), g)).collect();
    for file in files {
        let Some(fact) = known.get(file.path.as_str()).filter(|g| g.id() == *file) else {
            found.add(Rule::Missing, format!("shard `{id}`: `{}` is not garbage", file.path));
            continue;
        };
        let why = match rules.judge(fact) {
            Need::Nobody => continue,
            Need::Retained => "is needed by a retained version of the base",
            Need::Never => "is in use, or the newest of its kind",
        };
        found.add(Rule::Needed, format!("shard `{id}`: `{}` {why}", file.path));
    }
}

fn named(found: &mut Found, facts: &TableFacts, kind: &str, indexes: &[String]) {
    let table = &facts.table;
    if indexes.is_empty() {
        found.add(Rule::Empty, format!("the job on `{kind}` names no index of `{table}`"));
    }
    let known: BTreeSet<&str> = facts.indexes.iter().filter(|i| i.kind == kind).map(|i| i.name.as_str()).collect();
    for name in indexes {
        if !known.contains(name.as_str()) {
            found.add(Rule::Missing, format!("table `{table}` has no `{kind}` index `{name}`"));
        }
    }
    if let Some(pair) = indexes.windows(2).find(|pair| pair[0] >= pair[1]) {
        found.add(Rule::Twice, format!("index `{}` is named twice or out of order", pair[1]));
    }
}

/// The SSTables of a shard, to be looked up: a foreign job may name one a million times.
struct Listed<'a>(BTreeSet<(u64, &'a str)>);

impl<'a> Listed<'a> {
    fn of(shard: &'a ShardFacts) -> Self {
        Self(shard.sstables.iter().map(|s| (s.generation, s.path.as_str())).collect())
    }

    fn has(&self, sstable: &SsTableId) -> bool {
        self.0.contains(&(sstable.generation, sstable.path.as_str()))
    }
}

fn not_listed(shard: &str, generation: u64, path: &str) -> String {
    format!("shard `{shard}` does not list generation {generation} as `{path}`")
}
