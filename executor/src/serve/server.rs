//! The loop: events into the agent, its effects out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lance_io::object_store::ObjectStore;
use planner::agent::{Agent, Effect, Event, Failing};
use planner::facts::TableFacts;
use planner::job::JobSpec;
use planner::plan::{Plan, Trigger};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::Service;
use super::apart::caught;
use super::heard::Heard;
use super::http::{Pulse, State};
use super::metrics::Metrics;
use super::probe::{Seen, wake_at_ms, walk};
use super::watch::Watch;
use super::watched::Watched;
use super::work::{Added, Batch, Work};
use crate::catalog::TableRef;
use crate::env::now_ms;
use crate::error::{Error, Result};
use crate::read::Depth;
use crate::report::{JobEnd, JobReport};
use crate::run::Progress;
use crate::tend::Tender;

/// How long a look of the walk may take. What takes longer is the evaluation's to judge, which makes a
/// table that hangs a failing one: the others wait for it no longer.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Server {
    service: Service,
    agent: Agent,
    tables: BTreeMap<String, Watched>,
    work: Work,
    tasks: JoinSet<Done>,
    /// Evaluations in progress.
    reads: BTreeMap<u64, AbortHandle>,
    listing: Listing,
    walking: bool,
    watch: Option<Watch>,
    state: State,
}

/// The catalogue is listed by one task at a time, and less often while that fails.
#[derive(Debug, Default)]
struct Listing {
    running: bool,
    failures: u64,
    not_before_ms: u64,
}

enum Done {
    Listed(Result<Vec<TableRef>>),
    Walked,
    Evaluated(Box<Evaluated>),
    Worked(Batch, Vec<JobReport>, Result<()>),
}

struct Evaluated {
    table: String,
    evaluation: u64,
    depth: Depth,
    began: Instant,
    result: Result<(TableFacts, Plan)>,
}

impl Server {
    pub(super) fn new(service: Service, store: Arc<ObjectStore>) -> Result<Self> {
        let policy = &service.tender.policy.agent;
        let heard = Heard::default();
        let local = !service.root.uri().contains("://");
        Ok(Self {
            agent: Agent::new(policy.clone()),
            tables: BTreeMap::new(),
            work: Work::new(service.tables_at_once),
            tasks: JoinSet::new(),
            reads: BTreeMap::new(),
            listing: Listing::default(),
            walking: false,
            watch: local.then(|| Watch::new(heard.clone())).flatten(),
            state: State {
                pulse: Arc::new(Pulse::new(policy.tick_ms)),
                metrics: Arc::new(Metrics::new(store)?),
                heard,
            },
            service,
        })
    }

    /// What HTTP shows of it.
    pub(super) fn state(&self) -> State {
        self.state.clone()
    }

    /// Runs until `stop`, then lets jobs end.
    pub(super) async fn run(mut self, first: Vec<TableRef>, stop: &CancellationToken) {
        self.listed(Ok(first));
        let policy = &self.service.tender.policy;
        let mut tick = every(policy.agent.tick_ms);
        let mut walk = every(if policy.tick_ms == 0 { policy.agent.sweep_ms } else { policy.tick_ms });
        walk.reset();
        while !stop.is_cancelled() {
            self.start_waiting();
            tokio::select! {
                () = stop.cancelled() => {}
                Some(done) = self.tasks.join_next() => self.joined(done),
                _ = tick.tick() => self.tick(),
                _ = walk.tick() => self.list(),
            }
        }
        self.state.pulse.stop();
        for read in std::mem::take(&mut self.reads).into_values() {
            read.abort();
        }
        // What only reads is of no use any more.
        while self.work.counts().1 > 0
            && let Some(done) = self.tasks.join_next().await
        {
            self.joined(done);
        }
        tracing::info!(tables = self.tables.len(), failing = self.agent.failing().count(), "stopped");
    }

