//! Tends every table under a root for ever (R2.1, R3.1): a tick lists the catalogue and queues
//! tables, a bounded number is tended at once, the rest waits its turn.

mod rota;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lance::session::Session;
use planner::plan::Trigger;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use self::rota::{End, Rota, backoff};
use crate::catalog::{Root, TableRef};
use crate::error::{Error, Result};
use crate::read::Depth;
use crate::report::{JobEnd, TableReport};
use crate::run::Progress;
use crate::tend::{Tender, Until};

/// How often, and how much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Period of the walk over all tables (R2.1); zero disables it.
    pub tick: Duration,
    /// Longest time between two walks of a table's folders (R3.1).
    pub sweep: Duration,
    /// Tables tended at once.
    pub tables_at_once: usize,
}

/// Tends one table in a task of its own: a panic is a failure of that table, not of the process.
pub async fn tend_apart(
    tender: &Arc<Tender>,
    table: TableRef,
    trigger: Trigger,
    depth: Depth,
    until: Until,
    progress: Arc<Progress>,
) -> TableReport {
    let (tender, name) = (tender.clone(), table.name.clone());
    let started = Instant::now();
    let task = tokio::spawn(async move { tender.tend(&table, trigger, depth, until, &progress).await });
    task.await.unwrap_or_else(|died| TableReport {
        table: name,
        before: None,
        after: None,
        jobs: Vec::new(),
        held: Vec::new(),
        complaints: Vec::new(),
        error: Some(format!("the pass died: {died}; the next one finishes its work")),
        millis: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// Serves until `stop` is cancelled, then lets running passes end.
///
/// # Errors
/// A root that can't be listed at the start. Later that is logged and tried again.
pub async fn serve(
    root: Root,
    session: Arc<Session>,
    tender: Arc<Tender>,
    pace: Pace,
    stop: CancellationToken,
) -> Result<()> {
    let first = tokio::select! {
        listed = root.tables(&session) => listed?,
        () = stop.cancelled() => return Ok(()),
    };
    tracing::info!(
        root = root.uri(),
        tables = first.len(),
        tick_secs = pace.tick.as_secs_f64(),
        sweep_secs = pace.sweep.as_secs_f64(),
        "serving"
    );
    let mut server = Server {
        rota: Rota::new(pace.sweep),
        root,
        session,
        tender,
        pace,
        work: JoinSet::new(),
        listing: Listing::default(),
        running: 0,
    };
    server.ended(Done::Listed(Ok(first)));
    server.run(&stop).await;
    let (tables, failing) = server.rota.counts();
    tracing::info!(tables, failing, "stopped");
    Ok(())
}

/// The catalogue is listed by one task at a time, and less often while that fails.
#[derive(Debug, Default)]
struct Listing {
    running: bool,
    failures: u32,
    not_before: Option<Instant>,
}

enum Done {
    Listed(Result<Vec<TableRef>>),
    Tended(TableRef, Box<TableReport>),
}

struct Server {
    rota: Rota,
    root: Root,
    session: Arc<Session>,
    tender: Arc<Tender>,
    pace: Pace,
    work: JoinSet<Done>,
    listing: Listing,
    running: usize,
}

impl Server {
    async fn run(&mut self, stop: &CancellationToken) {
        let period = if self.pace.tick.is_zero() { self.pace.sweep } else { self.pace.tick };
        let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !stop.is_cancelled() {
            self.start_waiting();
            tokio::select! {
                () = stop.cancelled() => {}
                Some(done) = self.work.join_next() => self.joined(done),
                _ = tick.tick() => self.list(),
            }
        }
        // A listing that still runs is of no use any more.
        while self.running > 0
            && let Some(done) = self.work.join_next().await
        {
            self.joined(done);
        }
    }

    fn start_waiting(&mut self) {
        while self.running < self.pace.tables_at_once
            && let Some((table, depth)) = self.rota.next(Instant::now())
        {
            self.running += 1;
            let tender = self.tender.clone();
            self.work.spawn(async move {
                let report =
                    tend_apart(&tender, table.clone(), Trigger::Tick, depth, Until::Once, Arc::default()).await;
                Done::Tended(table, Box::new(report))
            });
        }
    }

    fn list(&mut self) {
        if self.listing.running || self.listing.not_before.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.listing.running = true;
        let (root, session) = (self.root.clone(), self.session.clone());
        self.work.spawn(async move {
            let listed = tokio::spawn(async move { root.tables(&session).await }).await;
            Done::Listed(listed.unwrap_or_else(|died| Err(Error::Fatal(format!("listing died: {died}")))))
        });
    }

    fn joined(&mut self, done: std::result::Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(done) => self.ended(done),
            // Both kinds of work run in a task of their own within: only a cancelled one comes here.
            Err(died) => tracing::error!(error = %died, "work was cancelled"),
        }
    }

    fn ended(&mut self, done: Done) {
        let now = Instant::now();
        match done {
            Done::Listed(Ok(tables)) => {
                self.listing = Listing::default();
                self.rota.listed(tables, self.pace.tick.is_zero(), now);
            }
            Done::Listed(Err(error)) => {
                let failures = self.listing.failures.saturating_add(1);
                let wait = backoff(failures, self.pace.sweep);
                self.listing = Listing { running: false, failures, not_before: Some(now + wait) };
                let (root, retry_secs) = (self.root.uri(), wait.as_secs());
                tracing::error!(root, %error, failures, retry_secs, "the root can't be listed");
            }
            Done::Tended(table, report) => {
                self.running -= 1;
                let failed_before = self.rota.failures(&table);
                let wait = self.rota.ended(&table, end(&report), now);
                let failures = self.rota.failures(&table);
                if failures > 0 {
                    let (why, retry_secs) = (why(&report), wait.as_secs());
                    tracing::warn!(table = table.name, why, failures, retry_secs, "table fails");
                } else if failed_before > 0 {
                    tracing::info!(table = table.name, "table works again");
                }
            }
        }
    }
}

fn end(report: &TableReport) -> End {
    match report {
        report if report.failed() => End::Failed,
        report if !report.jobs.is_empty() && report.before != report.after => End::Worked,
        _ => End::Quiet,
    }
}

/// The first thing that went wrong with a table.
fn why(report: &TableReport) -> &str {
    let job = report.jobs.iter().find_map(|job| match &job.end {
        JobEnd::Failed { why, .. } => Some(why.as_str()),
        _ => None,
    });
    report.error.as_deref().or(job).unwrap_or_default()
}
