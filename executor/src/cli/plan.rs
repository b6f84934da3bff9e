//! `caretaker plan`: what is due and why; writes nothing.

use planner::facts::TableFacts;
use planner::plan::{Outcome, Plan, Trigger, plan_table};
use planner::policy::Policy;
use planner::{check, draw};
use tokio_util::sync::CancellationToken;

use super::each::{each, none_found, selected};
use super::out::{complain, say, write};
use super::run::line;
use super::{Exit, PlanArgs, Work};
use crate::env::now_ms;
use crate::error::{Error, Result};
use crate::read::Depth;
use crate::report::fold_holds;
use crate::show::{count, things};

/// Plans from storage. Tables come in the order of their names.
pub(super) async fn of_root(args: &PlanArgs, work: &Work, trigger: Trigger) -> Result<Exit> {
    let tables = selected(&work.root, &work.session, &args.tables).await?;
    if tables.is_empty() && !args.json {
        return none_found(&work.root);
    }
    // Who asks for one table wants to see it whatever is the matter with it.
    let verbose = args.verbose || tables.len() == 1;
    let tender = &work.tender(CancellationToken::new());
    let look = async |table| tender.evaluate(table, Depth::Garbage, trigger).await;
    let mut tally = Tally::default();
    each(work, &tables, look, |table, evaluation| match evaluation {
        Ok(evaluation) => tally.show(&evaluation.facts, &evaluation.plan, args.json, verbose),
        Err(error) => {
            tally.failed += 1;
            if args.json {
                return line(&serde_json::json!({ "table": table.name, "error": error.to_string() }));
            }
            complain(format!("table `{}`: {error}", table.name));
            Ok(())
        }
    })
    .await?;
    tally.close(args.json)
}

/// Plans from a file of facts.
pub(super) fn of_facts(file: &str, at: Option<&str>, policy: &Policy, json: bool) -> Result<Exit> {
    let at_ms = at.map_or_else(|| Ok(now_ms()), time)?;
    let tables = read_facts(file)?;
    let mut tally = Tally::default();
    for facts in &tables {
        let plan = plan_table(facts, policy, at_ms, Trigger::Tick);
        tally.show(facts, &plan, json, true)?;
    }
    tally.close(json)
}

#[derive(Default)]
struct Tally {
    tables: u64,
    due: u64,
    held: u64,
    hidden: u64,
    failed: u64,
}

impl Tally {
    fn show(&mut self, facts: &TableFacts, plan: &Plan, json: bool, verbose: bool) -> Result<()> {
        let due = plan.jobs().count() > 0;
        self.tables += 1;
        self.due += u64::from(due);
        self.held += u64::from(!due && !fold_holds(plan).is_empty());
        if json {
            return line(plan);
        }
        let held = plan.verdicts.iter().any(|verdict| matches!(verdict.outcome, Outcome::Held { .. }));
        if facts.shards.is_empty() && !due && !held && plan.complaints.is_empty() && !verbose {
            self.hidden += 1;
            return Ok(());
        }
        write(draw::facts(facts, plan.at_ms).as_bytes())?;
        write(draw::plan(plan).as_bytes())?;
        say("")
    }

    fn close(&self, json: bool) -> Result<Exit> {
        if !json {
            let mut text = format!("{}: {} due", things(self.tables + self.failed, "table"), count(self.due));
            let others =
                [(self.held, "held"), (self.hidden, "without LSM writes and at rest"), (self.failed, "failed")];
            for (n, what) in others.into_iter().filter(|(n, _)| *n > 0) {
                text += &format!(", {} {what}", count(n));
            }
            say(text)?;
        }
        Ok(if self.failed > 0 { Exit::Failed } else { Exit::Done })
    }
}

fn read_facts(file: &str) -> Result<Vec<TableFacts>> {
    parse_facts(&text_of(file)?).map_err(|e| e.context(format!("the facts in `{file}`")))
}

/// What is in a file; `-`: what comes in.
pub(super) fn text_of(file: &str) -> Result<String> {
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()),
        path => std::fs::read_to_string(path),
    };
    text.map_err(|e| Error::Invalid(format!("`{file}` can't be read: {e}")))
}

/// The facts of one table, or an array of them.
fn parse_facts(text: &str) -> Result<Vec<TableFacts>> {
    let several = text.trim_start().starts_with('[');
    let parsed = if several { serde_json::from_str(text) } else { serde_json::from_str(text).map(|one| vec![one]) };
    let tables: Vec<TableFacts> = parsed.map_err(|e| Error::Invalid(e.to_string()))?;
    for facts in &tables {
        check::facts(facts).map_err(|violations| {
            let why: Vec<String> = violations.iter().map(ToString::to_string).collect();
            Error::Invalid(format!("table `{}` can't be so: {}", facts.table, why.join("; ")))
        })?;
    }
    Ok(tables)
}

/// A time as people write it, in milliseconds since the epoch.
pub(super) fn time(text: &str) -> Result<u64> {
    let wrong = || {
        Error::Invalid(format!("`{text}` is not a time; write 2026-12-24T18:00:00Z, or milliseconds since the epoch"))
    };
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map_err(|_| wrong());
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
    u64::try_from(time.as_millisecond()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rfc_3339_or_milliseconds() {
        let same = ["2026-12-24T18:00:00Z", "2026-12-24T19:00:00+01:00", "1798135200000"];
        assert_eq!(same.map(|text| time(text).ok()), [Some(1_798_135_200_000); 3]);
        for wrong in ["", "now", "-5", "2026-12-24", "1969-01-01T00:00:00Z", "99999999999999999999"] {
            assert!(time(wrong).is_err_and(|e| e.to_string().contains(wrong)), "{wrong}");
        }
    }

    #[test]
    fn facts_are_one_table_or_an_array_and_unknown_keys_are_refused() {
        let one = r#"{"table":"docs","version":3}"#;
        assert_eq!(parse_facts(one).unwrap().len(), 1);
        assert_eq!(parse_facts(&format!(" [{one},{one}]")).unwrap().len(), 2);
        let why = parse_facts(r#"{"table":"docs","version":3,"colour":1}"#).expect_err("unknown").to_string();
        assert!(why.contains("colour"), "{why}");
    }

    #[test]
    fn facts_that_can_not_be_are_refused() {
        let shard = r#"{"shard":"a"}"#;
        let twice = format!(r#"{{"table":"docs","version":3,"shards":[{shard},{shard}]}}"#);
        assert!(parse_facts(&twice).is_err_and(|e| e.to_string().contains("docs")));
    }
}
