//! `caretaker simulate`: what a policy would do with a workload, on a clock that runs as fast as it can.

use clap::Args;
use planner::draw;
use planner::simulate::{self, PRESETS, Simulation, Workload};
use toml::Value;

use super::Exit;
use super::out::say;
use super::plan::text_of;
use super::run::line;
use crate::error::{Error, Result};
use crate::settings::Settings;

const DAY_MS: u64 = 86_400_000;

#[derive(Args)]
pub(super) struct SimulateArgs {
    /// Settings file of the policy; without: the settings as they are for `serve`.
    policy: Option<String>,
    /// File of the workload, `key = value` a line; `-`: standard input. Without: --preset, or the defaults.
    workload: Option<String>,
    /// Begin with this workload; the file's values go on top. Without a name of one: list them.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    preset: Option<String>,
    /// Print the workload as a file to begin with, and simulate nothing.
    #[arg(long)]
    print_workload: bool,
    /// Begin with this table instead of an empty one: what `caretaker facts --json` printed.
    #[arg(long, value_name = "FILE")]
    facts: Option<String>,
    /// How long, days.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=400))]
    days: u64,
    /// Decides which jobs fail; the same seed gives the same answer.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// What goes wrong and when: a JSON list, as `[{"fault": "worker_dies", "at_ms": 3600000}]`.
    #[arg(long, value_name = "FILE")]
    faults: Option<String>,
    /// As JSON.
    #[arg(long, conflicts_with = "svg")]
    json: bool,
    /// As a picture, into this file; `-`: standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<String>,
}

impl SimulateArgs {
    /// The settings file that is meant, where one is.
    pub(super) fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }
}

pub(super) fn run(args: &SimulateArgs, settings: Settings) -> Result<Exit> {
    if args.preset.as_deref() == Some("") {
        return PRESETS
            .iter()
            .try_for_each(|preset| say(format!("{:<16} {}", preset.name, preset.help)))
            .map(|()| Exit::Done);
    }
    let workload = workload(args)?;
    if args.print_workload {
        return say(workload.to_toml().trim_end()).map(|()| Exit::Done);
    }
    let json = |file: &String| Ok::<_, Error>((file.clone(), text_of(file)?));
    let bad = |file: &str, why: serde_json::Error| Error::Invalid(format!("`{file}`: {why}"));
    let facts = args.facts.as_ref().map(json).transpose()?;
    let facts = facts.map(|(file, text)| serde_json::from_str(&text).map_err(|e| bad(&file, e))).transpose()?;
    let faults = args.faults.as_ref().map(json).transpose()?;
    let faults = faults.map(|(file, text)| serde_json::from_str(&text).map_err(|e| bad(&file, e))).transpose()?;
    let simulation = Simulation {
        workload,
        policy: settings.policy,
        facts,
        duration_ms: args.days * DAY_MS,
        seed: args.seed,
        faults: faults.unwrap_or_default(),
        ..Simulation::default()
    };
    let timeline = simulate::run(&simulation).map_err(|unfit| Error::Invalid(unfit.to_string()))?;
    match &args.svg {
        _ if args.json => line(&timeline)?,
        None => say(draw::timeline(&timeline).trim_end())?,
        Some(file) if file == "-" => say(draw::svg(&timeline))?,
        Some(file) => {
            let written = std::fs::write(file, draw::svg(&timeline));
            written.map_err(|e| Error::Invalid(format!("`{file}` can't be written: {e}")))?;
            say(format!("drawn into `{file}`"))?;
        }
    }
    Ok(Exit::Done)
}

fn workload(args: &SimulateArgs) -> Result<Workload> {
    let mut workload = match &args.preset {
        Some(name) => Workload::preset(name).map_err(|refused| Error::Invalid(refused.to_string()))?,
        None => Workload::default(),
    };
    let Some(file) = &args.workload else { return Ok(workload) };
    let refused = |why: &dyn std::fmt::Display| Error::Invalid(format!("`{file}`: {why}"));
    let text = text_of(file)?;
    let values: toml::Table = text.parse().map_err(|e: toml::de::Error| refused(&e.to_string().trim_end()))?;
    for (key, value) in &values {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Boolean(yes) => yes.to_string(),
            other => return Err(refused(&format!("`{key}` is {}; write a number or a text", other.type_str()))),
        };
        workload.set(key, &text).map_err(|e| refused(&e))?;
    }
    workload.check().map_err(|e| refused(&e))?;
    Ok(workload)
}
