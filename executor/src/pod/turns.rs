//! Who may write to a table, beside whom.
//!
//! A write takes its turn when its rows are there, and reads the table anew then: what took long to arrive must not go
//! into a table that has become another one meanwhile. Whoever reads rows to write them back is alone, or it would
//! undo what others write between. Whoever takes a table away, or its write spec, waits for those that are under way,
//! and lets nobody in until it is done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::{Pod, lock};
use crate::error::{Error, Result};
use crate::table::Table;

/// How long somebody waits for the others.
const PATIENCE: Duration = Duration::from_secs(30);
/// Tables that turns are remembered of, before those that nobody has are forgotten.
const GATES_MAX: usize = 1_024;

/// The gates of all tables, by where they lie.
#[derive(Default)]
pub(super) struct Gates(Mutex<HashMap<String, Gate>>);

#[derive(Clone, Default)]
struct Gate {
    /// Somebody takes the table away, or its spec.
    closing: Arc<Mutex<u64>>,
    turns: Arc<RwLock<()>>,
}

/// The right to write to a table, while it lives.
pub enum Turn {
    /// Beside others.
    Shared(OwnedRwLockReadGuard<()>),
    /// And nobody else.
    Alone(OwnedRwLockWriteGuard<()>),
}

/// A table stays closed while this lives.
pub struct Closed {
    closing: Arc<Mutex<u64>>,
    _alone: Option<OwnedRwLockWriteGuard<()>>,
}

impl Gates {
    fn of(&self, uri: &str) -> Gate {
        let mut gates = lock(&self.0);
        if gates.len() >= GATES_MAX {
            gates.retain(|_, gate| Arc::strong_count(&gate.turns) > 1 || Arc::strong_count(&gate.closing) > 1);
        }
        gates.entry(uri.to_string()).or_default().clone()
    }
}

impl Pod {
    /// The right to write to the table at `uri`, beside others.
    ///
    /// # Errors
    /// `Draining` where it is being dropped or its spec is, `Busy` where somebody has been alone with it for long.
    pub async fn turn(&self, uri: &str) -> Result<Turn> {
        let gate = self.gates.of(uri);
        open(&gate, uri)?;
        let turn = tokio::time::timeout(PATIENCE, gate.turns.clone().read_owned()).await;
        let turn = turn.map_err(|_| Error::Busy(format!("`{uri}` is being updated for long; try again")))?;
        // It may have been closed while this one waited.
        open(&gate, uri)?;
        Ok(Turn::Shared(turn))
    }

    /// The right to write to the table at `uri`, and nobody else.
    ///
    /// # Errors
    /// As [`Self::turn`].
    pub async fn alone(&self, uri: &str) -> Result<Turn> {
        let gate = self.gates.of(uri);
        open(&gate, uri)?;
        let turn = tokio::time::timeout(PATIENCE, gate.turns.clone().write_owned()).await;
        let turn = turn.map_err(|_| Error::Busy(format!("`{uri}` is being written to for long; try again")))?;
        open(&gate, uri)?;
        Ok(Turn::Alone(turn))
    }

    /// Waits for the writes to the table that are under way, and refuses further ones until what is returned is
    /// dropped.
    ///
    /// # Errors
    /// `Busy` where they take long.
    pub async fn close(&self, table: &Table) -> Result<Closed> {
        let gate = self.gates.of(&table.uri);
        *lock(&gate.closing) += 1;
        let mut closed = Closed { closing: gate.closing.clone(), _alone: None };
        let alone = tokio::time::timeout(PATIENCE, gate.turns.write_owned()).await;
        let why = || Error::Busy(format!("writes to `{}` are under way for long; try again", table.name));
        closed._alone = Some(alone.map_err(|_| why())?);
        Ok(closed)
    }
}

fn open(gate: &Gate, uri: &str) -> Result<()> {
    match *lock(&gate.closing) {
        0 => Ok(()),
        _ => Err(Error::Draining(format!("`{uri}` is being dropped, or takes no more LSM writes"))),
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        *lock(&self.closing) -= 1;
    }
}

/// The table as it is now.
///
/// # Errors
/// `Retry` where it is gone: a client that asks again is told so.
pub(super) async fn now(table: &Table) -> Result<Table> {
    let found = Table::find(&table.name, &table.uri, &table.session).await?;
    found.ok_or_else(|| Error::Retry(format!("`{}` was dropped meanwhile", table.name)))
}
