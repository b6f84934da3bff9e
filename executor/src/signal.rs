//! Ctrl-C and SIGTERM: the first asks, the second tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};

/// Exit code of a process that Ctrl-C ended.
pub const BY_INTERRUPT: u8 = 130;
/// Exit code of a process that SIGTERM ended.
pub const BY_TERM: u8 = 143;

/// Whether the process was asked to stop, and by what.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    token: CancellationToken,
    code: Arc<AtomicU8>,
}

impl Stop {
    /// Listens from now on. The first signal cancels the token; the second ends the process at once.
    ///
    /// # Errors
    /// `Fatal` when the system refuses a signal handler.
    pub fn listen() -> Result<Self> {
        let mut interrupt = handler(SignalKind::interrupt())?;
        let mut term = handler(SignalKind::terminate())?;
        let stop = Self::default();
        let seen = stop.clone();
        tokio::spawn(async move {
            let code = either(&mut interrupt, &mut term).await;
            seen.code.store(code, Ordering::Relaxed);
            tracing::warn!("stopping: running passes end first; a second signal stops at once");
            seen.token.cancel();
            let code = either(&mut interrupt, &mut term).await;
            // A killed pass loses nothing: the next one finishes its work (R2.13).
            std::process::exit(i32::from(code));
        });
        Ok(stop)
    }

    /// Cancelled by the first signal.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The exit code that tells of the first signal; `None` when there was none.
    pub fn code(&self) -> Option<u8> {
        Some(self.code.load(Ordering::Relaxed)).filter(|code| *code != 0)
    }
}

pub(crate) fn handler(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|e| Error::Fatal(format!("can't listen for signals: {e}")))
}

async fn either(interrupt: &mut Signal, term: &mut Signal) -> u8 {
    tokio::select! {
        _ = interrupt.recv() => BY_INTERRUPT,
        _ = term.recv() => BY_TERM,
    }
}
