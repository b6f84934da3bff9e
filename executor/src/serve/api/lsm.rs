//! The routes of LSM writes, by both names that clients know them by: `*_lsm` (to 0.40) and `*_rte` (since).
//!
//! | route | answer |
//! |---|---|
//! | `flush_*` | 202 once every memtable is an SSTable |
//! | `compact_*` | 202: a pass of each shard that has something to fold is dispatched; 429: none could be |
//! | `get_*_stats` | the shards: what is not folded, and whether a pass is at it |
//! | `set_lsm_write_spec`, `enable_rte` | 200: the table takes LSM writes from now on |
//! | `unset_lsm_write_spec`, `disable_rte` | 200: everything is folded, and it takes no more |
//! | `get_lsm_write_spec`, `get_rte_spec` | the spec |
//!
//! A checkpoint is the client's: it flushes, and asks for passes until no generation from before is left (R2.4).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::index::DatasetIndexExt;
use lance_index::is_system_index;
use lance_index::mem_wal::{MEM_WAL_INDEX_NAME, MemWalIndexDetails};
use planner::facts::{ShardFacts, ShardStatus, SsTableFacts};
use planner::plan::Trigger;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json as value};

use super::call::{Call, json};
use super::{Answer, Api, Refused, code, posted, said};
use crate::error::{Error, Result};
use crate::pod::MemtableStats;
use crate::read::Depth;
use crate::table::{Table, shard_id};

/// How long a spec waits for its last passes, and how often it looks.
const UNSET: Duration = Duration::from_secs(50);
const LOOK: Duration = Duration::from_millis(200);

/// By which names a client calls things.
#[derive(Clone, Copy)]
struct Names {
    stats: &'static str,
    shards: &'static str,
    sstables: &'static str,
    spec: &'static str,
    /// It knows no set of all indexes, only those that there are.
    listed: bool,
}

const LSM: Names =
    Names { stats: "lsm_stats", shards: "buckets", sstables: "generations", spec: "lsm_write_spec", listed: true };
const RTE: Names =
    Names { stats: "rte_stats", shards: "table_shards", sstables: "sstables", spec: "rte_spec", listed: false };

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let mut routes = Router::new();
    for (name, names) in [("get_lsm_stats", LSM), ("get_rte_stats", RTE)] {
        let stats = move |call: Call, body: Body| stats(call, body, names);
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), stats);
    }
    for (name, names) in [("get_lsm_write_spec", LSM), ("get_rte_spec", RTE)] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), move |call: Call| spec(call, names));
    }
    for name in ["flush_lsm", "flush_rte"] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), flush);
    }
    for name in ["compact_lsm", "compact_rte"] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), compact);
    }
    for name in ["set_lsm_write_spec", "enable_rte"] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), set);
    }
    for name in ["unset_lsm_write_spec", "disable_rte"] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), unset);
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
        let passing = shard.pass.is_some() || passes.contains(&shard.shard);
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

#[derive(Deserialize, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
enum Sharding {
    Bucket { column: String, num_buckets: u32 },
    Identity { column: String },
    Unsharded,
}

#[derive(Deserialize, Serialize)]
struct Spec {
    sharding: Sharding,
    #[serde(default)]
    maintained_indexes: Option<Vec<String>>,
    #[serde(default)]
    writer_config_defaults: BTreeMap<String, String>,
}

async fn set(call: Call, body: Body) -> Answer {
    let (api, id) = (&call.api, &call.id);
    let spec: Spec = json(body).await?;
    let table = call.table().await?;
    if table.mem_wal().await?.is_some() {
        return Err(Refused::invalid(format!("`{id}` has an LSM write spec already, which can't be changed")));
    }
    if table.primary_key().is_empty() {
        return Err(Refused::invalid(format!(
            "`{id}` has no primary key, by which LSM writes replace rows; set one with set_unenforced_primary_key"
        )));
    }
    let mut dataset = (*table.dataset).clone();
    let builder = match spec.sharding {
        Sharding::Bucket { column, num_buckets } => dataset.initialize_mem_wal().bucket_sharding(column, num_buckets),
        Sharding::Identity { column } => dataset.initialize_mem_wal().identity_sharding(column),
        Sharding::Unsharded => dataset.initialize_mem_wal().unsharded(),
    };
    let builder = match spec.maintained_indexes {
        Some(names) => builder.maintained_indexes(names),
        None => builder,
    };
    let defaults = spec.writer_config_defaults.into_iter();
    defaults.fold(builder, |builder, (key, value)| builder.add_writer_config_default(key, value)).execute().await?;
    api.wrote(id);
    Ok(StatusCode::OK.into_response())
}