    fn tick(&mut self) {
        let now = now_ms();
        let mut heard = self.state.heard.take();
        for (name, watched) in &mut self.tables {
            // The end of its jobs asks for the next evaluation anyway.
            if watched.wake_at_ms.is_some_and(|at| at <= now) && !self.work.is_open(name) {
                watched.wake_at_ms = None;
                heard.insert(name.clone());
            }
        }
        for table in heard {
            self.agent.handle(Event::Notified { table }, now);
        }
        let effects = self.agent.handle(Event::Tick, now);
        self.carry_out(effects, now);
        let coverage = self.agent.coverage(now);
        self.state.metrics.ticked(&coverage, self.agent.failing().count(), self.work.counts(), now);
        self.state.pulse.tick(now);
    }

    fn carry_out(&mut self, effects: Vec<Effect>, now: u64) {
        for effect in effects {
            match effect {
                Effect::Read { table, evaluation } => self.read(table, evaluation, now),
                Effect::Cancel { table, evaluation } => {
                    if let Some(read) = self.reads.remove(&evaluation) {
                        read.abort();
                        let owned = self.tables.contains_key(&table);
                        self.state.metrics.evaluated(if owned { "timeout" } else { "cancelled" }, None);
                    }
                }
                Effect::Enqueue { plan } => self.enqueue(&plan, now),
                Effect::Report { table, failing } => self.report(&table, &failing, now),
            }
        }
    }

    fn read(&mut self, name: String, evaluation: u64, now: u64) {
        let Some(watched) = self.tables.get(&name) else { return };
        let sweep = self.service.tender.policy.agent.sweep_ms;
        let walked = watched.walked_at_ms.is_some_and(|at| now.saturating_sub(at) < sweep);
        let depth = if walked { Depth::Fold } else { Depth::Garbage };
        let (tender, table) = (self.service.tender.clone(), watched.table.clone());
        let read = self.tasks.spawn(async move {
            let began = Instant::now();
            let read = caught("the evaluation", tender.evaluate(&table, depth, Trigger::Tick)).await;
            let result = read.map(|evaluation| (evaluation.facts, evaluation.plan));
            Done::Evaluated(Box::new(Evaluated { table: table.name, evaluation, depth, began, result }))
        });
        self.reads.insert(evaluation, read);
    }

    fn evaluated(&mut self, done: Evaluated, now: u64) {
        let Evaluated { table, evaluation, depth, began, result } = done;
        if self.reads.remove(&evaluation).is_none() {
            return;
        }
        let Some(watched) = self.tables.get_mut(&table) else { return };
        let metrics = &self.state.metrics;
        metrics.evaluated(if result.is_ok() { "done" } else { "failed" }, Some(began.elapsed()));
        let event = match result {
            Ok((facts, plan)) => {
                if watched.failures > 0 {
                    tracing::info!(table, "table works again");
                }
                metrics.table(&table, &facts, now);
                watched.failures = 0;
                watched.seen = Some(Seen::from(&facts));
                watched.wake_at_ms = wake_at_ms(&plan, self.service.tender.policy.tick_ms);
                watched.failed = facts.failed;
                if watched.complaints != plan.complaints {
                    plan.complaints.iter().for_each(|complaint| tracing::warn!(table, "{complaint}"));
                    watched.complaints.clone_from(&plan.complaints);
                }
                if depth == Depth::Garbage {
                    watched.walked_at_ms = Some(now);
                    self.work.swept(&table);
                }
                Event::FactsRead { table, evaluation, plan: Box::new(plan) }
            }
            Err(error) => Event::ReadFailed { table, evaluation, why: error.to_string() },
        };
        let effects = self.agent.handle(event, now);
        self.carry_out(effects, now);
    }

    fn report(&mut self, table: &str, failing: &Failing, now: u64) {
        let retry_secs = failing.retry_at_ms.saturating_sub(now) / 1000;
        tracing::warn!(table, why = failing.why, failures = failing.times, retry_secs, "table fails");
        self.state.metrics.failing(table, failing.times);
        if let Some(watched) = self.tables.get_mut(table) {
            watched.failures = failing.times;
        }
    }

