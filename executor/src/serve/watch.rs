//! File events of local tables: a commit is noticed at once, not by the next walk.
//!
//! They are a hint. Where the system watches no more files, or none at all, the walk notices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::heard::Heard;
use crate::catalog::TableRef;

/// Tables that are watched at once. Linux gives a user some thousands of watches for all programs.
const WATCHES_MAX: usize = 4_096;

/// Watched folders, and whose they are.
type Folders = Arc<Mutex<BTreeMap<PathBuf, String>>>;

/// Watches the folder of versions of each table.
pub(super) struct Watch {
    watcher: RecommendedWatcher,
    folders: Folders,
    /// The system refused one: what is watched stays so, no more is tried.
    full: bool,
}

impl Watch {
    /// A watch of nothing yet; `None` where this system can't.
    pub(super) fn new(heard: Heard) -> Option<Self> {
        let folders = Folders::default();
        let known = folders.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| match event {
            Ok(event) => note(&event, &heard, &known),
            Err(error) => tracing::debug!(%error, "a file event was lost; the walk notices"),
        });
        match watcher {
            Ok(watcher) => Some(Self { watcher, folders, full: false }),
            Err(error) => {
                tracing::info!(%error, "no file events here; the walk notices what is written");
                None
            }
        }
    }

    /// Watches these tables from now on, and no others.
    pub(super) fn own(&mut self, tables: &[TableRef]) {
        let wanted: BTreeMap<PathBuf, &str> =
            tables.iter().map(|table| (Path::new(&table.uri).join("_versions"), table.name.as_str())).collect();
        let gone: Vec<PathBuf> = lock(&self.folders).keys().filter(|f| !wanted.contains_key(*f)).cloned().collect();
        for folder in gone {
            lock(&self.folders).remove(&folder);
            // The system has dropped it already where the folder is gone.
            let _ = self.watcher.unwatch(&folder);
        }
        for (folder, name) in wanted {
            let known = lock(&self.folders);
            if self.full || known.len() >= WATCHES_MAX {
                return;
            }
            if known.contains_key(&folder) {
                continue;
            }
            drop(known);
            match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => drop(lock(&self.folders).insert(folder, name.to_string())),
                Err(error) if folder.is_dir() => {
                    self.full = true;
                    tracing::info!(%error, "no more files are watched; the walk notices what is written elsewhere");
                }
                Err(_) => {}
            }
        }
    }
}

/// A version came: the table is heard of. Its folder went: it is watched anew when it is back.
fn note(event: &Event, heard: &Heard, folders: &Folders) {
    if !matches!(event.kind, EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))) {
        return;
    }
    for path in &event.paths {
        let mut folders = lock(folders);
        if folders.contains_key(path) {
            folders.remove(path);
        } else if let Some(table) = path.parent().and_then(|folder| folders.get(folder))
            && !matches!(event.kind, EventKind::Remove(_))
        {
            heard.of(table);
        }
    }
}

fn lock(folders: &Folders) -> MutexGuard<'_, BTreeMap<PathBuf, String>> {
    folders.lock().unwrap_or_else(|e| e.into_inner())
}
