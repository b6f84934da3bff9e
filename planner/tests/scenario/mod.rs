//! Scenarios: drawings that are input, expectation and view at once.
//!
//! A scenario is lines of input, and commands. Below a command that answers stands `----` and the
//! answer, up to an empty line. `parse` reads the drawings; this file runs the commands.

mod base;
mod parse;

use std::fmt::Write;

use planner::facts::TableFacts;
use planner::job::JobSpec;
use planner::plan::{Plan, Trigger, plan_table};
use planner::policy::Policy;
use planner::{check, draw, simulate};

/// What a scenario has built up so far.
struct World {
    now_ms: u64,
    policy: Policy,
    facts: TableFacts,
    /// Generation of the first column of the shard that is being drawn.
    first: u64,
    plan: Option<Plan>,
}

/// The scenario with every answer replaced by what the planner says now.
///
/// # Panics
/// On a line that is not part of the format, naming it.
pub(crate) fn run(text: &str) -> String {
    let mut world = World {
        now_ms: 0,
        policy: Policy::default(),
        facts: TableFacts { table: "t".into(), version: 1, primary_key: vec!["id".into()], ..TableFacts::default() },
        first: 1,
        plan: None,
    };
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let Some(answer) = world.line(line) else { continue };
        if lines.next_if_eq(&"----").is_some() {
            while lines.next_if(|line| !line.is_empty()).is_some() {}
        }
        write!(out, "----\n{answer}").unwrap();
    }
    out
}

impl World {
    /// Takes one line in; a command that answers gives its answer.
    fn line(&mut self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["now", at] => self.now_ms = parse::duration(at),
            ["wait", span] => self.now_ms += parse::duration(span),
            ["set", key, value] => self.policy.set(key, value).unwrap_or_else(|e| panic!("{e}")),
            ["table", ..] => parse::table(&mut self.facts, line, self.now_ms),
            ["fragments" | "index" | "cleanup" | "remap" | "open" | "failed" | "config", ..] => {
                base::line(&mut self.facts, line, self.now_ms);
            }
            ["version", version] => self.facts.version = parse::number(version),
            ["shard", ..] => self.first = parse::shard(&mut self.facts, line, self.now_ms),
            [..] if line.starts_with("  ") => parse::row(&mut self.facts, self.first, line, self.now_ms),
            // What others do between a plan and its jobs.
            ["flushed", shard, generation, bytes] => {
                parse::flushed(parse::named(&mut self.facts, shard), generation, bytes, self.now_ms);
            }
            ["folded", shard, generation] => {
                parse::named(&mut self.facts, shard).compacted_generation = parse::number(generation);
            }
            ["reordered", shard, order @ ..] => {
                let order: Vec<u64> = order.iter().map(|g| parse::number(g)).collect();
                let listed = &mut parse::named(&mut self.facts, shard).sstables;
                listed.sort_by_key(|s| order.iter().position(|g| *g == s.generation));
            }
            ["unpaused"] => self.facts.paused = false,
            ["accepted"] => self.facts.mismatch = None,
            ["closed"] => self.facts.running.clear(),
            ["ended", shard] => parse::named(&mut self.facts, shard).pass = None,
            ["draw"] => return Some(draw::facts(&self.facts, self.now_ms)),
            ["check"] => return Some(violations(check::facts(&self.facts))),
            ["plan"] => return Some(self.plan(Trigger::Tick)),
            ["plan", "relief"] => return Some(self.plan(Trigger::Relief)),
            ["plan", "forced"] => return Some(self.plan(Trigger::Forced)),
            ["apply"] => return Some(self.apply()),
            ["settle"] => return Some(self.settle(Trigger::Tick)),
            ["settle", "forced"] => return Some(self.settle(Trigger::Forced)),
            _ => panic!("not a line of a scenario: `{line}`"),
        }
        None
    }

    fn plan(&mut self, trigger: Trigger) -> String {
        let plan = plan_table(&self.facts, &self.policy, self.now_ms, trigger);
        if check::facts(&self.facts).is_ok() {
            check::plan(&plan, &self.facts, &self.policy).unwrap_or_else(|v| panic!("{v:?}"));
        }
        draw::plan(self.plan.insert(plan))
    }

    /// Runs the jobs of the last plan on the facts as they are by now, as the executor would.
    fn apply(&mut self) -> String {
        let jobs: Vec<JobSpec> = self.plan.take().expect("`plan` comes before `apply`").jobs().cloned().collect();
        let mut out = String::new();
        for job in jobs {
            if let Err(refused) = check::job(&job, &self.facts) {
                let stale = refused.iter().all(|v| v.rule.is_stale());
                let word = if stale { "superseded" } else { "refused" };
                writeln!(out, "{word} {}: {}", draw::job(&job), violations(Err(refused)).trim_end()).unwrap();
                continue;
            }
            let before = self.facts.clone();
            simulate::apply(&mut self.facts, &job, self.now_ms);
            check::after(&before, &self.facts).unwrap_or_else(|v| panic!("{v:?}"));
        }
        out + &draw::facts(&self.facts, self.now_ms)
    }

    /// Plans and applies until nothing is due; one line a job.
    fn settle(&mut self, trigger: Trigger) -> String {
        let mut out = String::new();
        for round in 1..100 {
            self.plan(trigger);
            let jobs: Vec<String> = self.plan.iter().flat_map(Plan::jobs).map(draw::job).collect();
            if jobs.is_empty() {
                return out + &draw::facts(&self.facts, self.now_ms);
            }
            writeln!(out, "{round}  {}", jobs.join("\n   ")).unwrap();
            self.apply();
        }
        panic!("never quiet:\n{out}");
    }
}

fn violations(found: Result<(), Vec<check::Violation>>) -> String {
    match found {
        Ok(()) => "well\n".into(),
        Err(found) => found.iter().map(|v| format!("{v}\n")).collect(),
    }
}
