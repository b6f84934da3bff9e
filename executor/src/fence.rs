//! The right to change a table, for as long as a job is this process's.
//!
//! A job that runs asks at its safe points whether it may go on, and right before each commit whether its
//! lease still holds. Neither is the last guard: a process may stand still between the question and the
//! commit. That is Lance's own check of the commit; the fence keeps what would fail there from being
//! tried, and stops work that nobody needs any more.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::registry::{Beat, HEARTBEAT, LEASE, Registry, Ring};
use crate::run::Progress;

/// So long before the others may take a job over this process gives it up, where it can't ask.
const MARGIN: Duration = Duration::from_secs(5);
/// How long a job may take to its next safe point after it was told to stop. Then it is dropped where it is,
/// which is as safe as a crash there.
const GRACE: Duration = Duration::from_secs(10);
/// Jobs that can't tell how far they are may be still for so many times longer.
const PATIENCE: u32 = 3;

/// What a job has in hand; nothing, where nobody else could have it.
#[derive(Clone, Debug, Default)]
pub struct Fence(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    lease: String,
    job: String,
    stop: CancellationToken,
    why: OnceLock<Why>,
    renewed: Mutex<Instant>,
    /// Where the registry is spoken to: the work may keep its own threads busy.
    control: Handle,
}

/// Why a job has to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody asked for it.
    Asked,
    /// The job is another worker's.
    Lost,
    /// It has done nothing for so long.
    Stalled(Duration),
}

impl Fence {
    /// The fence of a claim.
    pub(crate) fn of(registry: Registry, lease: String, job: String, control: Handle) -> Self {
        Self(Some(Arc::new(Inner {
            registry,
            lease,
            job,
            stop: CancellationToken::new(),
            why: OnceLock::new(),
            renewed: Mutex::new(Instant::now()),
            control,
        })))
    }

    /// The jobs' ids, for the properties of commits.
    pub(crate) fn job(&self) -> Option<&str> {
        self.0.as_ref().map(|inner| inner.job.as_str())
    }

    /// What proves that the jobs are this process's.
    pub(crate) fn lease(&self) -> Option<&str> {
        self.0.as_ref().map(|inner| inner.lease.as_str())
    }

    /// Why the job was told to stop, if it was.
    pub(crate) fn why(&self) -> Option<Why> {
        self.0.as_ref()?.why.get().cloned()
    }

    /// At a safe point: whether to go on.
    ///
    /// # Errors
    /// `Superseded` where the job was told to stop.
    pub(crate) fn pass(&self) -> Result<()> {
        match self.why() {
            None => Ok(()),
            Some(why) => Err(Error::Superseded(match why {
                Why::Asked => "it was asked to stop".into(),
                Why::Lost => "the job was given to another worker".into(),
                Why::Stalled(time) => format!("it made no progress for {} s", time.as_secs()),
            })),
        }
    }

    /// Right before a commit: whether the job is still this process's.
    ///
    /// # Errors
    /// As [`Self::pass`]; also where nobody can tell and the lease may have run out.
    pub(crate) async fn check(&self) -> Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        self.pass()?;
        let (registry, lease) = (inner.registry.clone(), inner.lease.clone());
        let asked = inner.control.spawn(async move { tokio::time::timeout(MARGIN, registry.holds(&lease)).await });
        match asked.await {
            Ok(Ok(Ok(true))) => {}
            Ok(Ok(Ok(false))) => self.end(Why::Lost),
            _ if inner.is_late() => self.end(Why::Lost),
            _ => tracing::warn!(job = inner.job, "the registry does not answer; the lease holds for a while yet"),
        }
        self.pass()
    }

    /// Waits until the job was told to stop and did not.
    pub(crate) async fn overdue(&self) {
        let Some(inner) = &self.0 else { return std::future::pending().await };
        inner.stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    }

    /// Cancelled when the job has to stop.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.0.as_ref().map(|inner| inner.stop.clone()).unwrap_or_default()
    }

    fn end(&self, why: Why) {
        if let Some(inner) = &self.0 {
            // The first reason counts.
            let _ = inner.why.set(why);
            inner.stop.cancel();
        }
    }

    /// Says every now and then that the job is worked on, and tells it to stop when it has to. `moved`
    /// counts what can be seen of its work.
    pub(crate) async fn keep(self, progress: Arc<Progress>, stall: Duration, moved: impl Fn() -> u64 + Send) {
        let Some(inner) = self.0.clone() else { return };
        let mut bell = inner.registry.listen();
        let mut beat = tokio::time::interval(HEARTBEAT);
        let (mut last, mut since) = (None, Instant::now());
        loop {
            tokio::select! {
                _ = beat.tick() => {}
                () = asked(&mut bell) => {}
            }
            let (stage, done, total) = progress.read();
            let now = (stage, done, moved() + progress.signs());
            if last.replace(now) != Some(now) {
                since = Instant::now();
            }
            let patience = if total > 0 { stall } else { stall * PATIENCE };
            if !stall.is_zero() && since.elapsed() >= patience {
                self.end(Why::Stalled(patience));
            }
            // From before the question: the answer may be long on its way.
            let sent = Instant::now();
            let answer = inner.registry.beat(&inner.lease, stage, done, total);
            match tokio::time::timeout(HEARTBEAT, answer).await {
                Ok(Ok(Beat::On)) => inner.renew(sent),
                Ok(Ok(Beat::Stop)) => {
                    inner.renew(sent);
                    self.end(Why::Asked);
                }
                Ok(Ok(Beat::Lost)) => return self.end(Why::Lost),
                _ if inner.is_late() => {
                    tracing::warn!(
                        job = inner.job,
                        "the registry has not answered for the length of a lease: given up"
                    );
                    return self.end(Why::Lost);
                }
                Ok(Err(error)) => tracing::debug!(job = inner.job, %error, "a heartbeat failed"),
                Err(_) => tracing::debug!(job = inner.job, "a heartbeat was not answered in time"),
            }
        }
    }
}

impl Inner {
    fn renew(&self, at: Instant) {
        *self.renewed.lock().unwrap_or_else(|e| e.into_inner()) = at;
    }

    fn is_late(&self) -> bool {
        self.renewed.lock().unwrap_or_else(|e| e.into_inner()).elapsed() + MARGIN >= LEASE
    }
}

async fn asked(bell: &mut tokio::sync::broadcast::Receiver<Ring>) {
    loop {
        match bell.recv().await {
            Ok(Ring::Asked | Ring::Anything) | Err(RecvError::Lagged(_)) => return,
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
