//! The loop: events into the agent, its effects out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lance_io::object_store::ObjectStore;
use planner::agent::{Agent, Effect, Event, Failing};
use planner::plan::{Plan, Trigger};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::Service;
use super::api::Api;
use super::api::fleet::STREAMS;
use super::board::Board;
use super::fleet::{Fleet, Heard};
use super::heard::Heard as HeardOf;
use super::http::{Pulse, State};
use super::metrics::Metrics;
use super::probe::{Seen, wake_at_ms, walk};
use super::watch::Watch;
use super::watched::Watched;
use crate::apart::caught;
use crate::catalog::TableRef;
use crate::env::now_ms;
use crate::error::{Error, Result};
use crate::read::Depth;
use crate::registry::{HEARTBEAT, Job, Member, NewJob, POLL, Queued, Ring, Role};
use crate::tend::Evaluation;

/// How long a look of the walk may take. What takes longer is the evaluation's to judge, which makes a
/// table that hangs a failing one: the others wait for it no longer.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Server {
    service: Service,
    agent: Agent,
    tables: BTreeMap<String, Watched>,
    /// All tables under the root, whoever owns them.
    all: Vec<TableRef>,
    fleet: Fleet,
    tasks: JoinSet<Done>,
    /// Evaluations in progress.
    reads: BTreeMap<u64, AbortHandle>,
    listing: Listing,
    walking: bool,
    watch: Option<Watch>,
    board: Board,
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
    Enqueued(String, Result<Vec<Queued>>),
    Heard(Box<Result<Heard>>),
    Members(Result<Vec<Member>>),
}

struct Evaluated {
    table: String,
    evaluation: u64,
    depth: Depth,
    began: Instant,
    result: Result<Evaluation>,
}

impl Server {
    pub(super) fn new(service: Service, store: Arc<ObjectStore>) -> Result<Self> {
        let policy = &service.tender.policy.agent;
        let heard = HeardOf::default();
        let board = Board::default();
        let local = !service.root.uri().contains("://");
        Ok(Self {
            agent: Agent::new(policy.clone()),
            tables: BTreeMap::new(),
            all: Vec::new(),
            fleet: Fleet::default(),
            tasks: JoinSet::new(),
            reads: BTreeMap::new(),
            listing: Listing::default(),
            walking: false,
            watch: local.then(|| Watch::new(heard.clone())).flatten(),
            state: State {
                pulse: Arc::new(Pulse::new(policy.tick_ms)),
                metrics: Arc::new(Metrics::new(Some(store))?),
                registry: service.tender.registry.clone(),
                api: Some(Api {
                    root: service.root.clone(),
                    tender: service.tender.clone(),
                    heard: heard.clone(),
                    pod: service.pod.clone(),
                    board: board.clone(),
                    member: Arc::new(service.member.clone()),
                    streams: Arc::new(Semaphore::new(STREAMS)),
                    works: service.limits.own > 0 || service.limits.jobs > 0,
                }),
                heard,
            },
            board,
            service,
        })
    }

    /// What HTTP shows of it.
    pub(super) fn state(&self) -> State {
        self.state.clone()
    }

