//! A candidate: it is asked what the active planner is asked, and nothing that it says is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use planner::plan::Plan;

use super::compare::{Difference, differences};
use super::counts::{Count, Counts};
use super::{Decided, Planner, Plugin};

/// A plugin that may come to decide.
#[derive(Debug)]
pub struct Shadow {
    /// The plugin.
    pub plugin: Arc<Plugin>,
    evaluations: AtomicU64,
    refused: AtomicU64,
    differed: AtomicU64,
}

/// What it said of one evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// SHA-256 of its file.
    pub sha256: String,
    /// Where it would do something else; or why it gave no plan that may be carried out.
    pub said: Result<Vec<Difference>, String>,
}

impl Shadow {
    pub(super) fn new(plugin: Arc<Plugin>) -> Self {
        Self { plugin, evaluations: 0.into(), refused: 0.into(), differed: 0.into() }
    }

    /// Evaluations that it was asked about, those that it gave no plan for, and those where its plan does
    /// something else.
    pub fn seen(&self) -> (u64, u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.evaluations), read(&self.refused), read(&self.differed))
    }

    /// Why it may not decide yet.
    pub(super) fn kept_back(&self, gate: u64) -> Option<String> {
        let (evaluations, refused, _) = self.seen();
        let name = self.plugin.name();
        if refused > 0 {
            Some(format!("{name} gave no plan for {refused} of {evaluations} evaluations; see `caretaker policy diff`"))
        } else if evaluations < gate {
            Some(format!("{name} was compared in {evaluations} evaluations, and {gate} are asked for (policy_gate)"))
        } else {
            None
        }
    }

    pub(super) async fn compare(&self, decided: &Decided, plan: &Plan, counts: &Counts) -> Compared {
        let planned = Planner::Plugin(self.plugin.clone()).plan(&decided.asked, &decided.built_in).await;
        let said = match planned {
            Ok(own) => {
                let differences = differences(plan, &own);
                let same = differences.is_empty();
                counts.add(if same { Count::ShadowSame } else { Count::ShadowDiffers });
                self.differed.fetch_add(u64::from(!same), Ordering::Relaxed);
                Ok(differences)
            }
            Err(failed) => {
                counts.add(Count::ShadowFailed);
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(failed.why)
            }
        };
        // Last: who reads that it was asked so often must not miss that it failed.
        self.evaluations.fetch_add(1, Ordering::Relaxed);
        Compared { sha256: self.plugin.sha256.clone(), said }
    }
}
