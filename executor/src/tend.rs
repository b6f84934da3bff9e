//! One table's care: read, plan, run what is due, until nothing is.

mod attempt;
mod jobs;
mod parts;
mod segments;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use lance::session::Session;
use planner::facts::TableFacts;
use planner::job::JobSpec;
use planner::plan::{Decision, Outcome, Plan, Trigger};
use planner::policy::Policy;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::catalog::TableRef;
use crate::decide::{Decided, Decider};
use crate::env::now_ms;
use crate::error::{Error, Result};
use crate::latch::Latches;
use crate::read::clones::Clones;
use crate::read::{Depth, Sizes, table_facts};
use crate::registry::{FOLD, Member, NewJob, Registry, Role, indexes};
use crate::report::{JobEnd, JobReport, Snapshot, TableReport, fold_holds};
use crate::run::Progress;
use crate::table::Table;

use self::jobs::{BUDGET_UNIT, PASSES_MAX};
pub use self::parts::SPLIT_BYTES;

/// Rounds of one table before a run says that it does not settle.
const ROUNDS_MAX: u32 = 10_000;
/// The longest wait for readers before SSTables are retired that a run sits out.
const RETIRE_WAIT_MAX_MS: u64 = 60_000;
/// Races one job may lose before it counts as failed.
const RACES_MAX: u32 = 10;
/// Races a compaction may lose. Who deletes from the fragments it rewrites goes first, each time; that
/// is no failure, and a rewrite that is thrown away costs more than fragments that stay small a while.
const REWRITES_LOST_MAX: u32 = 3;
/// A job that does nothing for so long is stopped.
pub const STALL: Duration = Duration::from_secs(600);
const COMPACT: &str = "compact";

/// Everything a process shares between its tables.
pub struct Tender {
    /// The knobs.
    pub policy: Policy,
    /// What decides by them.
    pub decider: Arc<Decider>,
    /// Who folds what.
    pub latches: Latches,
    /// The jobs, those that are open and what became of earlier ones.
    pub registry: Registry,
    /// What this process is called there.
    pub name: String,
    /// A job that does nothing for so long is stopped; zero: never.
    pub stall: Duration,
    /// A job that works on so many bytes is cut into parts.
    pub split_bytes: u64,
    /// Where the registry is spoken to, where that is not where jobs run.
    pub control: Option<Handle>,
    /// Tend this shard only.
    pub only_shard: Option<String>,
    session: Arc<Session>,
    sizes: Sizes,
    clones: Clones,
    passes: Semaphore,
    budget: Semaphore,
    /// Passes share slots and budget; else each has the budget to itself (R2.7).
    shared: bool,
    /// Tables worked on at once; one that only waits gives its place to others.
    places: Semaphore,
    stop: CancellationToken,
}

/// One evaluation: what the table is like and what should be done.
pub struct Evaluation {
    /// The table as of the version read.
    pub table: Table,
    /// What was read.
    pub facts: Arc<TableFacts>,
    /// What follows.
    pub plan: Plan,
    /// Who says so.
    pub decided: Decided,
}

impl Tender {
    /// A tender with `policy`; after `stop` is cancelled it begins no new job.
    pub fn new(policy: Policy, session: Arc<Session>, stop: CancellationToken) -> Self {
        let budget = policy.pass_bytes.div_ceil(BUDGET_UNIT).clamp(1, u64::from(u32::MAX)) as usize;
        Self {
            policy,
            decider: Arc::default(),
            latches: Latches::default(),
            registry: Registry::default(),
            name: Member::here(Role::Worker, "").name,
            stall: STALL,
            split_bytes: SPLIT_BYTES,
            control: None,
            only_shard: None,
            session,
            sizes: Sizes::default(),
            clones: Clones::default(),
            passes: Semaphore::new(PASSES_MAX),
            budget: Semaphore::new(budget),
            shared: true,
            places: Semaphore::new(Semaphore::MAX_PERMITS),
            stop,
        }
    }

    /// The same tender, working on at most `tables` at once.
    #[must_use]
    pub fn at_once(self, tables: usize) -> Self {
        Self { places: Semaphore::new(tables), ..self }
    }

    /// The same tender, whose passes were admitted by a worker: each has the byte budget to itself (R2.7).
    #[must_use]
    pub fn offloaded(self) -> Self {
        Self { shared: false, ..self }
    }

    /// A job as it is handed on: a pass that this process runs itself is for nobody else (R2.6).
    pub(crate) fn assigned(&self, job: NewJob) -> NewJob {
        let own = self.shared && job.kind == FOLD;
        NewJob { only_worker: own.then(|| self.name.clone()), ..job }
    }

