//! Tends every table under a root for ever: one loop around the planner's agent.
//!
//! ```text
//! walk (R2.1): list the catalogue ── which tables ──────────────────────────┐
//!              probe each table   ── a version, an SSTable, a time is due ─┐ │
//! file events, POST …/evaluate    ── something was written ────────────────┤ │
//!                                                                    heard ▼ ▼ owned
//! registry ── a job ended, an agent came or went ────────────────────────► agent ── read ──► evaluate ─┐
//!    ▲                                                                       ▲                         │
//!    └───────────────────────── enqueue ◄─────────────────────────────────── └──────── plan, or why not ┘
//! ```
//!
//! There is one way to decide: an evaluation, admitted by [`planner::agent::Agent`], which reads
//! everything fresh (R3.3) and gives all verdicts, those of the shards among them. The walk decides
//! nothing: it reads each shard's newest manifest and the table's newest version, and where they are
//! not those of the last evaluation, or a verdict said that time alone makes something due by now,
//! the agent hears of the table. So a tick costs a quiet table two or three small requests, a hot
//! shard is folded within a tick, and the sweep (R3.1) stays the net below all of it.
//!
//! Jobs are the registry's: a worker, of this process or another, runs them, and their ends ask for the
//! next evaluation of the table. Agents on one root divide its tables; which are whose follows from who is
//! there (SPEC section 7).

mod api;
mod board;
mod door;
mod drain;
mod fleet;
mod flight;
mod force;
mod heard;
mod http;
mod keys;
mod metrics;
mod page;
mod probe;
mod server;
mod watch;
mod watched;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use lance::session::Session;
use tokio_util::sync::CancellationToken;

pub use self::door::{Door, tls};
pub use self::keys::{Keys, Scope, new_key};
use self::server::Server;
use crate::catalog::Root;
use crate::error::{Error, Result};
use crate::pod::Pod;
use crate::registry::Member;
use crate::report::JobReport;
use crate::tend::Tender;
use crate::worker::{Limits, Worker};

/// How long answers that are under way may take at the end.
const HTTP_DRAIN: Duration = Duration::from_secs(2);

/// What serves a root.
pub struct Service {
    /// Where the tables lie.
    pub root: Root,
    /// Through which they are opened.
    pub session: Arc<Session>,
    /// What evaluates them and runs their jobs; its policy sets the pace.
    pub tender: Arc<Tender>,
    /// This agent, among the others of the registry.
    pub member: Member,
    /// The worker of this process.
    pub limits: Limits,
    /// Its shard writers.
    pub pod: Arc<Pod>,
    /// Cancelled when the pod is drained: from then on no job begins. The tender's.
    pub drained: CancellationToken,
    /// Where HTTP and Flight SQL are answered; `None`: nowhere.
    pub listen: Option<Door>,
}

/// Runs a worker on its own, and answers HTTP about it, until `stop` and until its jobs have ended.
///
/// # Errors
/// An address that can't be listened at, a registry that can't be joined.
pub async fn work(
    member: Member,
    tender: Arc<Tender>,
    limits: Limits,
    listen: Option<Door>,
    stop: CancellationToken,
) -> Result<()> {
    let state = http::State::of_worker(tender.registry.clone())?;
    let answered = CancellationToken::new();
    let http = match listen {
        Some(door) => {
            let listener = door.bind().await?;
            let address = listener.local_addr();
            let address = address.map_err(|e| Error::Fatal(format!("no address to listen at: {e}")))?;
            tracing::info!(%address, "answering HTTP");
            Some(tokio::spawn(http::answer(door, listener, state.clone(), answered.clone())))
        }
        None => None,
    };
    let (metrics, pulse, stopping) = (state.metrics.clone(), state.pulse.clone(), stop.clone());
    let ended = Arc::new(move |report: &JobReport| metrics.job(report));
    let beat = Arc::new(move || pulse.tick(crate::env::now_ms()));
    let pulse = state.pulse;
    let told = tokio::spawn(async move {
        stopping.cancelled().await;
        pulse.stop();
    });
    let worked = Worker { member, tender, limits, ended, beat }.run(stop).await;
    told.abort();
    answered.cancel();
    if let Some(http) = http {
        let _ = tokio::time::timeout(HTTP_DRAIN, http).await;
    }
    worked
}

impl Service {
    /// Serves until `stop` is cancelled, then lets running jobs end.
    ///
    /// # Errors
    /// A root that can't be listed at the start, an address that can't be listened at. Later trouble
    /// is logged and tried again.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        self.run_at(stop, |_| ()).await
    }

    /// The same; `bound` is told the address that HTTP is answered at, once it is.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn run_at(self, stop: CancellationToken, bound: impl FnOnce(SocketAddr)) -> Result<()> {
        let listener = match &self.listen {
            Some(door) => Some((door.bind().await?, door.clone())),
            None => None,
        };
        let (agent, store) = (self.tender.policy.agent.clone(), probe::open(&self.session, self.root.uri()).await?.0);
        let first = tokio::select! {
            listed = self.root.tables(&self.session) => listed?,
            () = stop.cancelled() => return Ok(()),
        };
        if first.is_empty() {
            let root = self.root.uri();
            tracing::warn!(root, "no tables here yet: a table is a folder `<name>.lance`; one that comes is tended");
        }
        tracing::info!(
            root = self.root.uri(),
            tables = first.len(),
            tick_ms = self.tender.policy.tick_ms,
            sweep_ms = agent.sweep_ms,
            "serving"
        );
        let registry = self.tender.registry.clone();
        registry.join(&self.member).await?;
        let (member, tender, limits) = (Member::of(&self.tender.name), self.tender.clone(), self.limits.clone());
        let (pod, drained) = (self.pod.clone(), self.drained.clone());
        let server = Server::new(self, store)?;
        let metrics = server.state().metrics;
        let ended = Arc::new(move |report: &JobReport| metrics.job(report));
        let (tending, stopped) = (tender.clone(), drained.clone());
        let decider = tender.decider.clone();
        let worker = Worker { member, tender, limits, ended, beat: Arc::new(|| ()) };
        let working = tokio::spawn(worker.run(drained.clone()));
        let answered = CancellationToken::new();
        let http = match listener {
            Some((listener, door)) => {
                let address = listener.local_addr();
                let address = address.map_err(|e| Error::Fatal(format!("no address to listen at: {e}")))?;
                tracing::info!(%address, "answering HTTP");
                bound(address);
                Some(tokio::spawn(http::answer(door, listener, server.state(), answered.clone())))
            }
            None => None,
        };
        let state = server.state();
        let heard = state.heard.clone();
        let reloading = tokio::spawn(decider.reload(drained.clone()));
        let tended = tokio::spawn(pod.tend(tending, move |table| _ = heard.of(table), drained.clone()).boxed());
        let draining = tokio::spawn(async move {
            stop.cancelled().await;
            state.pulse.stop();
            if let Some(api) = state.api {
                api.drain().await;
            }
            drained.cancel();
        });
        server.run(first, &stopped).await;
        let _ = tokio::join!(tended, draining, reloading);
        working.await.map_err(|died| Error::Fatal(format!("the worker died: {died}")))??;
        // Health and metrics are answered until the last job has ended, and no longer.
        answered.cancel();
        if let Some(http) = http {
            let _ = tokio::time::timeout(HTTP_DRAIN, http).await;
        }
        Ok(())
    }
}
