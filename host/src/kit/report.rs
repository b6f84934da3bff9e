use std::fmt;

use planner::wire::Description;
use serde::Serialize;

use super::RULES;

/// Faults of one check that are told.
const TOLD_MAX: usize = 5;

/// What the kit found. [`fmt::Display`] gives it as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What the plugin says of itself, if it could be loaded.
    pub plugin: Option<Description>,
    /// SHA-256 of its file.
    pub sha256: String,
    /// The checks that were made, in order. One that does not load is asked nothing more.
    pub checks: Vec<Check>,
    /// Tables that it was asked about.
    pub cases: usize,
    /// Plans that are those of the built-in planner. A planner may have its own mind.
    pub same_as_built_in: usize,
    /// Its slowest plan, microseconds.
    pub slowest_us: u64,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name in [`RULES`].
    pub name: &'static str,
    /// What must hold.
    pub rule: &'static str,
    /// What it was tried on.
    pub tried: usize,
    /// Where it does not hold: how often.
    pub failed: usize,
    /// The first of those.
    pub faults: Vec<String>,
}

impl Report {
    /// Whether it is fit.
    pub fn passed(&self) -> bool {
        self.checks.len() == RULES.len() && self.checks.iter().all(|check| check.failed == 0)
    }

    pub(super) fn add(&mut self, nth: usize, tried: usize, mut faults: Vec<String>) {
        let (name, rule) = RULES[nth];
        let failed = faults.len();
        faults.truncate(TOLD_MAX);
        self.checks.push(Check { name, rule, tried, failed, faults });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(plugin) = &self.plugin {
            writeln!(f, "{} {} ({}), sha256 {}", plugin.name, plugin.version, plugin.abi, self.sha256)?;
        }
        for check in &self.checks {
            let word = if check.failed == 0 { "holds" } else { "FAILS" };
            writeln!(f, "  {word}  {:13} {:4} tried  {}", check.name, check.tried, check.rule)?;
            for fault in &check.faults {
                writeln!(f, "           {fault}")?;
            }
            if let Some(more) = check.failed.checked_sub(check.faults.len()).filter(|more| *more > 0) {
                writeln!(f, "           and {more} more")?;
            }
        }
        let (same, cases, slowest) = (self.same_as_built_in, self.cases, self.slowest_us);
        if cases > 0 {
            writeln!(f, "  {same} of {cases} plans are those of the built-in planner; the slowest took {slowest} us")?;
        }
        f.write_str(if self.passed() { "fit to be a planner\n" } else { "not fit to be a planner\n" })
    }
}