    fn enqueue(&mut self, plan: &Plan, now: u64) {
        let Some(watched) = self.tables.get_mut(&plan.table) else { return };
        let policy = &self.service.tender.policy.agent;
        let mut jobs = Vec::new();
        for job in plan.jobs() {
            let until = watched.waits_until(job, policy);
            if now < until {
                watched.wake_at_ms = Some(watched.wake_at_ms.map_or(until, |at| at.min(until)));
            } else {
                jobs.push(job.clone());
            }
        }
        let seen = watched.seen.clone().unwrap_or_default();
        let added = self.work.add(Batch { table: plan.table.clone(), jobs, seen });
        if added == Added::Fruitless {
            tracing::warn!(table = plan.table, "the same jobs went well and changed nothing; they wait for a change");
        }
    }

    fn start_waiting(&mut self) {
        while let Some(batch) = self.work.next() {
            let Some(watched) = self.tables.get(&batch.table) else {
                self.work.ended(batch, false);
                continue;
            };
            let (tender, table) = (self.service.tender.clone(), watched.table.clone());
            self.tasks.spawn(async move {
                let (reports, written) = run(&tender, &table, &batch).await;
                Done::Worked(batch, reports, written)
            });
        }
    }

    fn worked(&mut self, batch: Batch, reports: &[JobReport], written: Result<()>, now: u64) {
        let (table, policy) = (batch.table.clone(), &self.service.tender.policy.agent);
        for report in reports {
            self.state.metrics.job(report);
            if let Some(watched) = self.tables.get_mut(&table) {
                watched.raced(report, policy, now);
            }
        }
        let well = written.is_ok() && !reports.is_empty() && reports.iter().all(|job| job.end.outcome() == "done");
        if let Some(watched) = self.tables.get_mut(&table).filter(|_| collects_on(&batch, reports)) {
            watched.walked_at_ms = None;
        }
        if let Err(error) = written {
            let wait = policy.backoff_ms;
            tracing::error!(table, %error, retry_secs = wait / 1000, "jobs could not begin or be written down");
            if let Some(watched) = self.tables.get_mut(&table) {
                watched.held_until_ms = now.saturating_add(wait);
            }
        }
        self.work.ended(batch, well);
        self.agent.handle(Event::JobEnded { table }, now);
    }

    fn list(&mut self) {
        if self.listing.running || now_ms() < self.listing.not_before_ms {
            return;
        }
        self.listing.running = true;
        let (root, session) = (self.service.root.clone(), self.service.session.clone());
        let patience = Duration::from_millis(self.service.tender.policy.agent.timeout_ms);
        self.tasks.spawn(async move {
            let listed = tokio::time::timeout(patience, caught("the listing", root.tables(&session))).await;
            Done::Listed(
                listed.unwrap_or_else(|_| Err(Error::Retry(format!("no answer within {} s", patience.as_secs_f64())))),
            )
        });
    }

    fn listed(&mut self, listed: Result<Vec<TableRef>>) {
        let now = now_ms();
        match listed {
            Ok(tables) => {
                self.listing = Listing::default();
                self.state.pulse.list();
                self.own(tables, now);
                self.look();
            }
            Err(error) => {
                let failures = self.listing.failures.saturating_add(1);
                let wait = self.service.tender.policy.agent.backoff_after(failures);
                self.listing = Listing { running: false, failures, not_before_ms: now.saturating_add(wait) };
                let (root, retry_secs) = (self.service.root.uri(), wait / 1000);
                tracing::error!(root, %error, failures, retry_secs, "the root can't be listed");
            }
        }
        self.state.metrics.listed(self.listing.failures, now);
    }

    fn own(&mut self, tables: Vec<TableRef>, now: u64) {
        let names: BTreeSet<String> = tables.iter().map(|table| table.name.clone()).collect();
        if let Some(watch) = &mut self.watch {
            watch.own(&tables);
        }
        self.tables.retain(|name, _| names.contains(name));
        for table in tables {
            self.tables.entry(table.name.clone()).or_insert_with(|| Watched::new(table));
        }
        self.state.heard.owned(&names);
        self.state.metrics.owned(&names);
        self.work.retain(&names);
        let effects = self.agent.handle(Event::OwnershipChanged { tables: names }, now);
        self.carry_out(effects, now);
    }

