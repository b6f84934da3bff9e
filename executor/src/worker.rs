//! A worker: takes jobs of the registry and runs them, a bounded number at once.
//!
//! ```text
//! room left? ── claim ──► attempt (a task on threads of its own, kept alive by heartbeats)
//!     ▲                      │
//!     └──── a job ended, a job waits, or every now and then ◄──────────┘
//! ```
//!
//! What a job needs is what it states: a worker takes no more than it has, but for one job that is larger
//! than all of it, which it runs alone. After the stop it takes nothing more and lets jobs end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::registry::{Claim, HEARTBEAT, Member, POLL, Registry, Ring, Want};
use crate::report::JobReport;
use crate::run::Progress;
use crate::tend::Tender;

/// How often finished jobs are looked for that are old enough for the archive.
const ARCHIVE_EVERY: Duration = Duration::from_secs(600);

/// What a worker may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Jobs at once; 0: none that anybody may have.
    pub jobs: usize,
    /// Folds at once.
    pub folds: usize,
    /// Memory of all of them, bytes.
    pub memory_bytes: u64,
    /// Folds that only this process may have, at once (R2.6, remote maintenance off).
    pub own: usize,
}

/// Takes jobs and runs them.
pub struct Worker {
    /// Who it is in the registry.
    pub member: Member,
    /// What runs the jobs; its name is the member's.
    pub tender: Arc<Tender>,
    /// What it may take.
    pub limits: Limits,
    /// Told of each end.
    pub ended: Arc<dyn Fn(&JobReport) + Send + Sync>,
    /// Told whenever the registry has answered.
    pub beat: Arc<dyn Fn() + Send + Sync>,
}

/// What runs.
#[derive(Debug, Default)]
struct Load {
    jobs: usize,
    folds: usize,
    bytes: u64,
}

/// Threads for the work. What runs on them when they go is dropped where it is, and nobody waits for it.
struct Threads(Option<tokio::runtime::Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

/// One claim's share of the load.
struct Share {
    own: bool,
    fold: bool,
    bytes: u64,
}

impl Worker {
    /// Works until `stop`, then lets running jobs end.
    ///
    /// # Errors
    /// The registry can't be joined at the start. Later trouble is logged and tried again.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let registry = self.tender.registry.clone();
        registry.join(&self.member).await?;
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("work").build();
        let threads = threads.map_err(|e| Error::Fatal(format!("can't start threads: {e}")))?;
        let threads = Threads(Some(threads));
        if let Some(threads) = &threads.0 {
            self.work(&registry, threads.handle(), &stop).await;
        }
        drop(threads);
        if let Err(error) = registry.leave(&self.member).await {
            tracing::debug!(%error, "the registry was not told that this worker is gone; it will find out");
        }
        Ok(())
    }

    async fn work(&self, registry: &Registry, threads: &tokio::runtime::Handle, stop: &CancellationToken) {
        let mut bell = registry.listen();
        let (mut beat, mut poll, mut archive) = (every(HEARTBEAT), every(POLL), every(ARCHIVE_EVERY));
        let (mut running, mut load) = (JoinSet::new(), Load::default());
        let (mut look, mut silent) = (true, false);
        loop {
            while look && !stop.is_cancelled() {
                match self.take(registry, &load).await {
                    Ok(Some((claim, share))) => {
                        silent = false;
                        load.add(&share);
                        let work = self.attempt(claim);
                        running.spawn_on(async move { (work.await, share) }, threads);
                    }
                    Ok(None) => {
                        silent = false;
                        look = false;
                    }
                    Err(error) => {
                        look = false;
                        if !std::mem::replace(&mut silent, true) {
                            tracing::error!(%error, "no jobs can be taken; asking again");
                        }
                    }
                }
            }
            if stop.is_cancelled() && running.is_empty() {
                return;
            }
            // In this order: a registry that is away keeps nobody from hearing of an end, or of the stop.
            tokio::select! {
                biased;
                Some(done) = running.join_next() => {
                    look = true;
                    match done {
                        Ok((reports, share)) => {
                            load.take(&share);
                            let reports: Vec<JobReport> = reports;
                            reports.iter().for_each(|report| (self.ended)(report));
                        }
                        // Panics are caught within.
                        Err(died) => tracing::error!(%died, "an attempt died"),
                    }
                }
                () = stop.cancelled(), if !stop.is_cancelled() => {
                    tracing::info!(running = load.jobs, "stopping: running jobs end first");
                }
                ring = bell.recv() => look |= matches!(
                    ring, Ok(Ring::Waiting | Ring::Ended(_) | Ring::Anything) | Err(RecvError::Lagged(_))
                ),
                _ = poll.tick() => {
                    look = true;
                    if let Err(error) = registry.reap().await {
                        tracing::debug!(%error, "can't look for jobs of dead workers");
                    }
                    if let Err(error) = registry.promote().await {
                        tracing::debug!(%error, "can't look for jobs that wait too long");
                    }
                }
                _ = beat.tick() => {
                    match registry.stay(&self.member).await {
                        Ok(()) => (self.beat)(),
                        Err(error) => tracing::debug!(%error, "the registry did not hear from this worker"),
                    }
                }
                _ = archive.tick() => tokio::select! {
                    () = self.archive(registry) => {}
                    () = stop.cancelled() => {}
                },
            }
        }
    }

    async fn take(&self, registry: &Registry, load: &Load) -> Result<Option<(Claim, Share)>> {
        let Limits { jobs, folds, memory_bytes, own } = self.limits;
        // Without remote maintenance folds have places of their own, and no others (R2.6).
        let (any, fold) = (load.jobs < jobs, load.folds < if own > 0 { own } else { folds });
        if !(any || fold && own > 0) {
            return Ok(None);
        }
        // One that is larger than all of the memory would wait for ever.
        let free_bytes = if load.bytes == 0 { u64::MAX } else { memory_bytes.saturating_sub(load.bytes) };
        let want = Want {
            worker: self.member.name.clone(),
            free_bytes,
            folds: fold,
            any,
            root: self.member.root.clone(),
            parent: None,
        };
        let claim = registry.claim(&want, self.tender.policy.pass_bytes).await?;
        Ok(claim.map(|claim| {
            let fold = claim.jobs[0].kind == "memwal_compaction";
            let share = Share { own: fold && own > 0, fold, bytes: claim.jobs[0].need_bytes };
            (claim, share)
        }))
    }

    fn attempt(&self, claim: Claim) -> impl Future<Output = Vec<JobReport>> + Send + 'static {
        let tender = self.tender.clone();
        async move {
            let table = claim.jobs[0].table.clone();
            let reports = tender.attempt(claim, None, &Arc::new(Progress::default())).await;
            for report in &reports {
                let (on, millis) = (report.on.join(" "), report.millis);
                tracing::info!(table, job = report.job, on, millis, "{}", report.end);
            }
            reports
        }
    }

    async fn archive(&self, registry: &Registry) {
        loop {
            match registry.archive().await {
                Ok(0) => return,
                Ok(jobs) => tracing::info!(jobs, "moved finished jobs into the archive"),
                Err(error) => return tracing::debug!(%error, "finished jobs stay listed for now"),
            }
        }
    }
}

impl Load {
    fn add(&mut self, share: &Share) {
        self.jobs += usize::from(!share.own);
        self.folds += usize::from(share.fold);
        self.bytes = self.bytes.saturating_add(share.bytes);
    }

    fn take(&mut self, share: &Share) {
        self.jobs -= usize::from(!share.own);
        self.folds -= usize::from(share.fold);
        self.bytes = self.bytes.saturating_sub(share.bytes);
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
