use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};

use super::{Found, Rule, Violation, job, maintenance};
use crate::decision::{SHARD, TABLE};
use crate::facts::{ShardFacts, TableFacts};
use crate::job::{GarbageId, JobSpec, SsTableId};
use crate::plan::{Decision, Outcome, Plan, Verdict};
use crate::policy::Policy;
use crate::time::age_ms;

/// Whether a plan, whoever made it, may be carried out for these facts and this policy.
///
/// When something is due is the planner's own matter; what is due must be safe.
///
/// # Errors
/// Every violation.
pub fn plan(plan: &Plan, facts: &TableFacts, policy: &Policy) -> Result<(), Vec<Violation>> {
    let mut found = Found::default();
    let policy = &*policy.for_table(&facts.overrides).policy;
    complete(&mut found, plan, facts);
    // Each verdict costs a look through the shards; a plan with far too many is not worth it.
    if plan.verdicts.len() > 2 * verdicts_of(facts) {
        return found.result();
    }
    let shards: BTreeMap<&str, &ShardFacts> = facts.shards.iter().map(|s| (s.shard.as_str(), s)).collect();
    let mut seen = BTreeSet::new();
    for verdict in &plan.verdicts {
        let Outcome::Due { jobs, reasons } = &verdict.outcome else { continue };
        if jobs.is_empty() || reasons.is_empty() {
            found.add(Rule::Empty, format!("{}: due without a job or a reason", name(verdict)));
        }
        for spec in jobs {
            // Of one type of index some may be merged and others extended.
            let op = if let JobSpec::Index { op, .. } = spec { Some(*op) } else { None };
            let first = seen.insert((spec.kind(), spec.shard(), op));
            let here = belongs(verdict.decision, spec) && spec.shard() == verdict.shard.as_deref();
            if !here {
                found.add(Rule::Verdicts, format!("{}: `{}` is not its job", name(verdict), spec.kind()));
            }
            if !first {
                found.add(Rule::Twice, format!("{}: `{}` twice", name(verdict), spec.kind()));
            }
            // A plan may name a job a million times: each is looked at closely once, where it belongs.
            if !first || !here {
                continue;
            }
            if let Err(violations) = job(spec, facts) {
                found.extend(violations);
            }
            match verdict.shard.as_deref().and_then(|id| shards.get(id)) {
                Some(shard) => limits(&mut found, spec, shard, policy, plan.at_ms),
                None => maintenance::limits(&mut found, spec, facts, policy),
            }
            if let JobSpec::CatchUp { indexes, .. } = spec {
                behind(&mut found, facts, indexes);
            }
        }
    }
    together(&mut found, plan);
    found.result()
}

/// What one plan may not hold together: an index twice, an index job beside a compaction that remaps
/// in its own commit.
fn together(found: &mut Found, plan: &Plan) {
    let inline = plan.jobs().any(|job| matches!(job, JobSpec::Compact { deferred: false, .. }));
    let mut seen = BTreeSet::new();
    for job in plan.jobs() {
        let JobSpec::Index { indexes, .. } = job else { continue };
        if inline {
            found.add(Rule::Gate, "an index job waits for a compaction that remaps in its own commit");
        }
        for index in indexes.iter().filter(|index| !seen.insert(*index)) {
            found.add(Rule::Twice, format!("index `{index}` is worked on twice"));
        }
    }
}

/// How many verdicts a plan for these facts has.
fn verdicts_of(facts: &TableFacts) -> usize {
    TABLE.len() + SHARD.len() * facts.shards.len()
}

fn complete(found: &mut Found, plan: &Plan, facts: &TableFacts) {
    if plan.table != facts.table || plan.version != facts.version {
        found.add(
            Rule::Verdicts,
            format!(
                "the plan is for `{}` version {}, the facts are of `{}` version {}",
                plan.table, plan.version, facts.table, facts.version
            ),
        );
    }
    let mut shards: Vec<&str> = facts.shards.iter().map(|s| s.shard.as_str()).collect();
    shards.sort_unstable();
    let each = [Decision::Fold, Decision::Retire, Decision::Collect];
    let expected = TABLE
        .iter()
        .map(|(decision, _)| (*decision, None))
        .chain(shards.into_iter().flat_map(|shard| each.map(|decision| (decision, Some(shard)))));
    if !plan.verdicts.iter().map(|v| (v.decision, v.shard.as_deref())).eq(expected) {
        found.add(
            Rule::Verdicts,
            "a plan holds the table's five verdicts, then fold, retire and collect of each shard in shard order",
        );
    }
    for verdict in &plan.verdicts {
        if matches!(verdict.outcome, Outcome::NotDue { due_at_ms: Some(at), .. } if at <= plan.at_ms) {
            found.add(Rule::Verdicts, format!("{}: not due, yet its time has come", name(verdict)));
        }
    }
}

