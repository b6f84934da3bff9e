//! `caretaker jobs` and `caretaker sql`: the registry, for people.

use clap::{Args, Subcommand};

use super::bars::Bars;
use super::out::{DIM, closed, say, styled};
use super::run::line;
use super::{Exit, Intent, block_on, log, registry};
use crate::env::{now_ms, show};
use crate::error::{Error, Result};
use crate::registry::{Answer, EVENTS_MAX, Event, Filter, Job, PAGE_MAX, POLL, Registry, State};
use crate::settings::Settings;
use crate::show::{Grid, Side, count, took};
use crate::sql::{Statement, parse, rows};

/// What `sql` understands, for its help.
pub(super) const STATEMENTS: &str = "\
Statements:
  SHOW JOBS [FOR TABLE name | FOR JOB 'id'] [LIMIT n]
  SHOW JOB EVENTS 'id' [LIMIT n]
  DESCRIBE JOB 'id'
  CANCEL JOB 'id'   PAUSE JOB 'id'   RESUME JOB 'id'";

#[derive(Subcommand)]
pub(super) enum JobsCommand {
    /// Show jobs, the newest first.
    List(ListArgs),
    /// Show everything about one job.
    Show(OneArgs),
    /// Stop a job for good: one that waits at once, one that runs at its next safe point.
    Cancel(OneArgs),
    /// Keep a job from running until it is resumed. What a running one has done is done anew then.
    Pause(OneArgs),
    /// Let a paused job go on.
    Resume(OneArgs),
    /// Show what happened to a job.
    Events(OneArgs),
    /// Follow a job until it ends, or all of them.
    Watch {
        /// Job; without it, all.
        id: Option<String>,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub(super) struct ListArgs {
    /// In this state; may be given again.
    #[arg(long = "state", value_name = "STATE", value_parser = State::ALL.map(State::word))]
    states: Vec<String>,
    /// Of this type, such as memwal_compaction.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Of the table of this name.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Parts of this job.
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// How many.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=PAGE_MAX))]
    limit: u64,
    /// The page behind the job of this id.
    #[arg(long, value_name = "ID")]
    before: Option<String>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct OneArgs {
    /// Job.
    id: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct SqlArgs {
    /// Statement.
    statement: String,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: JobsCommand, settings: Settings) -> Result<Exit> {
    on(&settings, async |registry| match command {
        JobsCommand::List(args) => {
            let states = args.states.iter().filter_map(|word| State::of(word)).collect();
            let ListArgs { kind, table, parent, limit, before, json, .. } = args;
            list(&registry, &Filter { states, kind, table, parent, before, limit }, json).await
        }
        JobsCommand::Show(OneArgs { id, json }) => describe(&registry, &id, json).await,
        JobsCommand::Cancel(one) => tell(&one.id, registry.cancel(&one.id).await?, "cancelled", one.json),
        JobsCommand::Pause(one) => tell(&one.id, registry.pause(&one.id).await?, "paused", one.json),
        JobsCommand::Resume(one) => tell(&one.id, registry.resume(&one.id).await?, "resumed", one.json),
        JobsCommand::Events(OneArgs { id, json }) => events(&registry, &id, EVENTS_MAX, json).await,
        JobsCommand::Watch { id: Some(id), json } => watch(&registry, &id, json).await,
        JobsCommand::Watch { id: None, json } => watch_all(&registry, json).await,
    })
}

/// Runs a statement.
pub(super) fn sql(args: &SqlArgs, settings: Settings) -> Result<Exit> {
    let (statement, json) = (parse(&args.statement)?, args.json);
    on(&settings, async |registry| match statement {
        Statement::Jobs { table, parent, limit } => {
            list(&registry, &Filter { table, parent, limit, ..Filter::default() }, json).await
        }
        Statement::Events { id, limit } => events(&registry, &id, limit, json).await,
        Statement::Describe(id) => describe(&registry, &id, json).await,
        Statement::Cancel(id) => tell(&id, registry.cancel(&id).await?, "cancelled", json),
        Statement::Pause(id) => tell(&id, registry.pause(&id).await?, "paused", json),
        Statement::Resume(id) => tell(&id, registry.resume(&id).await?, "resumed", json),
    })
}

fn on(settings: &Settings, command: impl AsyncFnOnce(Registry) -> Result<Exit>) -> Result<Exit> {
    log::start(settings, log::QUIET, Bars::default());
    block_on(async { command(registry(settings, Intent::Tend).await?).await })
}

async fn list(registry: &Registry, filter: &Filter, json: bool) -> Result<Exit> {
    // A page at a time: a statement may ask for more than one holds.
    let (mut left, mut filter, mut all) = (filter.limit, filter.clone(), Vec::new());
    while left > 0 {
        filter.limit = left.min(PAGE_MAX);
        let page = registry.jobs(&filter).await?;
        left -= page.len() as u64;
        let last = (page.len() as u64) < filter.limit;
        filter.before = page.last().map(|job| job.id.clone());
        if json {
            page.iter().try_for_each(line)?;
        } else {
            all.extend(page);
        }
        if last {
            break;
        }
    }
    match json {
        true => {}
        false if all.is_empty() => say(format!("no such jobs in {}", registry.place()))?,
        false => print(&all)?,
    }
    Ok(Exit::Done)
}

fn print(jobs: &[Job]) -> Result<()> {
    let mut grid = Grid::new([
        ("job", Side::Left),
        ("type", Side::Left),
        ("table", Side::Left),
        ("state", Side::Left),
        ("rows", Side::Right),
        ("tries", Side::Right),
        ("took", Side::Right),
        ("since", Side::Left),
        ("worker", Side::Left),
    ]);
    for job in jobs {
        let ended = job.ended_ms.or_else(|| (job.state == State::Running).then(now_ms));
        let millis = job.started_ms.zip(ended).map(|(from, to)| took(to.saturating_sub(from)));
        let rows = match (job.rows_done, job.rows_total) {
            (0, 0) => "-".into(),
            (done, 0) => count(done),
            (done, total) => format!("{}/{}", count(done), count(total)),
        };
        let state = job.outcome.as_deref().filter(|_| job.state == State::Succeeded).unwrap_or(job.state.word());
        grid.row([
            job.id.clone(),
            job.kind.clone(),
            job.table.clone(),
            job.ask.as_ref().map_or_else(|| state.to_string(), |ask| format!("{state}, to {ask}")),
            rows,
            count(job.attempt),
            millis.unwrap_or_else(|| "-".into()),
            show(job.created_ms),
            job.worker.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    let lines = grid.lines();
    if let Some((names, rows)) = lines.split_first() {
        say(styled(DIM, names))?;
        rows.iter().try_for_each(say)?;
    }
    Ok(())
}

async fn describe(registry: &Registry, id: &str, json: bool) -> Result<Exit> {
    let Some(job) = registry.job(id).await? else {
        let old = registry.archived(id).await?.ok_or_else(|| unknown(id))?;
        return line(&old).map(|()| Exit::Done);
    };
    if json {
        return line(&job).map(|()| Exit::Done);
    }
    print(std::slice::from_ref(&job))?;
    if let Some(failure) = &job.failure {
        let phase = failure.phase.as_deref().map(|phase| format!(" in `{phase}`")).unwrap_or_default();
        let again = if failure.retryable { "it may work when tried again" } else { "trying again changes nothing" };
        say(format!("\nfailed{phase}: {}\n({again})", failure.message))?;
    }
    let pretty = |value: &serde_json::Value| serde_json::to_string_pretty(value).unwrap_or_default();
    say(format!("\nwork {}", pretty(&job.spec)))?;
    if let Some(result) = &job.result {
        say(format!("\nresult {}", pretty(result)))?;
    }
    let parts = registry.jobs(&Filter { parent: Some(job.id.clone()), ..Filter::default() }).await?;
    if !parts.is_empty() {
        say("\nparts")?;
        print(&parts)?;
    }
    Ok(Exit::Done)
}

fn tell(id: &str, answer: Answer, done: &str, json: bool) -> Result<Exit> {
    let said = match answer {
        Answer::Unknown => return Err(unknown(id)),
        Answer::Done => format!("job `{id}` is {done}"),
        Answer::Asked => format!("job `{id}` runs: its worker does so at its next safe point"),
        Answer::Ended(state) => format!("job `{id}` had ended before ({}); nothing was changed", state.word()),
        Answer::Not(state) => format!("job `{id}` is {}; nothing was changed", state.word()),
    };
    if json {
        line(&rows::told(id, answer, done))?;
    } else {
        say(said)?;
    }
    Ok(Exit::Done)
}

async fn events(registry: &Registry, id: &str, limit: u64, json: bool) -> Result<Exit> {
    let found = registry.events(id, 0, limit).await?;
    if found.is_empty() && registry.job(id).await?.is_none() {
        return Err(unknown(id));
    }
    found.iter().try_for_each(|event| happened(event, json))?;
    Ok(Exit::Done)
}

fn happened(event: &Event, json: bool) -> Result<()> {
    if json {
        return line(event);
    }
    let of = |text: &Option<String>| text.as_ref().map(|text| format!("  {text}")).unwrap_or_default();
    say(format!("{}  {:<16}{}{}", show(event.at_ms), event.state, of(&event.worker), of(&event.message)))
}

/// Until the job ends: its end is the command's.
async fn watch(registry: &Registry, id: &str, json: bool) -> Result<Exit> {
    let mut bell = registry.listen();
    let mut after = 0;
    loop {
        let job = registry.job(id).await?.ok_or_else(|| unknown(id))?;
        for event in registry.events(id, after, EVENTS_MAX).await? {
            happened(&event, json)?;
            after = event.id;
        }
        if job.state.is_end() || closed() {
            return Ok(if job.state == State::Failed { Exit::Failed } else { Exit::Done });
        }
        // A heartbeat rings no bell, and neither does what another process writes into a file.
        let _ = tokio::time::timeout(POLL, bell.recv()).await;
    }
}

/// One line for each job whenever it is somewhere else, until it is interrupted.
async fn watch_all(registry: &Registry, json: bool) -> Result<Exit> {
    let mut bell = registry.listen();
    let mut seen = std::collections::BTreeMap::new();
    let mut since = registry.ended_since(u64::MAX >> 1).await?.1;
    loop {
        let open = Filter { states: vec![State::Pending, State::Running, State::Paused], ..Filter::default() };
        let (ended, now) = registry.ended_since(since).await?;
        let jobs = registry.jobs(&open).await?;
        for job in jobs.iter().rev().chain(&ended) {
            if seen.insert(job.id.clone(), job.state) == Some(job.state) {
                continue;
            }
            match json {
                true => line(job)?,
                false => {
                    say(format!(
                        "{}  {:<10}{}  {}  {}",
                        show(now_ms()),
                        job.state.word(),
                        job.id,
                        job.kind,
                        job.table
                    ))?;
                }
            }
        }
        if closed() {
            return Ok(Exit::Done);
        }
        since = now;
        seen.retain(|id, _| jobs.iter().chain(&ended).any(|job| job.id == *id));
        let _ = tokio::time::timeout(POLL, bell.recv()).await;
    }
}

fn unknown(id: &str) -> Error {
    Error::Invalid(format!("there is no job `{id}`; `caretaker jobs list` shows those there are"))
}
