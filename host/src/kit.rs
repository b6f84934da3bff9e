//! The kit: whether a plugin is fit to be a planner.
//!
//! ```text
//! cases (the simulator's tables) ─┐
//! requests that are none ─────────┼─> plugin ─> answers ─> rules that every planner keeps ─> Report
//! the same facts in other orders ─┘
//! ```
//!
//! A plugin may decide otherwise than the built-in planner; how often it does is told and is no
//! fault. What must hold is in [`RULES`].

mod cases;
mod report;
mod rules;

use std::time::Duration;

pub use self::cases::{Case, cases, fragments, table};
pub use self::report::{Check, Report};
use crate::{limits::Limits, plugin::PluginPlanner};

/// What is checked, in this order: the name of the check and the rule.
pub const RULES: [(&str, &str); 7] = [
    ("loads", "it is a component of the planner's world, imports nothing and describes itself"),
    ("safe", "each plan may be carried out for the facts and the policy that it was asked for"),
    ("deterministic", "the same request is answered with the same bytes"),
    ("order-free", "the order of shards, SSTables, indexes, files and jobs changes nothing"),
    ("total", "whatever is asked is answered, and what is no request is answered with an error"),
    ("quiet", "when its jobs have run, nothing is due any more, and its jobs may run"),
    ("in time", "its slowest answer takes no more than a quarter of the deadline"),
];

/// Deadlines that a plugin may take for requests that no host makes.
const PATIENCE: u32 = 5;

/// Checks a plugin within the usual limits.
pub fn check(bytes: &[u8]) -> Report {
    check_within(bytes, Limits::default())
}

/// Checks a plugin within limits of one's own.
pub fn check_within(bytes: &[u8], limits: Limits) -> Report {
    let deadline = limits.deadline;
    let mut report = Report::default();
    let plugin = match PluginPlanner::compile("plugin", bytes, limits) {
        Ok(plugin) => plugin,
        Err(e) => {
            report.add(0, 1, vec![e.to_string()]);
            return report;
        }
    };
    report.sha256 = plugin.sha256();
    report.plugin = Some(plugin.description().clone());
    report.add(0, 1, Vec::new());

    let cases = cases();
    let mut slowest = (Duration::ZERO, "none");
    let mut safe = Vec::new();
    for case in &cases {
        let began = std::time::Instant::now();
        match plugin.plan_table(&case.facts, &case.policy, case.now_ms, case.trigger) {
            Ok(plan) => report.same_as_built_in += usize::from(plan == case.native()),
            Err(e) => safe.push(format!("{}: {e}", case.name)),
        }
        slowest = slowest.max((began.elapsed(), &case.name));
    }
    report.add(1, cases.len(), safe);
    report.add(2, cases.len(), rules::deterministic(&plugin, &cases));
    report.add(3, cases.len(), rules::order_free(&plugin, &cases));
    let quiet = rules::quiet(&plugin, &cases);
    // Whether it answers, and not how fast: 10 MiB of nonsense take an interpreter a while, and a machine may be busy.
    let (asked, faults) = rules::total(&plugin.within(deadline * PATIENCE));
    report.add(4, asked, faults);
    report.add(5, cases.len(), quiet);
    let late = slowest.0 > deadline / 4;
    let told = format!("{}: {} ms of {} ms", slowest.1, slowest.0.as_millis(), deadline.as_millis());
    report.add(6, cases.len(), if late { vec![told] } else { Vec::new() });
    report.slowest_us = u64::try_from(slowest.0.as_micros()).unwrap_or(u64::MAX);
    report.cases = cases.len();
    report
}