    /// What tables are opened through.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Opens the table fresh, reads its facts and plans (R3.3).
    ///
    /// # Errors
    /// Whatever keeps the table from being read.
    pub async fn evaluate(&self, table: &TableRef, depth: Depth, trigger: Trigger) -> Result<Evaluation> {
        crate::fault::at(&table.uri, "evaluate.before").await;
        let read = async {
            let table = Table::open(&table.name, &table.uri, &self.session).await?;
            let facts = table_facts(&table, depth, &self.sizes).await?;
            Ok((table, facts))
        };
        let ((table, mut facts), remembered) = tokio::try_join!(read, self.registry.remembered(&table.uri))?;
        self.clones.note(&table);
        facts.clones = self.clones.of(&table.uri);
        for shard in &mut facts.shards {
            shard.pass = self.latches.holder(&table, &shard.shard);
        }
        planner::check::facts(&facts).map_err(|violations| {
            let why: Vec<String> = violations.iter().map(ToString::to_string).collect();
            Error::Invalid(format!("`{}` is not as a table can be: {}", facts.table, why.join("; ")))
        })?;
        let now = now_ms();
        self.registry.add(remembered, &table.uri, &mut facts, now).await?;
        let (mut plan, decided) = self.decider.decide(facts, &self.policy, now, trigger).await;
        if let Some(only) = &self.only_shard {
            plan.verdicts.retain(|verdict| verdict.shard.as_ref().is_none_or(|shard| shard == only));
        }
        Ok(Evaluation { table, facts: decided.asked.facts.clone(), plan, decided })
    }

    /// Notes an evaluation that is acted on.
    pub(crate) fn note(&self, evaluation: &Evaluation) {
        self.decider.note(&evaluation.table.uri, &evaluation.plan, &evaluation.decided);
    }

    /// Tends one table until nothing is due. Errors end up in the report: one table's trouble is not
    /// another's.
    pub async fn tend(
        &self,
        table: &TableRef,
        trigger: Trigger,
        depth: Depth,
        progress: &Arc<Progress>,
    ) -> TableReport {
        let started = Instant::now();
        let mut report = TableReport { table: table.name.clone(), ..TableReport::default() };
        if let Err(error) = self.rounds(table, trigger, depth, progress, &mut report).await {
            report.error = Some(error.to_string());
        }
        report.millis = millis(started);
        report
    }

    async fn rounds(
        &self,
        table: &TableRef,
        trigger: Trigger,
        depth: Depth,
        progress: &Arc<Progress>,
        report: &mut TableReport,
    ) -> Result<()> {
        let mut tried = Tried::default();
        // Folders are walked last: most of what there is to collect comes from the rounds before.
        let mut walk = false;
        for round in 0..ROUNDS_MAX {
            let place = jobs::acquire(&self.places, 1).await?;
            let now = if walk { Depth::Garbage } else { Depth::Fold };
            // Force what was asked for, not what comes in meanwhile: a live writer would never let go.
            let trigger = if round == 0 { trigger } else { follow_up(trigger) };
            let evaluation = self.evaluate(table, now, trigger).await?;
            self.note(&evaluation);
            let snapshot = Snapshot::from(&*evaluation.facts);
            report.before.get_or_insert_with(|| snapshot.clone());
            report.after = Some(snapshot);
            report.held = fold_holds(&evaluation.plan);
            report.complaints = evaluation.plan.complaints.iter().map(ToString::to_string).collect();
            let due: Vec<JobSpec> =
                evaluation.plan.jobs().filter(|job| tried.may(job, &evaluation.facts)).cloned().collect();
            if due.is_empty() {
                // The delay before SSTables leave the list is part of the work, not a reason to stop.
                if let Some(wait) = until_retired(&evaluation.plan) {
                    drop(place);
                    progress.start("wait", 0);
                    tokio::select! {
                        () = tokio::time::sleep(wait) => continue,
                        () = self.stop.cancelled() => return Ok(()),
                    }
                }
                if walk || depth == Depth::Fold || evaluation.facts.shards.is_empty() {
                    return Ok(());
                }
                walk = true;
                continue;
            }
            for mut job in self.run(&evaluation.table, due, progress).boxed().await {
                if tried.ended(&mut job, &evaluation.facts) {
                    self.registry.record(&evaluation.table.uri, &job, now_ms()).await?;
                }
                self.log(&evaluation.table, &job);
                report.jobs.push(job);
            }
            if self.stop.is_cancelled() {
                return Ok(());
            }
        }
        Err(Error::Fatal(format!("`{}` did not come to rest in {ROUNDS_MAX} rounds", table.name)))
    }

