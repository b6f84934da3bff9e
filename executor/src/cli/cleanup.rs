//! `caretaker cleanup`: old versions, removed now; or who holds the space of a table (R4.6).

use clap::Args;
use planner::draw::{bytes, duration, generations};
use planner::facts::TableFacts;
use planner::job::JobSpec;
use planner::plan::{Trigger, cleanup_job};
use serde::Serialize;

use super::compact::only;
use super::out::{DIM, complain, say, styled};
use super::run::line;
use super::{Exit, Work};
use crate::error::{Error, Result};
use crate::read::Depth;
use crate::read::space::{Amount, Kept, Pin, Space};
use crate::report::{JobEnd, JobReport};
use crate::run::cleanup::{Removal, dry_run};
use crate::show::{Grid, Side, count, things};
use crate::signal::Stop;
use crate::tend::{Evaluation, Tender};

#[derive(Args)]
pub(super) struct CleanupArgs {
    /// Table.
    pub(super) table: String,
    /// Change nothing: show what a cleanup would remove now, and who holds the rest.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Cleans the table up by its own policy, whatever the triggers say; a dry run only looks.
pub(super) async fn run(args: &CleanupArgs, work: &Work) -> Result<Exit> {
    let stop = Stop::listen()?;
    let table = only(work).await?;
    let tender = work.tender(stop.token().clone());
    let depth = if args.dry_run { Depth::Garbage } else { Depth::Fold };
    tender.look_beside(&table).await?;
    let seen = tender.evaluate(&table, depth, Trigger::Tick).await?;
    let job = cleanup_job(&seen.facts, &tender.policy);
    if args.dry_run {
        return look(&seen, job, args.json).await;
    }
    let job = job.ok_or_else(|| Error::Invalid(off(&seen.facts.table)))?;
    if let Some(why) = refusal(&seen.facts) {
        return Err(Error::Fatal(why));
    }
    let exit = remove(&tender, &seen, job, args.json).await?;
    Ok(stop.code().map_or(exit, Exit::Interrupted))
}

async fn remove(tender: &Tender, seen: &Evaluation, job: JobSpec, json: bool) -> Result<Exit> {
    let mut exit = Exit::Done;
    for job in tender.now(&seen.table, job).await {
        exit = tell(&seen.table.name, &job, json)?;
        tender.log(&seen.table, &job);
    }
    Ok(exit)
}

fn tell(table: &str, job: &JobReport, json: bool) -> Result<Exit> {
    let failed = matches!(job.end, JobEnd::Failed { .. });
    let exit = if failed { Exit::Failed } else { Exit::Done };
    if json {
        #[derive(Serialize)]
        struct Line<'a> {
            table: &'a str,
            #[serde(flatten)]
            job: &'a JobReport,
        }
        line(&Line { table, job })?;
        return Ok(exit);
    }
    match &job.end {
        JobEnd::Cleaned(done) => {
            say(format!("`{table}`: removed {}", removed(done.versions, done.files, done.bytes)))?;
            if done.failed > 0 {
                say(format!(
                    "{} could not be deleted; the next cleanup finds them again",
                    things(done.failed, "file")
                ))?;
            }
        }
        JobEnd::Failed { why, .. } => complain(format!("table `{table}`: {why}")),
        other => say(format!("`{table}`: {other}"))?,
    }
    Ok(exit)
}

/// `3 old versions: 12 files, 1.2M`.
fn removed(versions: u64, files: u64, size: u64) -> String {
    match (versions, files) {
        (0, 0) => "nothing".into(),
        _ => format!("{}: {}, {}", things(versions, "old version"), things(files, "file"), bytes(size)),
    }
}

/// Why a cleanup without a minimum age is no cleanup (R4.1), and what to set.
fn off(table: &str) -> String {
    format!(
        "cleanup of `{table}` is off: no minimum age of versions is set, so every version stays; set one with \
         --cleanup-min-version-age-secs 7d (or CLEANUP_MIN_VERSION_AGE_SECS, or in the settings file)"
    )
}

