//! Passes that somebody asks for (R2.4).

use std::collections::BTreeMap;

use planner::job::JobSpec;
use planner::plan::{Decision, Hold, Outcome, Trigger};

use super::api::Api;
use crate::error::{Error, Result};
use crate::read::Depth;
use crate::registry::{FOLD, Filter, NewJob, PAGE_MAX, Queued, State};
use crate::show::held;
use crate::table::Table;

/// What became of a request for passes.
#[derive(Debug, Default)]
pub(super) struct Forced {
    /// The jobs of passes that were dispatched.
    pub(super) queued: Vec<String>,
    /// What is at shards with something to fold, that get no second pass.
    pub(super) refused: Vec<String>,
    /// Why others can't be folded as they are.
    pub(super) held: Vec<String>,
}

impl Forced {
    /// Whether it led to anything, where there was anything to fold.
    ///
    /// # Errors
    /// `Busy` while a pass is at every shard, `Invalid` where none can be folded as it is.
    pub(super) fn dispatched(self) -> Result<Vec<String>> {
        match self.held.first() {
            _ if !self.queued.is_empty() => Ok(self.queued),
            _ if !self.refused.is_empty() => Err(Error::Busy(format!(
                "a pass is at every shard that has something to fold, and no second one is queued: {}",
                self.refused.join("; ")
            ))),
            Some(held) => Err(Error::Invalid(held.clone())),
            None => Ok(self.queued),
        }
    }
}

impl Api {
    /// Dispatches a pass of each shard that has something to fold, or of one. A shard that a pass is at gets no
    /// second one: it is refused, and not queued (R2.12).
    ///
    /// # Errors
    /// Whatever keeps the table from being evaluated, or the registry from taking the jobs; `Invalid` for a shard
    /// that is not there.
    pub(super) async fn force(&self, table: &Table, shard: Option<&str>) -> Result<Forced> {
        let known = crate::catalog::TableRef { name: table.name.clone(), uri: table.uri.clone() };
        let evaluation = self.tender.evaluate(&known, Depth::Fold, Trigger::Forced).await?;
        if let Some(shard) = shard
            && !evaluation.facts.shards.iter().any(|known| known.shard == shard)
        {
            return Err(Error::Invalid(format!("`{}` has no shard `{shard}`", table.name)));
        }
        self.tender.note(&evaluation);
        let asked = |of: Option<&str>| shard.is_none_or(|shard| of == Some(shard));
        let mut forced = Forced::default();
        let mut jobs = Vec::new();
        for verdict in evaluation.plan.verdicts.iter().filter(|verdict| asked(verdict.shard.as_deref())) {
            match (&verdict.outcome, verdict.decision) {
                (Outcome::Held { hold, .. }, Decision::Fold) => {
                    let why = held(verdict.shard.as_deref().unwrap_or_default(), hold);
                    match hold {
                        Hold::Pass { .. } => forced.refused.push(why),
                        _ => forced.held.push(why),
                    }
                }
                (Outcome::Due { jobs: due, .. }, Decision::Fold) => {
                    for job in due.iter().filter(|job| matches!(job, JobSpec::Fold { .. })) {
                        let job = NewJob::planned(&known, job, &self.tender.policy)?.by(&evaluation.decided.policy);
                        jobs.push(self.tender.assigned(job));
                    }
                }
                _ => {}
            }
        }
        let shards: Vec<String> = jobs.iter().filter_map(|job| job.shard.clone()).collect();
        let queued = self.tender.registry.enqueue(jobs, 0).await?;
        let open = match queued.iter().all(|queued| matches!(queued, Queued::Yes(_))) {
            true => BTreeMap::new(),
            false => self.passes(table).await?,
        };
        for (queued, shard) in queued.into_iter().zip(shards) {
            match (queued, open.get(&shard)) {
                (Queued::Yes(job), _) => forced.queued.push(job),
                (_, Some(job)) => forced.refused.push(format!("job `{job}` is at shard `{shard}`")),
                // It has ended meanwhile.
                (_, None) => forced.refused.push(format!("a job was at shard `{shard}`")),
            }
        }
        Ok(forced)
    }

    /// The shards of a table that a pass is at, from its dispatch to its end, with its job.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub(super) async fn passes(&self, table: &Table) -> Result<BTreeMap<String, String>> {
        let filter = Filter {
            states: vec![State::Pending, State::Running],
            kind: Some(FOLD.into()),
            table: Some(table.name.clone()),
            parent: None,
            before: None,
            limit: PAGE_MAX,
        };
        let jobs = self.tender.registry.jobs(&filter).await?;
        Ok(jobs.into_iter().filter(|job| job.uri == table.uri).filter_map(|job| Some((job.shard?, job.id))).collect())
    }
}
