//! How far a job is, for a progress bar; written by the job, read by whoever shows it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one running job.
#[derive(Debug, Default)]
pub struct Progress {
    stage: Mutex<&'static str>,
    done: AtomicU64,
    total: AtomicU64,
    signs: AtomicU64,
}

impl Progress {
    /// Begins a stage of `total` rows.
    pub(crate) fn start(&self, stage: &'static str, total: u64) {
        *self.stage.lock().unwrap_or_else(|e| e.into_inner()) = stage;
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn rows(&self, rows: u64) {
        self.done.fetch_add(rows, Ordering::Relaxed);
    }

    /// So many rows of the stage are done.
    pub(crate) fn at(&self, rows: u64) {
        self.done.store(rows, Ordering::Relaxed);
    }

    /// Something goes on, though no row is done.
    pub(crate) fn alive(&self) {
        self.signs.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something went on.
    pub(crate) fn signs(&self) -> u64 {
        self.signs.load(Ordering::Relaxed)
    }

    /// Stage, rows done, rows in all.
    pub fn read(&self) -> (&'static str, u64, u64) {
        let stage = *self.stage.lock().unwrap_or_else(|e| e.into_inner());
        (stage, self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}
