//! The routes of LSM writes, by both names that clients know them by: `*_lsm` (to 0.40) and `*_rte` (since).
//!
//! | route | answer |
//! |---|---|
//! | `flush_*` | 202 once every memtable is an SSTable |
//! | `compact_*` | 202: a pass of each shard that has something to fold is dispatched; 429: none could be |
//! | `get_*_stats` | the shards: what is not folded, and whether a pass is at it |
//!
//! A checkpoint is the client's: it flushes, and asks for passes until no generation from before is left (R2.4).

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use planner::facts::{ShardFacts, ShardStatus, SsTableFacts};
use planner::plan::Trigger;
use serde::Deserialize;
use serde_json::{Map, Value, json as value};

use super::call::{Call, json};
use super::spec::{LSM, Names, RTE};
use super::{Answer, Api, Refused, posted, said};
use crate::pod::MemtableStats;
use crate::read::Depth;
use crate::table::{Table, shard_id};

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let mut routes = Router::new();
    for (name, names) in [("get_lsm_stats", LSM), ("get_rte_stats", RTE)] {
        let stats = move |call: Call, body: Body| stats(call, body, names);
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), stats);
    }
    for name in ["flush_lsm", "flush_rte"] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), flush);
    }
    for name in ["compact_lsm", "compact_rte"] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), compact);
    }
    routes
}

async fn flush(call: Call) -> Answer {
    let (api, id) = (&call.api, &call.id);
    let table = call.table().await?;
    api.pod.flush(&table).await?;
    api.wrote(id);
    Ok(StatusCode::ACCEPTED.into_response())
}

async fn compact(call: Call) -> Answer {
    let (api, table) = (&call.api, call.table().await?);
    takes_writes(&table, table.mem_wal().await?)?;
    api.force(&table, None).await?.dispatched()?;
    Ok(StatusCode::ACCEPTED.into_response())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stats {
    include_generation_rows: bool,
    include_sstable_rows: bool,
}

async fn stats(call: Call, body: Body, names: Names) -> Answer {
    let (api, id) = (&call.api, &call.id);
    let asked: Stats = json(body).await?;
    let rows = asked.include_generation_rows || asked.include_sstable_rows;
    let table = call.table().await?;
    if table.mem_wal().await?.is_none() {
        return said(value!({ names.stats: null }));
    }
    // As a read does, it claims a shard whose log holds rows that no SSTable has.
    api.pod.fresh(&table).await?;
    let facts = api.tender.evaluate(&api.table_ref(id)?, Depth::Fold, Trigger::Tick).await?.facts;
    let passes = api.passes(&table).await?;
    let mut shards = Vec::with_capacity(facts.shards.len());
    for shard in &facts.shards {
        let known = shard_id(&shard.shard)?;
        let memtables = api.pod.memtables(&table, known).await?;
        let manifest = table.shard_manifest(known).await?;
        let passing = shard.pass.is_some() || passes.contains_key(&shard.shard);
        let mut line = line(shard, memtables, passing, rows, names);
        if let Some(manifest) = manifest {
            line.insert("writer_epoch".into(), manifest.writer_epoch.into());
            line.insert("manifest_version".into(), manifest.version.into());
            line.insert("current_generation".into(), manifest.current_generation.into());
            let (replayed, seen) = (manifest.replay_after_wal_entry_position, manifest.wal_entry_position_last_seen);
            line.insert("replay_after_wal_entry_position".into(), replayed.into());
            line.insert("wal_entry_position_last_seen".into(), seen.into());
        }
        shards.push(Value::Object(line));
    }
    said(value!({ names.stats: { names.shards: shards } }))
}

fn line(
    shard: &ShardFacts,
    memtables: Option<Vec<MemtableStats>>,
    compacting: bool,
    rows: bool,
    names: Names,
) -> Map<String, Value> {
    let of = |sstable: &SsTableFacts| {
        let mut one = value!({ "generation": sstable.generation, "bytes": sstable.bytes.unwrap_or(0) });
        if let Some(count) = sstable.rows.filter(|_| rows) {
            one["rows"] = count.into();
        }
        one
    };
    let (folded, listed): (Vec<_>, Vec<_>) =
        shard.sstables.iter().partition(|sstable| sstable.generation <= shard.compacted_generation);
    let mut line = Map::new();
    line.insert("shard_id".into(), shard.shard.clone().into());
    let status = if shard.status == ShardStatus::Sealed { "Sealed" } else { "Active" };
    line.insert("status".into(), status.into());
    line.insert(names.sstables.into(), listed.into_iter().map(of).collect());
    // In the base already, and listed until every index has caught up (R2.10).
    line.insert("folded".into(), folded.into_iter().map(of).collect());
    line.insert("compacting".into(), compacting.into());
    if let Some(memtables) = memtables {
        let memtables = memtables.iter().map(|memtable| {
            value!({
                "generation": memtable.generation, "rows": memtable.rows, "bytes": memtable.bytes,
                "batches": memtable.batches, "indexes": memtable.indexes,
            })
        });
        line.insert("memtables".into(), memtables.collect());
    }
    line
}

/// Refuses a table that has no write spec.
pub(super) fn takes_writes<T>(table: &Table, details: Option<T>) -> std::result::Result<T, Refused> {
    details.ok_or_else(|| Refused::invalid(format!("`{}` takes no LSM writes: it has no write spec", table.name)))
}
