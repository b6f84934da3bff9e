//! `caretaker vectors`: picks of strategies, held against cases with the answers they must have.

use clap::Args;
use planner::vectors;
use serde_json::json;

use super::Exit;
use super::out::say;
use super::plan::text_of;
use super::run::line;
use crate::error::{Error, Result};

#[derive(Args)]
pub(super) struct VectorsArgs {
    /// Files of cases: a JSON list each; `-`: standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// One JSON object a line: each file with its checks.
    #[arg(long)]
    json: bool,
}

/// Exit code 1: a case disagrees.
pub(super) fn run(args: &VectorsArgs) -> Result<Exit> {
    let mut exit = Exit::Done;
    for file in &args.files {
        let report = vectors::run(&text_of(file)?).map_err(|refused| Error::Invalid(format!("`{file}`: {refused}")))?;
        if !report.is_clean() {
            exit = Exit::Failed;
        }
        if args.json {
            line(&json!({ "file": file, "report": report }))?;
        } else if report.is_clean() {
            say(format!("{file}: {report}"))?;
        } else {
            say(format!("{file}:\n{report}"))?;
        }
    }
    Ok(exit)
}