    /// Begins the walk (R2.1). Tables that were never evaluated, or fail, are the sweep's.
    fn look(&mut self) {
        let policy = &self.service.tender.policy;
        if policy.tick_ms == 0 || self.walking {
            return;
        }
        self.walking = true;
        let seen = self.tables.values().filter(|watched| watched.failures == 0);
        let tables = seen.filter_map(|watched| Some((watched.table.clone(), watched.seen.clone()?))).collect();
        let (session, heard) = (self.service.session.clone(), self.state.heard.clone());
        let at_once = usize::try_from(policy.agent.budget).unwrap_or(usize::MAX);
        let patience = LOOK_PATIENCE.min(Duration::from_millis(policy.agent.timeout_ms));
        self.tasks.spawn(async move {
            let walking = async {
                walk(session, tables, at_once, patience, heard).await;
                Ok(())
            };
            let walked = caught("the walk", walking).await;
            if let Err(error) = walked {
                tracing::error!(%error, "the next walk looks again");
            }
            Done::Walked
        });
    }

    fn joined(&mut self, done: std::result::Result<Done, JoinError>) {
        let now = now_ms();
        match done {
            Ok(Done::Listed(listed)) => self.listed(listed),
            Ok(Done::Walked) => {
                self.walking = false;
                self.state.metrics.walked();
            }
            Ok(Done::Evaluated(done)) => self.evaluated(*done, now),
            Ok(Done::Worked(batch, reports, written)) => self.worked(batch, &reports, written, now),
            // Panics are caught within: what comes here was cancelled by the agent.
            Err(gone) => tracing::debug!(%gone, "a read was cancelled"),
        }
    }
}

/// Runs a batch on the newest version and writes its ends down. A panic is a failure of each of its jobs.
async fn run(tender: &Tender, table: &TableRef, batch: &Batch) -> (Vec<JobReport>, Result<()>) {
    let opened = match caught("opening", tender.open(table)).await {
        Ok(opened) => opened,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let began = Instant::now();
    let jobs = async { Ok(tender.run(&opened, batch.jobs.clone(), &Arc::new(Progress::default())).await) };
    let reports = caught("the pass", jobs).await.unwrap_or_else(|died| {
        let (millis, why) = (u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX), died.to_string());
        let end = || JobEnd::Failed { kind: "fatal", why: why.clone() };
        let kinds: BTreeSet<String> = batch.jobs.iter().map(JobSpec::kind).collect();
        kinds.into_iter().map(|job| JobReport::new(job, Vec::new(), millis, end())).collect()
    });
    let mut written = Ok(());
    for report in &reports {
        if let Err(error) = tender.record(&opened, report).await {
            written = Err(error);
        }
    }
    (reports, written)
}

/// Whether there may be more to collect: one collection takes a bounded number of files, and beside a
/// fold it waits. Then the next evaluation walks the folders again, not the next sweep.
fn collects_on(batch: &Batch, reports: &[JobReport]) -> bool {
    let planned = batch.jobs.iter().any(|job| matches!(job, JobSpec::Collect { .. }));
    let mut ran = reports.iter().filter(|report| report.job == "memwal_collect").peekable();
    planned && (ran.peek().is_none() || ran.any(|report| matches!(report.end, JobEnd::Collected { files: 1.., .. })))
}

fn every(period_ms: u64) -> Interval {
    let mut interval = tokio::time::interval(Duration::from_millis(period_ms.max(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collecting_goes_on_while_it_deletes_and_after_a_fold_that_it_waited_for() {
        let batch = |jobs| Batch { table: "a".into(), jobs, seen: Seen::default() };
        let collect = || JobSpec::Collect { shard: "s".into(), files: Vec::new(), bytes: 0 };
        let report = |job: &str, end| JobReport::new(job, Vec::new(), 0, end);
        let collected = |files| report("memwal_collect", JobEnd::Collected { files, bytes: 0 });
        let failed = report("memwal_collect", JobEnd::Failed { kind: "retry", why: String::new() });
        let folded = report("memwal_compaction", JobEnd::CaughtUp);
        let on = |reports: &[JobReport]| collects_on(&batch(vec![collect()]), reports);
        assert!(on(std::slice::from_ref(&folded)) && on(&[folded, collected(3)]));
        assert!(!on(&[collected(0)]) && !on(&[failed]));
        assert!(!collects_on(&batch(Vec::new()), &[]));
    }
}