/// What the table's own config has against a cleanup.
fn refusal(facts: &TableFacts) -> Option<String> {
    let table = &facts.table;
    if facts.is_paused() {
        return Some(format!("`{table}` is paused, so nothing is removed; take `caretaker.paused` out of its config"));
    }
    if let Some(clone) = facts.clones.first() {
        return Some(format!(
            "`{clone}` is a shallow clone that reads files of `{table}`, so nothing is removed; drop it or make it a copy \
             of its own"
        ));
    }
    if let Some(mismatch) = &facts.mismatch {
        return Some(format!(
            "`{table}` has answers that {} changed, so nothing is removed; see `caretaker verify --help`",
            mismatch.kind
        ));
    }
    facts
        .opted_out_of_cleanup()
        .then(|| format!("`{table}` wants no cleanup; take `caretaker.cleanup.enabled` out of its config to have one"))
}

/// What a dry run shows; also its `--json`.
#[derive(Serialize)]
struct DryRun<'a> {
    table: &'a str,
    version: u64,
    /// Versions younger than this stay; `None`: cleanup is off.
    min_age_ms: Option<u64>,
    /// Newest versions that stay whatever their age.
    retain_versions: u64,
    /// Why nothing would be removed.
    refused: Option<String>,
    removes: Removal,
    space: Space,
}

async fn look(seen: &Evaluation, job: Option<JobSpec>, json: bool) -> Result<Exit> {
    let (table, facts) = (&seen.table, &seen.facts);
    let refused = if job.is_none() { Some(off(&facts.table)) } else { refusal(facts) };
    let (removes, space) = dry_run(table, facts, job.as_ref(), refused.is_none()).await?;
    let (min_age_ms, retain_versions) = match job {
        Some(JobSpec::Cleanup { min_age_ms, retain_versions, .. }) => (Some(min_age_ms), retain_versions),
        _ => (None, 0),
    };
    let (name, version) = (table.name.as_str(), table.version());
    let shown = DryRun { table: name, version, min_age_ms, retain_versions, refused, removes, space };
    if json {
        line(&shown)?;
    } else {
        shown.print()?;
    }
    Ok(Exit::Done)
}

impl DryRun<'_> {
    fn print(&self) -> Result<()> {
        let lines = self.grid().lines();
        if let Some((names, rows)) = lines.split_first() {
            say(styled(DIM, names))?;
            rows.iter().try_for_each(say)?;
            say("")?;
        }
        let Removal { versions, files, bytes, .. } = &self.removes;
        match &self.refused {
            Some(why) => say(why),
            None => say(format!("a cleanup now would remove {}", removed(versions.len() as u64, *files, *bytes))),
        }
    }

    fn grid(&self) -> Grid {
        let columns = [("who", Side::Left), ("versions", Side::Left), ("files", Side::Right), ("bytes", Side::Right)];
        let mut grid = Grid::new(columns);
        let mut all = Amount::default();
        let mut row = |who: String, versions: String, amount: Amount| {
            all.files += amount.files;
            all.bytes += amount.bytes;
            if amount != Amount::default() {
                grid.row([who, versions, count(amount.files), bytes(amount.bytes)]);
            }
        };
        let Self { space, removes, .. } = self;
        row("would be removed".into(), generations(removes.versions.iter().copied()), space.removable);
        for Kept { pins, versions, amount } in &space.kept {
            let who: Vec<String> = pins.iter().map(|pin| self.who(pin)).collect();
            row(who.join(", "), generations(versions.iter().copied()), *amount);
        }
        let wal = &space.mem_wal;
        let needed = wal.retained_by.as_deref().unwrap_or("retained versions");
        let rest = [
            ("several of these".into(), space.several),
            ("no version: being written, or left by a failed commit".into(), space.unproven),
            ("branches: what they wrote themselves".into(), space.branches),
            ("SSTables not folded yet".into(), wal.unfolded),
            ("SSTables folded, still listed".into(), wal.folded_listed),
            (format!("SSTables folded, needed by {needed}"), wal.retained),
            ("SSTables folded, in their grace".into(), wal.unlisted),
            ("log and manifests of the shards".into(), wal.log),
            ("other files".into(), space.other),
        ];
        rest.into_iter().for_each(|(who, amount)| row(who, String::new(), amount));
        grid.row(["all".into(), String::new(), count(all.files), bytes(all.bytes)]);
        grid
    }

    fn who(&self, pin: &Pin) -> String {
        match pin {
            Pin::Current => "the current version".into(),
            Pin::Young => format!("younger than {}", duration(self.min_age_ms.unwrap_or_default())),
            Pin::Newest => format!("among the newest {}", count(self.retain_versions)),
            Pin::Branch { name } => format!("branch `{name}`"),
            Pin::Tag { name } => format!("tag `{name}`"),
            Pin::NoCleanup => "cleanup does not run".into(),
        }
    }
}
