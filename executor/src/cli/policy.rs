//! `caretaker policy`: is a policy sane, is a plugin fit, and what would have been otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;

use super::bars::Bars;
use super::flags::read_settings;
use super::out::{DIM, closed, say, styled, write};
use super::plan::time;
use super::run::line;
use super::{Exit, Intent, block_on, lint, log, registry};
use crate::decide::{Again, Candidate, Difference, Plugin, Tested, read_plugin, unpack};
use crate::env::show;
use crate::error::{Error, Result};
use crate::registry::{DECISIONS_PAGE, Decision, Decisions, Registry};
use crate::settings::Settings;
use crate::show::{Grid, Side, count, things};

#[derive(Subcommand)]
pub(super) enum PolicyCommand {
    /// Check whether a plugin is fit to decide: what every planner keeps to, on tables of all kinds.
    Check {
        /// Plugin.
        file: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Say which settings are unsafe or useless, and why.
    Lint(lint::LintArgs),
    /// Show the plugins that were loaded, the newest first.
    List {
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Show what was decided, the oldest first.
    History(WhichArgs),
    /// Show where the candidate (--policy-shadow) decided otherwise than the active planner.
    Diff(WhichArgs),
    /// Derive a past decision again, bit for bit.
    Replay {
        /// Decision, as `caretaker policy history` shows it.
        id: String,
        /// As JSON, with both plans.
        #[arg(long)]
        json: bool,
    },
    /// Have a plugin, or another settings file, decide what was decided, and show what would have differed.
    Backtest {
        /// Plugin, or settings file.
        candidate: PathBuf,
        #[command(flatten)]
        which: WhichArgs,
    },
}

/// Which decisions.
#[derive(Args)]
pub(super) struct WhichArgs {
    /// Of the table of this name.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Not before: RFC 3339, or milliseconds since the epoch.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Not after.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// So many at most, the oldest first.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: PolicyCommand, settings: Settings) -> Result<Exit> {
    match command {
        PolicyCommand::Check { file, json } => check(&file, json),
        PolicyCommand::Lint(args) => lint::run(&args, settings),
        PolicyCommand::List { json } => on(&settings, async |registry| list(&registry, json).await),
        PolicyCommand::History(which) => on(&settings, async |registry| history(&registry, &which).await),
        PolicyCommand::Diff(which) => on(&settings, async |registry| diff(&registry, &which).await),
        PolicyCommand::Replay { id, json } => on(&settings, async |registry| replay(registry, &id, json).await),
        PolicyCommand::Backtest { candidate, which } => {
            on(&settings, async |registry| backtest(&registry, &candidate, &which, &settings).await)
        }
    }
}

fn on(settings: &Settings, command: impl AsyncFnOnce(Registry) -> Result<Exit>) -> Result<Exit> {
    log::start(settings, log::QUIET, Bars::default());
    block_on(async { command(registry(settings, Intent::Look).await?).await })
}

fn check(file: &Path, json: bool) -> Result<Exit> {
    let report = host::kit::check(&read_plugin(file)?);
    if json {
        line(&report)?;
    } else {
        write(report.to_string().as_bytes())?;
    }
    Ok(if report.passed() { Exit::Done } else { Exit::Failed })
}

async fn list(registry: &Registry, json: bool) -> Result<Exit> {
    let plugins = registry.plugins().await?;
    if json {
        plugins.iter().try_for_each(line)?;
        return Ok(Exit::Done);
    }
    if plugins.is_empty() {
        say(format!("no plugin was loaded yet, as far as {} knows", registry.place()))?;
        return Ok(Exit::Done);
    }
    let mut grid =
        Grid::new([("loaded", Side::Left), ("name", Side::Left), ("bytes", Side::Right), ("sha256", Side::Left)]);
    for plugin in plugins {
        let name = format!("{} {}", plugin.name, plugin.version);
        grid.row([show(plugin.loaded_ms), name, count(plugin.bytes), plugin.sha256]);
    }
    print(&grid)
}

fn print(grid: &Grid) -> Result<Exit> {
    for (nth, text) in grid.lines().into_iter().enumerate() {
        say(if nth == 0 { styled(DIM, text) } else { text })?;
    }
    Ok(Exit::Done)
}

/// Each decision that is asked for, the oldest first; says how many there were.
async fn each(
    registry: &Registry,
    wanted: Decisions,
    limit: u64,
    mut seen: impl AsyncFnMut(Decision) -> Result<()>,
) -> Result<u64> {
    let (mut wanted, mut left) = (wanted, limit);
    while left > 0 && !closed() {
        let page = registry.decisions(&wanted).await?;
        let last = page.len() < DECISIONS_PAGE;
        if let Some(newest) = page.last() {
            wanted.after.clone_from(&newest.id);
        }
        for decision in page {
            if left == 0 {
                break;
            }
            left -= 1;
            seen(decision).await?;
        }
        if last {
            break;
        }
    }
    Ok(limit - left)
}

impl WhichArgs {
    fn wanted(&self) -> Result<Decisions> {
        let at = |text: &Option<String>| text.as_deref().map(time).transpose();
        let (from_ms, to_ms) = (at(&self.from)?.unwrap_or(0), at(&self.to)?.unwrap_or(0));
        Ok(Decisions { table: self.table.clone(), from_ms, to_ms, ..Decisions::default() })
    }

    fn none(&self, registry: &Registry) -> Result<Exit> {
        if !self.json {
            let of = self.table.as_ref().map(|table| format!(" of `{table}`")).unwrap_or_default();
            say(format!("no such decisions{of} in {}", registry.place()))?;
        }
        Ok(Exit::Done)
    }
}

fn short(id: &str) -> &str {
    id.get(..12).filter(|_| id.len() == 64).unwrap_or(id)
}

async fn history(registry: &Registry, which: &WhichArgs) -> Result<Exit> {
    let columns = [
        ("decision", Side::Left),
        ("at", Side::Left),
        ("table", Side::Left),
        ("jobs", Side::Right),
        ("decided by", Side::Left),
        ("candidate", Side::Left),
    ];
    let mut grid = Grid::new(columns);
    let seen = each(registry, which.wanted()?, which.limit, async |one| {
        if which.json {
            return line(&one);
        }
        let by = format!("{}{}", short(&one.planner), if one.fell_back.is_some() { " (fell back)" } else { "" });
        let said = one.candidate_said.unwrap_or_default();
        grid.row([one.id, show(one.at_ms), one.table, count(one.jobs), by, said]);
        Ok(())
    });
    match seen.await? {
        0 => which.none(registry),
        _ if which.json => Ok(Exit::Done),
        _ => print(&grid),
    }
}

async fn diff(registry: &Registry, which: &WhichArgs) -> Result<Exit> {
    let wanted = Decisions { differing: true, ..which.wanted()? };
    let seen = each(registry, wanted, which.limit, async |one| {
        let said = unpack(&one)?.candidate;
        if which.json {
            let (differences, refused) = match said {
                Some(Ok(differences)) => (differences, None),
                Some(Err(why)) => (Vec::new(), Some(why)),
                None => (Vec::new(), None),
            };
            return line(&json!({ "decision": one, "differences": differences, "refused": refused }));
        }
        say(heading(&one, short(one.candidate.as_deref().unwrap_or_default())))?;
        match said {
            Some(Ok(differences)) => differences.iter().try_for_each(tell),
            Some(Err(why)) => say(format!("  gave no plan: {why}")),
            None => Ok(()),
        }
    });
    match seen.await? {
        0 if !which.json => {
            say(format!("the candidate decided nothing otherwise, as far as {} knows", registry.place()))?;
            Ok(Exit::Done)
        }
        _ => Ok(Exit::Done),
    }
}

fn heading(one: &Decision, other: &str) -> String {
    format!("{} `{}` version {}, decided by {}; {other}:", show(one.at_ms), one.table, one.version, short(&one.planner))
}

fn tell(difference: &Difference) -> Result<()> {
    let Difference { decision, shard, was, now, less, more } = difference;
    let decision = serde_json::to_value(decision).unwrap_or_default();
    let of = shard.as_ref().map(|shard| format!(" {shard}")).unwrap_or_default();
    say(format!("  {}{of}: {was} -> {now}", decision.as_str().unwrap_or_default()))?;
    for (sign, job) in less.iter().map(|job| ('-', job)).chain(more.iter().map(|job| ('+', job))) {
        say(format!("    {sign} {}", serde_json::to_string(job).unwrap_or_default()))?;
    }
    Ok(())
}

async fn replay(registry: Registry, id: &str, json: bool) -> Result<Exit> {
    let decision = registry.decision(id).await?.ok_or_else(|| {
        Error::Invalid(format!("there is no decision `{id}` in {}; see `caretaker policy history`", registry.place()))
    })?;
    let replayed = Again::new(registry).replay(decision).await?;
    let same = replayed.same;
    if json {
        line(&replayed)?;
    } else {
        write(planner::draw::plan(&replayed.derived).as_bytes())?;
        let by = short(&replayed.decision.planner);
        if same {
            say(format!("the same plan as was recorded, bit for bit, by {by}: {}", replayed.decision.plan_sha256))?;
        } else {
            say(format!("NOT the plan that was recorded, by {by}; it was:"))?;
            write(planner::draw::plan(&replayed.recorded).as_bytes())?;
        }
    }
    Ok(if same { Exit::Done } else { Exit::Failed })
}

async fn candidate(file: &Path, settings: &Settings) -> Result<Candidate> {
    let bytes = read_plugin(file)?;
    if bytes.starts_with(b"\0asm") {
        let plugin = Plugin::of(&file.display().to_string(), bytes, &settings.choice.config).await?;
        return Ok(Candidate::Plugin(Arc::new(plugin)));
    }
    let name = file.to_str().ok_or_else(|| Error::Invalid(format!("`{}` is not UTF-8", file.display())))?;
    Ok(Candidate::Policy(Box::new(Settings::resolve(read_settings(name)?)?.policy)))
}

async fn backtest(registry: &Registry, file: &Path, which: &WhichArgs, settings: &Settings) -> Result<Exit> {
    let candidate = candidate(file, settings).await?;
    let (mut differing, mut refused) = (0_u64, 0_u64);
    let (mut was, mut now) = ((0, 0), (0, 0));
    let name = file.display().to_string();
    let seen = each(registry, which.wanted()?, which.limit, async |one| {
        let tested: Tested = candidate.test(one).await?;
        was = (was.0 + tested.was.jobs, was.1 + tested.was.bytes);
        now = (now.0 + tested.now.jobs, now.1 + tested.now.bytes);
        refused += u64::from(tested.refused.is_some());
        if tested.differences.is_empty() && tested.refused.is_none() {
            return Ok(());
        }
        differing += 1;
        if which.json {
            return line(&tested);
        }
        say(heading(&tested.decision, &name))?;
        if let Some(why) = &tested.refused {
            return say(format!("  gave no plan: {why}"));
        }
        tested.differences.iter().try_for_each(tell)
    });
    let seen = seen.await?;
    if which.json {
        let work = |(jobs, bytes): (u64, u64)| json!({ "jobs": jobs, "bytes": bytes });
        line(&json!({
            "summary": { "decisions": seen, "differing": differing, "refused": refused, "was": work(was), "now": work(now) }
        }))?;
    } else if seen == 0 {
        return which.none(registry);
    } else {
        let work = |(jobs, bytes): (u64, u64)| format!("{}, {} bytes", things(jobs, "job"), count(bytes));
        say(format!("{} of {} would have differed", count(differing), things(seen, "decision")))?;
        say(format!("  asked for then: {}; with `{name}`: {} (as far as bytes were measured)", work(was), work(now)))?;
        say("  each decision is taken by itself: what another policy had done before is not undone")?;
        if refused > 0 {
            say(format!("  no plan that may be carried out for {}", things(refused, "decision")))?;
        }
    }
    Ok(if refused > 0 { Exit::Failed } else { Exit::Done })
}
