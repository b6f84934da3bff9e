//! A foreign plan, made fit to be carried out.

use alloc::{string::String, vec::Vec};

use crate::check::{self, Rule, Violation};
use crate::facts::{ShardFacts, TableFacts};
use crate::job::{IndexOp, JobSpec};
use crate::plan::{Decision, Hold, Outcome, Plan, Verdict};
use crate::policy::Policy;
use crate::staleness;

/// The plan that is carried out when a plugin decides: its verdicts, but catch-up as the built-in
/// rules have it, since an index that lags keeps rows from readers and files from going. An append
/// to an index that catch-up extends is left out, as the built-in plan leaves it out. What a plan
/// says beside its verdicts is worked out anew.
///
/// # Errors
/// Every violation of what came out ([`check::plan`]), and plans that are for different moments.
pub fn merge(proposed: Plan, built_in: &Plan, facts: &TableFacts, policy: &Policy) -> Result<Plan, Vec<Violation>> {
    if proposed.at_ms != built_in.at_ms {
        let what = "the two plans are for different moments".into();
        return Err(alloc::vec![Violation { rule: Rule::Verdicts, what }]);
    }
    // Its order and number first: what follows relies on it.
    check::plan(&proposed, facts, policy)?;
    let mut merged = Plan { complaints: built_in.complaints.clone(), ..proposed };
    let own = built_in.verdicts.iter().find(|verdict| verdict.decision == Decision::WalCatchup);
    for verdict in merged.verdicts.iter_mut().filter(|verdict| verdict.decision == Decision::WalCatchup) {
        *verdict = own.cloned().unwrap_or_else(|| verdict.clone());
    }
    let extended: Vec<String> = own.map(indexes_of).unwrap_or_default();
    for verdict in merged.verdicts.iter_mut().filter(|verdict| verdict.decision == Decision::Index) {
        leave_out(&mut verdict.outcome, &extended);
    }
    merged.staleness_bound_ms = bound_ms(&merged, facts, policy);
    check::plan(&merged, facts, policy)?;
    Ok(merged)
}

/// The indexes that a catch-up verdict works on.
fn indexes_of(verdict: &Verdict) -> Vec<String> {
    let Outcome::Due { jobs, .. } = &verdict.outcome else { return Vec::new() };
    let of = |job: &JobSpec| if let JobSpec::CatchUp { indexes, .. } = job { indexes.clone() } else { Vec::new() };
    jobs.iter().flat_map(of).collect()
}

fn leave_out(outcome: &mut Outcome, extended: &[String]) {
    let Outcome::Due { jobs, reasons } = outcome else { return };
    let mut first = None;
    for job in jobs.iter_mut() {
        let JobSpec::Index { indexes, op: IndexOp::Append, .. } = job else { continue };
        first = first.or_else(|| indexes.iter().find(|name| extended.contains(name)).cloned());
        indexes.retain(|name| !extended.contains(name));
    }
    jobs.retain(|job| !matches!(job, JobSpec::Index { indexes, .. } if indexes.is_empty()));
    if let Some(index) = first.filter(|_| jobs.is_empty()) {
        *outcome = Outcome::Held { hold: Hold::CatchUp { index }, reasons: core::mem::take(reasons) };
    }
}

fn bound_ms(plan: &Plan, facts: &TableFacts, policy: &Policy) -> Option<u64> {
    let policy = policy.for_table(&facts.overrides).policy;
    let mut shards: Vec<&ShardFacts> = facts.shards.iter().collect();
    shards.sort_by(|a, b| a.shard.cmp(&b.shard));
    let folds = plan.verdicts.iter().filter(|verdict| verdict.decision == Decision::Fold);
    shards
        .into_iter()
        .zip(folds)
        .try_fold(0, |worst: u64, (shard, fold)| Some(worst.max(staleness::bound_ms(facts, shard, fold, &policy)?)))
}