    /// Runs one job that a person asked for.
    pub(crate) async fn now(&self, table: &Table, job: JobSpec) -> Vec<JobReport> {
        self.run(table, vec![job], &Arc::default()).await
    }

    /// Writes a job's end into the log.
    pub(crate) fn log(&self, table: &Table, job: &JobReport) {
        let (on, millis) = (job.on.join(" "), job.millis);
        tracing::info!(table = table.name, job = job.job, on, millis, "{}", job.end);
    }

    /// Looks for shallow clones of a table among those beside it.
    ///
    /// # Errors
    /// Whatever keeps one of them from being read.
    pub(crate) async fn look_beside(&self, table: &TableRef) -> Result<()> {
        self.clones.beside(&self.open(table).await?).await.map(drop)
    }

    /// Opens the newest version of a table.
    pub(crate) async fn open(&self, table: &TableRef) -> Result<Table> {
        Table::open(&table.name, &table.uri, &self.session).await
    }
}

/// How long until folded SSTables may leave the list, where only time keeps them on it.
fn until_retired(plan: &Plan) -> Option<Duration> {
    let due_at = plan.verdicts.iter().filter(|v| v.decision == Decision::Retire).filter_map(|v| match v.outcome {
        Outcome::NotDue { due_at_ms, .. } => due_at_ms,
        _ => None,
    });
    let wait = due_at.min()?.saturating_sub(plan.at_ms);
    (wait <= RETIRE_WAIT_MAX_MS).then_some(Duration::from_millis(wait.max(1)))
}

/// After a forced pass the rest of its work is due by itself; new SSTables are not.
fn follow_up(trigger: Trigger) -> Trigger {
    match trigger {
        Trigger::Forced => Trigger::Relief,
        other => other,
    }
}

/// What one run has tried. Two jobs alike are the same work: one that changed nothing must not be
/// tried for ever, one that lost a race is worth another look.
#[derive(Default)]
struct Tried {
    races: HashMap<String, u32>,
    rewrites_lost: u32,
}

impl Tried {
    fn may(&self, job: &JobSpec, facts: &TableFacts) -> bool {
        if matches!(job, JobSpec::Compact { .. }) && self.rewrites_lost >= REWRITES_LOST_MAX {
            return false;
        }
        self.races.get(&fingerprint(&job.kind(), &on(job), facts)).is_none_or(|races| (1..RACES_MAX).contains(races))
    }

    /// Remembers a job's end. A race lost too often is a failure: `true`.
    fn ended(&mut self, job: &mut JobReport, facts: &TableFacts) -> bool {
        for on in std::iter::once(job.on.clone()).chain(job.on.iter().map(|on| vec![on.clone()])) {
            let races = self.races.entry(fingerprint(&job.job, &on, facts)).or_insert(0);
            let JobEnd::Superseded { why } = &job.end else { continue };
            *races += 1;
            if job.job == COMPACT {
                self.rewrites_lost += 1;
            } else if *races == RACES_MAX {
                let why = format!("lost {RACES_MAX} races in a row: {why}");
                job.end = JobEnd::Failed { kind: "conflict", why };
                return true;
            }
        }
        false
    }
}

/// A job by what it works on and the progress it starts from.
fn fingerprint(kind: &str, on: &[String], facts: &TableFacts) -> String {
    let shards = facts.shards.iter();
    let from: Vec<_> = match kind {
        "memwal_collect" => {
            shards.map(|s| (s.manifest_version, s.garbage.as_ref().map_or(0, |g| g.len() as u64))).collect()
        }
        COMPACT => {
            let fragments = facts.fragments.iter().flatten();
            vec![fragments.fold((0, 0), |(count, last), fragment| (count + 1, fragment.id.max(last)))]
        }
        "cleanup" => vec![(facts.version, 0)],
        "remap" => facts.remap.iter().map(|remap| (remap.rewrites, remap.oldest_at_ms.unwrap_or(0))).collect(),
        _ if kind.starts_with("reindex_") => {
            facts.indexes.iter().map(|i| (i.unindexed_rows.unwrap_or(0), u64::from(i.withdrawn))).collect()
        }
        // A rewrite of fragments takes the record of a catch-up away, and the same has to be done again.
        _ if kind.starts_with("memwal_catchup_") => {
            let rewritten = facts.fragments.iter().flatten().map(|f| f.id).max().unwrap_or(0);
            shards.map(|s| (s.compacted_generation, rewritten)).collect()
        }
        _ => shards.map(|s| (s.compacted_generation, s.sstables.len() as u64)).collect(),
    };
    format!("{kind} {on:?} {from:?}")
}

fn on(job: &JobSpec) -> Vec<String> {
    match job.shard() {
        Some(shard) => vec![shard.to_string()],
        None => indexes(job),
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
