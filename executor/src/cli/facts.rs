//! `caretaker facts`: everything that decisions are made from.

use planner::draw;
use planner::plan::Trigger;
use tokio_util::sync::CancellationToken;

use super::each::{each, none_found};
use super::out::{complain, say, write};
use super::{Exit, FactsArgs, Work};
use crate::env::now_ms;
use crate::error::{Error, Result};
use crate::read::Depth;

/// Prints the facts of a table; of a database, those of every table, as JSON in one array.
pub(super) async fn run(args: &FactsArgs, work: &Work) -> Result<Exit> {
    let tables = work.root.tables(&work.session).await?;
    let array = tables.first().is_none_or(|table| table.uri != work.root.uri());
    if tables.is_empty() && !args.json {
        return none_found(&work.root);
    }
    let tender = &work.tender(CancellationToken::new());
    let look = async |table| tender.evaluate(table, Depth::Garbage, Trigger::Tick).await;
    let (mut exit, mut printed) = (Exit::Done, 0);
    each(work, &tables, look, |table, evaluation| {
        match evaluation {
            Ok(evaluation) if args.json => {
                let json = serde_json::to_string_pretty(&*evaluation.facts);
                let json = json.map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?;
                let before = if !array {
                    ""
                } else if printed == 0 {
                    "["
                } else {
                    ","
                };
                say(format!("{before}{json}"))?;
            }
            Ok(evaluation) => {
                let before = if printed == 0 { "" } else { "\n" };
                write(format!("{before}{}", draw::facts(&evaluation.facts, now_ms())).as_bytes())?;
            }
            Err(error) => {
                complain(format!("table `{}`: {error}", table.name));
                exit = Exit::Failed;
                return Ok(());
            }
        }
        printed += 1;
        Ok(())
    })
    .await?;
    if args.json && array {
        say(if printed == 0 { "[]" } else { "]" })?;
    }
    Ok(exit)
}