fn limits(found: &mut Found, spec: &JobSpec, shard: &ShardFacts, policy: &Policy, at_ms: u64) {
    match spec {
        JobSpec::Fold { sstables, .. } => {
            latch(found, shard);
            fold_limits(found, shard, sstables, policy);
        }
        JobSpec::Retire { .. } => {
            latch(found, shard);
            let since = shard.recorded_at_ms.map(|at| age_ms(at_ms, at));
            if since.is_some_and(|age| age < policy.retire_delay_ms) {
                let what = format!("shard `{}`: readers may still hold the version before the fold", shard.shard);
                found.add(Rule::Grace, what);
            }
        }
        JobSpec::Collect { files, .. } => collect_limits(found, shard, files, policy, at_ms),
        _ => {}
    }
}

fn latch(found: &mut Found, shard: &ShardFacts) {
    if let Some(pass) = &shard.pass {
        let what = format!("shard `{}`: a pass runs already, held by {}", shard.shard, pass.holder);
        found.add(Rule::Gate, what);
    }
}

fn fold_limits(found: &mut Found, shard: &ShardFacts, sstables: &[SsTableId], policy: &Policy) {
    let (id, picked) = (&shard.shard, sstables.len() as u64);
    if picked > policy.prefix_max.max(1) {
        let what = format!("shard `{id}`: {picked} SSTables in a pass of {}", policy.prefix_max);
        found.add(Rule::Limit, what);
    }
    let listed: BTreeMap<u64, Option<u64>> = shard.sstables.iter().map(|s| (s.generation, s.bytes)).collect();
    let mut sizes = sstables.iter().map(|s| listed.get(&s.generation).copied().flatten());
    let bytes = sizes.try_fold(0u64, |sum, size| sum.checked_add(size?));
    // The first is taken whatever its size, so that there is progress.
    if picked > 1 && bytes.is_none_or(|bytes| bytes > policy.pass_bytes) {
        let max = policy.pass_bytes;
        let what = format!("shard `{id}`: a pass of several SSTables holds at most {max} known bytes");
        found.add(Rule::Limit, what);
    }
}

fn collect_limits(found: &mut Found, shard: &ShardFacts, files: &[GarbageId], policy: &Policy, at_ms: u64) {
    let (id, count, max) = (&shard.shard, files.len() as u64, policy.collect_files_max.max(1));
    if count > max {
        found.add(Rule::Limit, format!("shard `{id}`: {count} files in one job, {max} allowed"));
    }
    let since: BTreeMap<&str, Option<u64>> =
        shard.garbage.iter().flatten().map(|g| (g.path.as_str(), g.since_ms)).collect();
    for file in files {
        let since = since.get(file.path.as_str()).copied().flatten();
        if since.is_none_or(|since| age_ms(at_ms, since) < policy.grace_ms_of(file.kind)) {
            found.add(Rule::Grace, format!("shard `{id}`: `{}` is within its grace", file.path));
        }
    }
}

fn behind(found: &mut Found, facts: &TableFacts, indexes: &[String]) {
    let known: BTreeSet<&String> = indexes.iter().collect();
    for name in known.into_iter().filter(|name| facts.indexes.iter().any(|index| index.name == **name)) {
        if facts.shards.iter().all(|s| s.covered_by(name) >= s.compacted_generation) {
            found.add(Rule::NotBehind, format!("index `{name}` covers everything that is folded"));
        }
    }
}

fn belongs(decision: Decision, spec: &JobSpec) -> bool {
    matches!(
        (decision, spec),
        (Decision::WalCatchup, JobSpec::CatchUp { .. })
            | (Decision::Index, JobSpec::Index { .. })
            | (Decision::Compaction, JobSpec::Compact { .. })
            | (Decision::Cleanup, JobSpec::Cleanup { .. })
            | (Decision::Remap, JobSpec::Remap { .. })
            | (Decision::Fold, JobSpec::Fold { .. })
            | (Decision::Retire, JobSpec::Retire { .. })
            | (Decision::Collect, JobSpec::Collect { .. })
    )
}

fn name(verdict: &Verdict) -> String {
    match &verdict.shard {
        Some(shard) => format!("{:?} of shard `{shard}`", verdict.decision),
        None => format!("{:?}", verdict.decision),
    }
}
