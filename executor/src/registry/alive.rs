//! Whether a process of this machine lives, without waiting for its silence.
//!
//! Each process that works from an SQLite file holds the lock of a file beside it. The system frees it
//! when the process dies, however it does, so that what it was at is taken over at once and not after a
//! lease. In a fleet nobody can know this: there the lease decides.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};

/// The folder of the lock files, in the state folder.
const FOLDER: &str = "processes";

/// The processes that share a state folder; none anybody knows of for the other engines.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    folder: Option<PathBuf>,
    held: Arc<Mutex<Vec<(PathBuf, File)>>>,
}

impl Processes {
    pub(super) fn of(state: &Path) -> Self {
        Self { folder: Some(state.join(FOLDER)), held: Arc::default() }
    }

    /// Whether this user may write here at all.
    ///
    /// # Errors
    /// `Invalid` where not. A full disk is no such reason: it may be empty again.
    pub(super) fn check(&self) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(format!(".{}", std::process::id()));
        let made = std::fs::create_dir_all(folder).and_then(|()| File::create(&path));
        let _ = std::fs::remove_file(&path);
        match made {
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                Err(unwritable(&path, &e))
            }
            _ => Ok(()),
        }
    }

    /// From now on until the process ends, `name` lives.
    pub(super) fn enter(&self, name: &str) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(name);
        if self.lock().iter().any(|(held, _)| *held == path) {
            return Ok(());
        }
        let failed = |e: std::io::Error| unwritable(&path, &e);
        std::fs::create_dir_all(folder).map_err(failed)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "no file locks here; silence tells of a process that died");
                let _ = std::fs::remove_file(&path);
                return Ok(());
            }
            Err(TryLockError::WouldBlock) => return Err(failed(ErrorKind::WouldBlock.into())),
        }
        self.lock().push((path, file));
        Ok(())
    }

    /// Whether it is certain that `name` lives no more.
    pub(super) fn is_dead(&self, name: &str) -> bool {
        let Some(folder) = &self.folder else { return false };
        File::open(folder.join(name)).is_ok_and(|file| file.try_lock_shared().is_ok())
    }

    /// What a dead process had is others' by now.
    pub(super) fn forget(&self, name: &str) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_file(folder.join(name));
        }
    }

    /// The processes whose lock files are there.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = self.folder.as_ref().and_then(|folder| std::fs::read_dir(folder).ok());
        entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(PathBuf, File)>> {
        self.held.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    Error::Invalid(format!(
        "can't lock `{}`: {error}; give this user write access to its folder, or name another with --state-dir",
        path.display()
    ))
}

impl Drop for Processes {
    fn drop(&mut self) {
        // The last handle takes its files along.
        if let Some(held) = Arc::get_mut(&mut self.held) {
            for (path, _) in held.get_mut().unwrap_or_else(|e| e.into_inner()).drain(..) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
