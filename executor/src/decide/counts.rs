//! What deciders count.

use std::sync::atomic::{AtomicU64, Ordering};

/// One thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Decisions of the built-in planner, where it is the active one.
    PlannedBuiltIn,
    /// Decisions of the active plugin.
    PlannedByPlugin,
    /// Decisions of the plugin before, since the active one failed.
    FellBackToLastGood,
    /// Decisions of the built-in planner, since the active plugin failed.
    FellBackToBuiltIn,
    /// It ran longer than its deadline.
    Deadline,
    /// It wanted more memory than it may have.
    Memory,
    /// It crashed.
    Trap,
    /// It refused the request.
    Refused,
    /// What it answered is no plan, or none that may be carried out.
    BadOutput,
    /// The host could not ask it.
    Host,
    /// A plugin could not be loaded.
    NotLoaded,
    /// The candidate's plans that do the same.
    ShadowSame,
    /// The candidate's plans that do something else.
    ShadowDiffers,
    /// The candidate gave no plan that may be carried out.
    ShadowFailed,
    /// The candidate was not asked: it is slower than decisions come.
    ShadowSkipped,
}

/// Everything that is counted, and its names.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; 15]);

impl Counts {
    pub(crate) fn add(&self, count: Count) {
        self.0[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often.
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Relaxed)
    }
}

impl Count {
    /// By the one word of [`super::Failed`].
    pub(super) fn of_failure(kind: &str) -> Self {
        match kind {
            "deadline" => Self::Deadline,
            "memory" => Self::Memory,
            "trap" => Self::Trap,
            "refused" => Self::Refused,
            "bad_output" => Self::BadOutput,
            _ => Self::Host,
        }
    }
}
