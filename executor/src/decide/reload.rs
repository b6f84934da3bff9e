//! Plugin files that change while they are in use.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use super::{Decider, Planner, Source};

/// Between two looks at the files. Not events: a file on a mounted volume, or behind a link that is swapped, tells
/// of nothing.
const LOOK: Duration = Duration::from_secs(1);

/// What changes with a file, links followed.
type Mark = Option<(SystemTime, u64)>;

impl Decider {
    /// Loads plugins anew whose files change, until `stop`. One that does not load changes nothing, and is told of.
    pub async fn reload(self: Arc<Self>, stop: CancellationToken) {
        let (plugin, shadow) = (self.choice().plugin.clone(), self.choice().shadow.clone());
        // The first look loads what was there at the start once more: it may have changed since, and the same is nothing new.
        let mut watched: Vec<(Source, bool, Mark)> = Vec::new();
        for (source, active) in [(plugin, true), (shadow, false)] {
            watched.extend(source.map(|source| (source, active, None)));
        }
        if watched.is_empty() {
            return;
        }
        while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
            for (source, active, mark) in &mut watched {
                let now = of(&source.path).await;
                // One that is gone is being written, or was not meant: what is loaded stays.
                if now.is_some() && now != *mark {
                    *mark = now;
                    self.changed(source, *active).await;
                }
            }
        }
    }

    async fn changed(&self, source: &Source, active: bool) {
        match self.load(source).await {
            Ok(plugin) if active => self.switch(Planner::Plugin(plugin)),
            Ok(plugin) if self.shadow().is_some_and(|shadow| shadow.plugin.sha256 == plugin.sha256) => {}
            Ok(plugin) => {
                tracing::info!(plugin = plugin.name(), "another candidate is compared from now on");
                self.beside(Some(plugin));
            }
            Err(error) => tracing::error!(%source, %error, "its file changed and does not load; what decided goes on"),
        }
    }
}

async fn of(path: &Path) -> Mark {
    let found = tokio::fs::metadata(path).await.ok()?;
    Some((found.modified().ok()?, found.len()))
}
