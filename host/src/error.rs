//! How a plugin can fail.

use wasmtime::Trap;

use crate::limits::{Limits, MemoryRefused};

/// Why a plugin gave no plan. None of these harms the host: the next call starts afresh.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The file is no plugin.
    #[error("cannot load plugin `{plugin}`: {why}")]
    Load {
        /// The file, as it was named.
        plugin: String,
        /// What is wrong with it.
        why: String,
    },
    /// It speaks another version of the interface.
    #[error("cannot load plugin `{plugin}`: it speaks `{found}`, this host serves `{served}`; build it anew")]
    Abi {
        /// The file, as it was named.
        plugin: String,
        /// What it speaks.
        found: String,
        /// What is served.
        served: &'static str,
    },
    /// It did not answer in time.
    #[error("plugin stopped: it ran longer than its deadline of {limit_ms} ms")]
    Deadline {
        /// [`Limits::deadline`], milliseconds.
        limit_ms: u64,
    },
    /// It wanted more memory than it may have.
    #[error("plugin stopped: it asked for {asked} bytes of memory, its limit is {limit} bytes")]
    Memory {
        /// Bytes it would have held.
        asked: u64,
        /// [`Limits::memory_bytes`].
        limit: u64,
    },
    /// It crashed: a panic, a wild pointer, a division by zero, endless recursion.
    #[error("plugin crashed: {trap}")]
    Trap {
        /// The kind of trap.
        trap: String,
    },
    /// It answered that it cannot plan from what it was given.
    #[error("plugin refused the request: {why}")]
    Refused {
        /// The plugin's own words.
        why: String,
    },
    /// It answered, but not with what was asked for.
    #[error("plugin gave a bad answer: {why}")]
    BadOutput {
        /// What is wrong with the answer.
        why: String,
    },
}

impl PluginError {
    /// Sorts an error of a run. Whatever is neither a limit nor a trap is about the data the
    /// plugin handed over, and `otherwise` says what that means at this point.
    pub(crate) fn of_run(error: &wasmtime::Error, limits: &Limits, otherwise: impl FnOnce(String) -> Self) -> Self {
        if let Some(refused) = error.downcast_ref::<MemoryRefused>() {
            return Self::Memory { asked: refused.asked, limit: limits.memory_bytes };
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => Self::Deadline { limit_ms: limits.deadline_ms() },
            Some(trap) => Self::Trap { trap: trap.to_string() },
            None => otherwise(format!("{error:#}")),
        }
    }
}
