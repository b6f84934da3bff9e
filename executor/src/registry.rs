//! The Job Registry: what is to be done, who does it, and what became of it.
//!
//! ```text
//! agent ── enqueue ──► pending ── claim ──► running ── finish ──► succeeded, failed, cancelled
//!                        ▲  ▲                 │ │ └─ retry, worker died ─┐
//!                        │  └── resume ── paused ◄─ pause                │
//!                        └──────────────────────────────────────────────┘
//! ```
//!
//! The engine is the database: an SQLite file for one machine, PostgreSQL for a fleet. What must not
//! happen is refused by it and not by who asks: two open jobs that do the same, two jobs that run in one
//! lane, a word of a worker that lost its lease. Times are the database's own.
//!
//! A table is known by its address, whatever root it was reached from, so that `serve` on a database
//! and `run` on one of its tables share their marks.

mod alive;
mod archive;
mod bell;
mod claim;
mod control;
mod decisions;
mod enqueue;
mod finish;
mod job;
mod list;
mod marks;
mod members;
mod parts;
mod schema;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use self::alive::Processes;
use self::bell::Bell;
pub use self::bell::Ring;
pub use self::claim::{Beat, Claim, Want};
pub use self::control::Answer;
pub use self::decisions::{DECISIONS_PAGE, Decision, Decisions, KeptPlugin};
pub use self::enqueue::Queued;
pub use self::job::{Ended, Failure, Job, NewJob, State};
pub(crate) use self::job::{FOLD, indexes};
pub use self::list::{EVENTS_MAX, Event, Filter, PAGE_MAX};
pub use self::marks::LastSuccess;
pub use self::members::{Member, Role};
pub(crate) use self::parts::Part;
use self::store::Store;
use crate::error::Result;

/// How long a worker may be silent until its jobs are given to others.
pub const LEASE: Duration = Duration::from_secs(30);
/// How often a worker says that it is there.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long until somebody looks for work and for dead workers that no event told of.
pub const POLL: Duration = Duration::from_secs(2);
/// Attempts until a job that kills its workers is given up.
const DEATHS_MAX: i64 = 5;
/// Attempts of a job that storage fails.
const TRIES_MAX: u64 = 3;
/// The pause before the second try; it doubles.
const RETRY_MS: u64 = 5_000;

/// Where a registry lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It ends with the process.
    Memory,
    /// An SQLite file in this folder.
    Folder(PathBuf),
    /// A database at this address.
    Postgres(String),
}

/// An address as it may be shown: without its user, its password and its options.
pub fn shown(address: &str) -> String {
    store::parse(address).map_or_else(|_| "postgres://…".into(), |url| store::masked(&url))
}

/// An open registry.
#[derive(Clone, Debug)]
pub struct Registry {
    store: Store,
    bell: Bell,
    processes: Processes,
    /// A look at it changes nothing.
    writes: bool,
}

impl Default for Registry {
    fn default() -> Self {
        let store = Store::in_memory();
        Self { bell: Bell::of(&store), store, processes: Processes::default(), writes: true }
    }
}

impl Registry {
    /// Opens a registry, and makes it where there is none. What dead processes had is free then.
    ///
    /// # Errors
    /// `Invalid` names one that can't be written, is damaged, or was written by a newer Caretaker;
    /// `Retry` or `Away` one that does not answer.
    pub async fn open(place: &Place) -> Result<Self> {
        let store = Store::open(place).await?;
        let registry = Self { bell: Bell::of(&store), store, processes: processes(place), writes: true };
        // One that can't be written is told of before any work begins.
        registry.processes.check()?;
        registry.reap().await?;
        Ok(registry)
    }

    /// Opens a registry to look at it only; where there is none, an empty one.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn look(place: &Place) -> Result<Self> {
        match Store::look(place).await? {
            Some(store) => Ok(Self { bell: Bell::of(&store), store, processes: Processes::default(), writes: false }),
            None => Ok(Self { writes: false, ..Self::default() }),
        }
    }

    /// Whether it ends with the process.
    fn is_in_memory(&self) -> bool {
        self.store.place == store::MEMORY
    }

    /// Where it is, for messages; without a password.
    pub fn place(&self) -> &str {
        &self.store.place
    }

    /// Hears of what happens in it, from now on: what this process does at once, what others do as soon
    /// as the engine tells, or with the next [`POLL`].
    pub fn listen(&self) -> tokio::sync::broadcast::Receiver<Ring> {
        self.bell.listen()
    }
}

fn processes(place: &Place) -> Processes {
    match place {
        Place::Folder(dir) => Processes::of(dir),
        _ => Processes::default(),
    }
}

#[cfg(test)]
mod marks_tests;
#[cfg(test)]
mod parts_tests;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tests;
