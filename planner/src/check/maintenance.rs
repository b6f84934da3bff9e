//! Index operations, compaction, cleanup and remap: may they run, and may a plan hold them.

use alloc::{collections::BTreeSet, format};

use super::{Found, Rule};
use crate::decision::compaction::loses_entries;
use crate::decision::index;
use crate::facts::{FragmentFacts, TableFacts};
use crate::job::{IndexOp, JobSpec};
use crate::pick::rewrite;
use crate::policy::Policy;

pub(super) fn index(found: &mut Found, facts: &TableFacts, indexes: &[alloc::string::String], op: IndexOp) {
    for index in facts.indexes.iter().filter(|i| indexes.contains(&i.name)) {
        if let Some(why) = index::done(index, op) {
            found.add(Rule::Done, why);
        }
    }
}

pub(super) fn compact(found: &mut Found, facts: &TableFacts, tasks: &[alloc::vec::Vec<u64>], deferred: bool) {
    let table = &facts.table;
    if deferred && (facts.stable_row_ids || !facts.indexes.iter().all(crate::facts::IndexFacts::can_defer)) {
        found.add(Rule::Gate, format!("a compaction of `{table}` can't defer its remap"));
    }
    if loses_entries(facts, tasks, deferred) {
        found.add(Rule::Gate, format!("a compaction of `{table}` waits for the remap of earlier ones"));
    }
    if tasks.is_empty() || tasks.iter().any(alloc::vec::Vec::is_empty) {
        found.add(Rule::Empty, format!("a compaction of `{table}` has a task without a fragment, or no task"));
    }
    let fragments = facts.fragments.as_deref().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for task in tasks {
        let mut next = None;
        for id in task {
            let Ok(at) = fragments.binary_search_by_key(id, |f| f.id) else {
                found.add(Rule::Missing, format!("table `{table}` has no fragment {id}"));
                break;
            };
            let fragment = &fragments[at];
            if !seen.insert(*id) {
                found.add(Rule::Twice, format!("fragment {id} is rewritten twice"));
            } else if fragment.excluded {
                found.add(Rule::Needed, format!("fragment {id} may not be rewritten"));
            } else if next.is_some_and(|next| next != (at, fragment.coverage)) {
                found.add(Rule::Neighbours, format!("fragment {id} is no neighbour of the one before it"));
                break;
            }
            next = Some((at + 1, fragment.coverage));
        }
    }
}

pub(super) fn cleanup(found: &mut Found, facts: &TableFacts) {
    if facts.opted_out_of_cleanup() {
        found.add(Rule::Gate, format!("table `{}` wants no cleanup", facts.table));
    }
}

pub(super) fn remap(found: &mut Found, facts: &TableFacts, indexes: &[alloc::string::String]) {
    let table = &facts.table;
    for name in indexes.iter().filter(|name| !facts.indexes.iter().any(|i| i.name == **name)) {
        found.add(Rule::Missing, format!("table `{table}` has no index `{name}`"));
    }
    if facts.remap.as_ref().is_some_and(|remap| remap.rewrites == 0) {
        found.add(Rule::Done, format!("no rewrite of `{table}` waits for its remap"));
    }
}

/// What a plan's job must keep beyond what every job must.
pub(super) fn limits(found: &mut Found, spec: &JobSpec, facts: &TableFacts, policy: &Policy) {
    let kind = spec.kind();
    if let Some(open) = facts.running.iter().find(|open| open.kind == kind && open.indexes.is_empty())
        && !matches!(spec, JobSpec::CatchUp { .. })
    {
        found.add(Rule::Gate, format!("`{kind}` is open already, held by {}", open.holder));
    }
    match spec {
        JobSpec::Compact { tasks, target_rows, .. } => {
            let many: usize = tasks.iter().map(alloc::vec::Vec::len).sum();
            if tasks.len() > 1 && many as u64 > policy.compaction.fragments_max {
                let max = policy.compaction.fragments_max;
                found.add(Rule::Limit, format!("{many} fragments in a compaction of {max}"));
            }
            let all = facts.fragments.as_deref().unwrap_or_default();
            let find = |id: &u64| all.binary_search_by_key(id, |f| f.id).ok().map(|at| &all[at]);
            for task in tasks {
                progress(found, task.iter().filter_map(find), *target_rows);
            }
        }
        JobSpec::Cleanup { min_age_ms, .. } => {
            let policy = &policy.cleanup;
            if policy.min_age_ms == 0 || *min_age_ms < policy.min_age_ms {
                found.add(Rule::Grace, "a cleanup keeps the minimum age of versions");
            }
        }
        JobSpec::Index { .. } if facts.running.iter().any(|open| open.kind == "compact" && !open.deferred) => {
            found.add(Rule::Gate, "an index job waits for a compaction that remaps in its own commit");
        }
        _ => {}
    }
}

fn progress<'a>(found: &mut Found, task: impl Iterator<Item = &'a FragmentFacts> + Clone, target_rows: u64) {
    let rows = task.clone().map(rewrite::live).fold(0, u64::saturating_add);
    let deleted = task.clone().any(|f| f.deleted.unwrap_or(0) > 0);
    if let Some(first) = task.clone().next()
        && !deleted
        && rewrite::outputs(rows, target_rows) >= task.count() as u64
    {
        let what = format!("rewriting fragment {} and its neighbours leaves as many fragments", first.id);
        found.add(Rule::NoProgress, what);
    }
}
