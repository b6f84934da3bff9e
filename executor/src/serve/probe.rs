//! A look at a table that costs a few small requests and decides nothing (R2.1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use lance::dataset::mem_wal::ShardManifestStore;
use lance::dataset::mem_wal::util::mem_wal_path;
use lance::session::Session;
use lance_io::object_store::{ObjectStore, ObjectStoreParams};
use lance_table::io::commit::commit_handler_from_url;
use object_store::path::Path;
use planner::facts::TableFacts;
use planner::plan::{Hold, Outcome, Plan};
use uuid::Uuid;

use super::heard::Heard;
use crate::catalog::TableRef;
use crate::error::{Doing, Result};

/// HEAD requests sent at once when looking for the newest shard manifest.
const MANIFEST_PROBE: usize = 2;

/// What changes whenever somebody writes: the version of the base, and of each shard's manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    version: u64,
    shards: BTreeMap<String, u64>,
}

impl From<&TableFacts> for Seen {
    fn from(facts: &TableFacts) -> Self {
        let shards = facts.shards.iter().map(|shard| (shard.shard.clone(), shard.manifest_version));
        Self { version: facts.version, shards: shards.collect() }
    }
}

/// Looks at each table; those that are not as they were seen last are heard of. One that can't be
/// looked at within `patience` is, too: its evaluation says what is wrong.
pub(super) async fn walk(
    session: Arc<Session>,
    tables: Vec<(TableRef, Seen)>,
    at_once: usize,
    patience: Duration,
    heard: Heard,
) {
    let looks = futures::stream::iter(tables).map(|(table, before)| {
        let (session, heard) = (session.clone(), heard.clone());
        async move {
            match tokio::time::timeout(patience, look(&session, &table)).await {
                Ok(Ok(now)) if now == before => {}
                Ok(Ok(_)) => drop(heard.of(&table.name)),
                Ok(Err(error)) => {
                    tracing::debug!(table = table.name, %error, "the walk can't look");
                    heard.of(&table.name);
                }
                Err(_) => drop(heard.of(&table.name)),
            }
        }
    });
    looks.buffer_unordered(at_once).collect::<()>().await;
}

/// The storage of a root or a table, which all tables of the root share, and the path on it.
pub(super) async fn open(session: &Arc<Session>, uri: &str) -> Result<(Arc<ObjectStore>, Path)> {
    let params = ObjectStoreParams::default();
    let opened = ObjectStore::from_uri_and_params(session.store_registry(), uri, &params).await;
    opened.doing(|| format!("opening `{uri}`"))
}

async fn look(session: &Arc<Session>, table: &TableRef) -> Result<Seen> {
    crate::fault::at(&table.uri, "probe.before").await;
    let what = || format!("looking at `{}`", table.name);
    let (store, base) = open(session, &table.uri).await?;
    let commits = commit_handler_from_url(&table.uri, &None).await.doing(what)?;
    let version = commits.resolve_latest_location(&base, &store).await.doing(what)?.version;
    let names = store.read_dir(mem_wal_path(&base)).await.doing(what)?;
    let mut shards = BTreeMap::new();
    for shard in names.iter().filter_map(|name| Uuid::parse_str(name.trim_end_matches('/')).ok()) {
        let manifests = ShardManifestStore::new(store.clone(), &base, shard, MANIFEST_PROBE);
        if let Some(manifest) = manifests.latest().await.doing(what)? {
            shards.insert(shard.to_string(), manifest.version);
        }
    }
    Ok(Seen { version, shards })
}

/// When time alone makes something of this plan due, or a failure is tried again. What somebody else
/// holds is looked at again with the next tick (R2.12).
pub(super) fn wake_at_ms(plan: &Plan, tick_ms: u64) -> Option<u64> {
    let times = plan.verdicts.iter().filter_map(|verdict| match &verdict.outcome {
        Outcome::NotDue { due_at_ms, .. } => *due_at_ms,
        Outcome::Held { hold: Hold::Failing { until_ms, .. }, .. } => Some(*until_ms),
        Outcome::Held { hold: Hold::Pass { .. }, .. } if tick_ms > 0 => Some(plan.at_ms.saturating_add(tick_ms)),
        _ => None,
    });
    times.min()
}

#[cfg(test)]
mod tests {
    use planner::plan::{Decision, Verdict};

    use super::*;

    #[test]
    fn a_table_is_looked_at_again_when_time_alone_makes_something_due() {
        let wake = |outcomes: Vec<Outcome>, tick_ms| {
            let verdict = |outcome| Verdict { decision: Decision::Fold, shard: None, outcome };
            let verdicts = outcomes.into_iter().map(verdict).collect();
            let plan = Plan {
                table: "a".into(),
                version: 1,
                at_ms: 1_000,
                verdicts,
                staleness_bound_ms: None,
                complaints: Vec::new(),
            };
            wake_at_ms(&plan, tick_ms)
        };
        let not_due = |due_at_ms| Outcome::NotDue { reasons: Vec::new(), due_at_ms };
        let held = |hold| Outcome::Held { hold, reasons: Vec::new() };
        let pass = || held(Hold::Pass { holder: "process 1".into(), since_ms: 0 });
        let failing = held(Hold::Failing { kind: "compact".into(), times: 1, until_ms: 7_000 });
        assert_eq!(wake(vec![not_due(None), held(Hold::Paused)], 5_000), None);
        assert_eq!(wake(vec![not_due(Some(9_000)), failing, not_due(None)], 5_000), Some(7_000));
        assert_eq!((wake(vec![pass()], 5_000), wake(vec![pass()], 0)), (Some(6_000), None));
    }
}