/// Everything is folded first: what is not in the base would be read by nobody afterwards.
async fn unset(call: Call) -> Answer {
    let (api, id) = (&call.api, &call.id);
    let table = call.table().await?;
    takes_writes(&table, table.mem_wal().await?)?;
    let began = Instant::now();
    let mut closed = None;
    loop {
        if closed.is_none() {
            api.pod.flush(&table).await?;
            closed = Some(api.pod.close(&table));
        }
        let fresh = api.pod.fresh(&table).await?;
        let Some(fresh) = fresh else { return Ok(StatusCode::OK.into_response()) };
        if fresh.is_empty() {
            let mut dataset = (*fresh.table.dataset).clone();
            api.pod.release(&table.uri).await;
            dataset.drop_index(MEM_WAL_INDEX_NAME).await?;
            api.wrote(id);
            return Ok(StatusCode::OK.into_response());
        }
        if fresh.has_memtables() {
            closed = None;
        }
        api.force(&table, None).await?;
        if began.elapsed() > UNSET {
            let why = format!("`{id}` still has rows to fold; ask again: nothing is lost meanwhile");
            return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, code::TABLE_STATE, why));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn spec(call: Call, names: Names) -> Answer {
    let table = call.table().await?;
    let mut spec = table.mem_wal().await?.map(|details| spec_of(&table, details)).transpose()?;
    if let Some(spec) = spec.as_mut().filter(|spec| names.listed && spec.maintained_indexes.is_none()) {
        let indexes = table.dataset.load_indices().await?;
        let own = indexes.iter().filter(|index| !is_system_index(index)).map(|index| index.name.clone());
        spec.maintained_indexes = Some(own.collect::<BTreeSet<_>>().into_iter().collect());
    }
    said(value!({ names.spec: spec }))
}

fn spec_of(table: &Table, details: MemWalIndexDetails) -> Result<Spec> {
    let spec = details.sharding_specs.first().and_then(|spec| spec.fields.first());
    let field = spec.ok_or_else(|| Error::Invalid(format!("`{}` is sharded by hand", table.name)))?;
    let column = || {
        let found = field.source_ids.first().and_then(|id| table.dataset.schema().field_by_id(*id));
        let found = found.map(|field| field.name.clone());
        found.ok_or_else(|| Error::Invalid(format!("the column that shards `{}` is gone", table.name)))
    };
    let sharding = match field.transform.as_deref() {
        Some("bucket") => {
            let buckets = field.parameters.get("num_buckets").and_then(|count| count.parse().ok());
            let num_buckets =
                buckets.ok_or_else(|| Error::Invalid(format!("`{}` has no number of buckets", table.name)))?;
            Sharding::Bucket { column: column()?, num_buckets }
        }
        Some("identity") => Sharding::Identity { column: column()? },
        Some("unsharded") => Sharding::Unsharded,
        other => return Err(Error::Invalid(format!("`{}` is sharded by {other:?}, which is not known", table.name))),
    };
    Ok(Spec {
        sharding,
        maintained_indexes: (!details.maintain_all_indexes).then_some(details.maintained_indexes),
        writer_config_defaults: details.writer_config_defaults.into_iter().collect(),
    })
}

fn takes_writes<T>(table: &Table, details: Option<T>) -> std::result::Result<T, Refused> {
    details.ok_or_else(|| Refused::invalid(format!("`{}` takes no LSM writes: it has no write spec", table.name)))
}
