//! Recorded decisions, made again: by whoever made them, or by somebody else.

use std::collections::HashMap;
use std::sync::Arc;

use planner::plan::{Plan, Trigger, plan_table};
use planner::policy::Policy;
use serde::Serialize;

use super::compare::{Difference, Work, differences, work};
use super::record::{Body, digest, unpack};
use super::{Asked, Planner, Plugin};
use crate::error::{Error, Result};
use crate::registry::{Decision, Registry};

/// A decision, derived again.
#[derive(Debug, Serialize)]
pub struct Replayed {
    /// As it was recorded.
    #[serde(flatten)]
    pub decision: Decision,
    /// Whether the same plan came out, bit for bit.
    pub same: bool,
    /// The plan that was recorded.
    pub recorded: Plan,
    /// The plan that came out.
    pub derived: Plan,
}

/// What decides in a backtest.
#[derive(Debug)]
pub enum Candidate {
    /// A plugin, by the policy of each decision.
    Plugin(Arc<Plugin>),
    /// The built-in planner, by another policy.
    Policy(Box<Policy>),
}

/// One decision of a backtest.
#[derive(Debug, Serialize)]
pub struct Tested {
    /// As it was recorded.
    #[serde(flatten)]
    pub decision: Decision,
    /// What it asked for.
    pub was: Work,
    /// What the candidate asks for.
    pub now: Work,
    /// Where the candidate does something else.
    pub differences: Vec<Difference>,
    /// Why it gave no plan that may be carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Derives decisions again.
#[derive(Debug)]
pub struct Again {
    registry: Registry,
    /// Those that have been asked for, by their records' name.
    planners: HashMap<String, Planner>,
}

impl Again {
    /// From the records of `registry`.
    pub fn new(registry: Registry) -> Self {
        Self { registry, planners: HashMap::new() }
    }

    /// Derives a decision again, by the planner that made it.
    ///
    /// # Errors
    /// `Invalid` where that planner is not at hand any more, `Fatal` where the record is damaged.
    pub async fn replay(&mut self, decision: Decision) -> Result<Replayed> {
        let body = unpack(&decision)?;
        let planner = self.planner(&decision.planner, &body).await?;
        let recorded = body.plan.clone();
        let derived = again(&planner, body, None).await;
        let derived = derived.map_err(|why| Error::Invalid(format!("the plugin gives no plan for it now: {why}")))?;
        let same = digest(&derived) == decision.plan_sha256;
        Ok(Replayed { decision, same, recorded, derived })
    }

    async fn planner(&mut self, id: &str, body: &Body) -> Result<Planner> {
        if id.starts_with("built-in ") {
            return Ok(Planner::BuiltIn);
        }
        if let Some(planner) = self.planners.get(id) {
            return Ok(planner.clone());
        }
        let file = self.registry.plugin(id).await?;
        let file = file.ok_or_else(|| Error::Invalid(format!("the plugin `{id}` is not kept any more")))?;
        let planner = Planner::Plugin(Arc::new(Plugin::of(id, file, &body.config).await?));
        self.planners.insert(id.to_string(), planner.clone());
        Ok(planner)
    }
}

impl Candidate {
    /// Decides what was decided.
    ///
    /// # Errors
    /// `Fatal` where the record is damaged.
    pub async fn test(&self, decision: Decision) -> Result<Tested> {
        let body = unpack(&decision)?;
        let recorded = body.plan.clone();
        let (planner, policy) = match self {
            Self::Plugin(plugin) => (Planner::Plugin(plugin.clone()), None),
            Self::Policy(policy) => (Planner::BuiltIn, Some(policy)),
        };
        let was = work(&recorded);
        Ok(match again(&planner, body, policy.map(|policy| &**policy)).await {
            Ok(plan) => {
                let differences = differences(&recorded, &plan);
                Tested { decision, was, now: work(&plan), differences, refused: None }
            }
            Err(why) => Tested { decision, was, now: Work::default(), differences: Vec::new(), refused: Some(why) },
        })
    }
}

async fn again(planner: &Planner, body: Body, policy: Option<&Policy>) -> std::result::Result<Plan, String> {
    let Body { facts, policy: own, now_ms, trigger, .. } = body;
    let policy = policy.cloned().unwrap_or(own);
    let built_in = Arc::new(plan_table(&facts, &policy, now_ms, trigger));
    let asked = Arc::new(Asked { facts: Arc::new(facts), policy, now_ms, trigger });
    // What somebody ordered was no question of policy, and is none now.
    let planner = if trigger == Trigger::Forced { &Planner::BuiltIn } else { planner };
    planner.plan(&asked, &built_in).await.map_err(|failed| failed.why)
}