    /// Evaluates until `stop`.
    pub(super) async fn run(mut self, first: Vec<TableRef>, stop: &CancellationToken) {
        let registry = self.service.tender.registry.clone();
        let mut bell = registry.listen();
        self.fleet.agents = registry.members(Role::Agent).await.unwrap_or_default();
        self.listed(Ok(first));
        let policy = &self.service.tender.policy;
        let mut tick = every(policy.agent.tick_ms);
        let mut walk = every(if policy.tick_ms == 0 { policy.agent.sweep_ms } else { policy.tick_ms });
        let (mut beat, mut poll) = (every(millis(HEARTBEAT)), every(millis(POLL)));
        walk.reset();
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                Some(done) = self.tasks.join_next() => self.joined(done),
                ring = bell.recv() => match ring {
                    Ok(Ring::Ended(_)) => self.hear(),
                    Ok(Ring::Members) => self.meet(false),
                    Ok(Ring::Waiting | Ring::Asked) => {}
                    Ok(Ring::Anything) | Err(_) => {
                        self.hear();
                        self.meet(false);
                    }
                },
                _ = beat.tick() => self.meet(true),
                _ = poll.tick() => self.hear(),
                _ = tick.tick() => self.tick(),
                _ = walk.tick() => self.list(),
            }
        }
        self.state.pulse.stop();
        self.tasks.shutdown().await;
        if let Err(error) = registry.leave(&self.service.member).await {
            tracing::debug!(%error, "the registry was not told that this agent is gone; it will find out");
        }
        tracing::info!(tables = self.tables.len(), failing = self.agent.failing().count(), "no more evaluations");
    }

    fn tick(&mut self) {
        let now = now_ms();
        if self.fleet.asks_again() {
            self.hear();
        }
        let mut heard = self.state.heard.take();
        for (name, watched) in &mut self.tables {
            if watched.wake_at_ms.is_some_and(|at| at <= now) {
                watched.wake_at_ms = None;
                heard.insert(name.clone());
            }
        }
        for table in heard {
            self.agent.handle(Event::Notified { table }, now);
        }
        // Without the registry nothing can be decided: no table is to blame for that.
        if !self.fleet.away {
            let effects = self.agent.handle(Event::Tick, now);
            self.carry_out(effects, now);
        }
        let coverage = self.agent.coverage(now);
        self.board.ticked(coverage, self.fleet.away);
        self.state.metrics.ticked(&coverage, self.agent.failing().count(), now);
        self.state.metrics.jobs(self.fleet.open, self.fleet.peers(&self.service.member));
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
            if let Ok(evaluation) = &read {
                tender.note(evaluation);
            }
            Done::Evaluated(Box::new(Evaluated { table: table.name, evaluation, depth, began, result: read }))
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
            Ok(Evaluation { facts, plan, decided, .. }) => {
                if watched.failures > 0 {
                    tracing::info!(table, "table works again");
                }
                metrics.table(&table, &facts, now);
                self.board.evaluated(&facts, &plan, &decided.policy);
                self.fleet.blamed = false;
                watched.failures = 0;
                watched.seen = Some(Seen::from(&*facts));
                watched.wake_at_ms = wake_at_ms(&plan, self.service.tender.policy.tick_ms);
                watched.failed.clone_from(&facts.failed);
                watched.policy = decided.policy;
                if watched.complaints != plan.complaints {
                    plan.complaints.iter().for_each(|complaint| tracing::warn!(table, "{complaint}"));
                    watched.complaints.clone_from(&plan.complaints);
                }
                if depth == Depth::Garbage {
                    watched.walked_at_ms = Some(now);
                }
                Event::FactsRead { table, evaluation, plan: Box::new(plan) }
            }
            Err(Error::Away(why)) => {
                if !std::mem::replace(&mut self.fleet.blamed, true) {
                    tracing::error!(table, why, "not evaluated until the registry takes it");
                }
                Event::ReadAbandoned { table, evaluation }
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
        self.board.failed(table, failing);
        if let Some(watched) = self.tables.get_mut(table) {
            watched.failures = failing.times;
        }
    }

    /// Hands the plan's jobs to the registry, which refuses those that are open.
    fn enqueue(&mut self, plan: &Plan, now: u64) {
        let Some(watched) = self.tables.get_mut(&plan.table) else { return };
        let policy = &self.service.tender.policy;
        let seen = format!("{:?}", watched.seen);
        let mut jobs = Vec::new();
        for job in plan.jobs() {
            let until = watched.waits_until(job, &policy.agent);
            if now < until {
                watched.wake_at_ms = Some(watched.wake_at_ms.map_or(until, |at| at.min(until)));
                continue;
            }
            match NewJob::planned(&watched.table, job, policy) {
                Ok(new) => jobs.push(self.service.tender.assigned(new.seen(&seen).by(&watched.policy))),
                Err(error) => tracing::error!(table = plan.table, %error, "a job can't be handed on"),
            }
        }
        if jobs.is_empty() {
            return;
        }
        let (registry, table) = (self.service.tender.registry.clone(), plan.table.clone());
        let sweep_ms = policy.agent.sweep_ms;
        self.tasks.spawn(async move { Done::Enqueued(table, registry.enqueue(jobs, sweep_ms).await) });
    }

    fn enqueued(&mut self, table: &str, queued: Result<Vec<Queued>>, now: u64) {
        match queued {
            Ok(queued) if queued.contains(&Queued::Fruitless) => {
                tracing::warn!(table, "the same jobs went well and changed nothing; they wait for a change");
            }
            Ok(_) => {}
            Err(error) => {
                let wait = self.service.tender.policy.agent.backoff_ms.min(millis(HEARTBEAT));
                tracing::error!(table, %error, retry_secs = wait / 1000, "jobs could not be handed to the registry");
                if let Some(watched) = self.tables.get_mut(table) {
                    watched.held_until_ms = now.saturating_add(wait);
                    watched.wake_at_ms = Some(watched.held_until_ms);
                }
            }
        }
    }

    /// Asks the registry which jobs have ended.
    fn hear(&mut self) {
        let Some(since) = self.fleet.hears() else { return };
        let registry = self.service.tender.registry.clone();
        self.tasks.spawn(async move {
            let heard = async {
                let (ended, since_ms) = registry.ended_since(since).await?;
                Ok(Heard { ended, since_ms, open: registry.open_jobs().await? })
            };
            Done::Heard(Box::new(heard.await))
        });
    }

    fn heard(&mut self, heard: Result<Heard>, now: u64) {
        let ended = match self.fleet.heard(heard) {
            Ok(ended) => ended,
            Err(error) => return tracing::debug!(%error, "can't look for jobs that ended"),
        };
        let policy = self.service.tender.policy.agent.clone();
        for job in ended {
            let Some(watched) = self.tables.values_mut().find(|watched| watched.table.uri == job.uri) else { continue };
            watched.raced(&job.kind, job.outcome.as_deref().unwrap_or_default(), &policy, now);
            if collects_on(&job) {
                watched.walked_at_ms = None;
            }
            let table = watched.table.name.clone();
            self.agent.handle(Event::JobEnded { table }, now);
        }
    }

    /// Says that this agent is there, and asks who else is.
    fn meet(&mut self, stay: bool) {
        if std::mem::replace(&mut self.fleet.meeting, true) {
            return;
        }
        let (registry, member) = (self.service.tender.registry.clone(), self.service.member.clone());
        self.tasks.spawn(async move {
            let met = async {
                if stay {
                    registry.stay(&member).await?;
                }
                registry.members(Role::Agent).await
            };
            Done::Members(met.await)
        });
    }

    fn met(&mut self, members: Result<Vec<Member>>, now: u64) {
        self.fleet.meeting = false;
        if self.fleet.away != members.is_err() {
            self.fleet.away = members.is_err();
            match &members {
                Ok(_) => tracing::info!("the registry answers again"),
                Err(error) => tracing::error!(%error, "nothing is evaluated until the registry answers"),
            }
        }
        match members {
            Ok(members) if members == self.fleet.agents => {}
            Ok(members) => {
                self.fleet.agents = members;
                self.own(now);
            }
            // Whoever can't ask keeps what it has: a job that two agents plan is refused once.
            Err(error) => tracing::debug!(%error, "can't ask which agents are there"),
        }
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
                self.all = tables;
                self.own(now);
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

    /// Takes the tables that are this agent's, and lets go of others.
    fn own(&mut self, now: u64) {
        let tables = self.fleet.owned(&self.all, &self.service.member);
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
        self.board.listed(self.fleet.owners(&self.all, &self.service.member));
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
            Ok(Done::Enqueued(table, queued)) => self.enqueued(&table, queued, now),
            Ok(Done::Heard(heard)) => self.heard(*heard, now),
            Ok(Done::Members(members)) => self.met(members, now),
            // Panics are caught within: what comes here was cancelled by the agent.
            Err(gone) => tracing::debug!(%gone, "a read was cancelled"),
        }
    }
}

/// Whether there may be more to collect: one collection takes a bounded number of files. Then the next
/// evaluation walks the folders again, not the next sweep.
fn collects_on(job: &Job) -> bool {
    let files = job.result.as_ref().filter(|_| job.kind == "memwal_collect").map(|report| &report["files"]);
    files.is_some_and(|files| files.as_u64().is_some_and(|files| files > 0))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn every(period_ms: u64) -> Interval {
    let mut interval = tokio::time::interval(Duration::from_millis(period_ms.max(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
