//! Which tables read files of which others. For a shallow clone its source's files are its own, and the
//! source knows nothing of it: only the clone's manifest does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use crate::catalog::Root;
use crate::error::Result;
use crate::table::Table;

/// By the address of each table that was looked at: where the files lie that it reads beside its own.
#[derive(Debug, Default)]
pub(crate) struct Clones {
    sources: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl Clones {
    /// Remembers what a table reads.
    pub(crate) fn note(&self, table: &Table) {
        let bases = table.dataset.manifest().base_paths.values();
        let roots = bases.filter(|base| base.is_dataset_root).map(|base| plain(&base.path).to_string());
        self.lock().insert(plain(&table.uri).to_string(), roots.collect());
    }

    /// The tables known to read files of this one, by name.
    pub(crate) fn of(&self, uri: &str) -> Vec<String> {
        let name = |clone: &String| clone.rsplit('/').next().unwrap_or(clone).trim_end_matches(".lance").to_string();
        let known = self.lock();
        known.iter().filter(|(_, sources)| sources.contains(plain(uri))).map(|(clone, _)| name(clone)).collect()
    }

    /// The same, after a look at every table in the same folder that was never looked at.
    ///
    /// # Errors
    /// The folder can't be listed, or a table in it can't be opened: it may be a clone.
    pub(crate) async fn beside(&self, table: &Table) -> Result<Vec<String>> {
        let Some((folder, _)) = table.uri.trim_end_matches('/').rsplit_once('/') else { return Ok(Vec::new()) };
        let tables = match Root::parse(folder) {
            Ok(root) => root.tables(&table.session).await?,
            // A table at the top of its bucket or disk has nothing beside it.
            Err(_) => return Ok(self.of(&table.uri)),
        };
        for other in tables {
            if !self.lock().contains_key(plain(&other.uri)) {
                self.note(&Table::open(&other.name, &other.uri, &table.session).await?);
            }
        }
        Ok(self.of(&table.uri))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.sources.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// One place has one spelling.
fn plain(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri).trim_end_matches('/')
}
