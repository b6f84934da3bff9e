//! One pass per shard at a time (R2.12).
//!
//! In this process by a set; between processes on one machine's folder by a file lock, which the
//! system frees when its holder dies. On object storage there is no lock, and none is needed: the
//! marker in the commit is the guard, the latch only saves work.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use planner::facts::PassFacts;

use crate::error::{Error, Result};
use crate::table::{Table, shard_id};

const LOCK_FILE: &str = "caretaker.lock";
/// A lock held without a name in it is somebody looking, not a pass: look again.
const GLANCES: u32 = 20;
const GLANCE: Duration = Duration::from_millis(5);

type Key = (String, String);

/// The latches this process holds.
#[derive(Clone, Debug, Default)]
pub struct Latches(Arc<Mutex<HashMap<Key, u64>>>);

/// A held latch; dropping it frees it.
#[derive(Debug)]
pub struct Latch {
    latches: Latches,
    key: Key,
    file: Option<File>,
}

impl Latches {
    /// Takes the latch of a shard.
    ///
    /// # Errors
    /// `Busy` with the holder's name when a pass runs already.
    pub fn take(&self, table: &Table, shard: &str, now_ms: u64) -> Result<Latch> {
        let key = (table.uri.clone(), shard.to_string());
        if let Some(since) = self.lock().get(&key) {
            return Err(busy(shard, &this_process(), *since));
        }
        let file = match lock_path(table, shard)? {
            Some(path) => Some(lock(&path, shard, now_ms)?),
            None => None,
        };
        match self.lock().entry(key.clone()) {
            std::collections::hash_map::Entry::Occupied(held) => Err(busy(shard, &this_process(), *held.get())),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(now_ms);
                Ok(Latch { latches: self.clone(), key, file })
            }
        }
    }

    /// The pass that holds a shard's latch, wherever on this machine it runs.
    pub fn holder(&self, table: &Table, shard: &str) -> Option<PassFacts> {
        let key = (table.uri.clone(), shard.to_string());
        if let Some(since_ms) = self.lock().get(&key) {
            return Some(PassFacts { since_ms: *since_ms, holder: this_process() });
        }
        let path = lock_path(table, shard).ok()??;
        let mut file = File::open(path).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => read_holder(&mut file),
            _ => None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, u64>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.set_len(0);
        }
        self.latches.lock().remove(&self.key);
    }
}

fn this_process() -> String {
    format!("process {}", std::process::id())
}

pub(crate) fn busy(shard: &str, holder: &str, since_ms: u64) -> Error {
    Error::Busy(format!(
        "a pass runs on shard `{shard}` already ({holder}, since {}); it is not queued: try again when it has ended",
        crate::env::show(since_ms)
    ))
}

/// Where the lock of a shard lies; `None` on object storage.
fn lock_path(table: &Table, shard: &str) -> Result<Option<PathBuf>> {
    let store = table.store();
    if !store.is_local() {
        return Ok(None);
    }
    let dir = table.shard_dir(&shard_id(shard)?);
    Ok(Some(PathBuf::from(format!("/{dir}")).join(LOCK_FILE)))
}

fn lock(path: &PathBuf, shard: &str, now_ms: u64) -> Result<File> {
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = open.map_err(|e| {
        Error::Invalid(format!("can't write `{}`: {e}; folding needs write access to the table", path.display()))
    })?;
    for _ in 0..GLANCES {
        match file.try_lock() {
            Ok(()) => {
                let written = file
                    .set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| write!(file, "{now_ms} {}", this_process()));
                written.map_err(|e| Error::Retry(format!("writing `{}`: {e}", path.display())))?;
                return Ok(file);
            }
            Err(TryLockError::WouldBlock) => match read_holder(&mut file) {
                Some(pass) => return Err(busy(shard, &pass.holder, pass.since_ms)),
                None => std::thread::sleep(GLANCE),
            },
            Err(TryLockError::Error(e)) => {
                tracing::debug!(path = %path.display(), error = %e, "no file locks here; the commit is the guard");
                return Ok(file);
            }
        }
    }
    Err(busy(shard, "an unnamed process", now_ms))
}

fn read_holder(file: &mut File) -> Option<PassFacts> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    let (since, holder) = text.split_once(' ')?;
    Some(PassFacts { since_ms: since.parse().ok()?, holder: holder.to_string() })
}
