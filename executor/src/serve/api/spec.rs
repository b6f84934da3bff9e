//! Whether a table takes LSM writes, and how.
//!
//! | route | answer |
//! |---|---|
//! | `set_lsm_write_spec`, `enable_rte` | 200: the table takes LSM writes from now on |
//! | `unset_lsm_write_spec`, `disable_rte` | 200: everything is folded, and it takes no more |
//! | `get_lsm_write_spec`, `get_rte_spec` | the spec |

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
use planner::job::SsTableId;
use serde::{Deserialize, Serialize};
use serde_json::json as value;

use super::call::{Call, json};
use super::lsm::takes_writes;
use super::{Answer, Api, Refused, code, posted, said};
use crate::error::{Error, Result};
use crate::pod::left_over;
use crate::run::retire::{log_read, retire};
use crate::table::Table;

/// How long a spec waits for its last passes, and how often it looks.
const UNSET: Duration = Duration::from_secs(50);
const LOOK: Duration = Duration::from_millis(200);

/// By which names a client calls things.
#[derive(Clone, Copy)]
pub(super) struct Names {
    pub(super) stats: &'static str,
    pub(super) shards: &'static str,
    pub(super) sstables: &'static str,
    pub(super) spec: &'static str,
    /// It knows no set of all indexes, only those that there are.
    listed: bool,
}

/// Of clients up to 0.40.
pub(super) const LSM: Names =
    Names { stats: "lsm_stats", shards: "buckets", sstables: "generations", spec: "lsm_write_spec", listed: true };
/// Of clients since.
pub(super) const RTE: Names =
    Names { stats: "rte_stats", shards: "table_shards", sstables: "sstables", spec: "rte_spec", listed: false };

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let mut routes = Router::new();
    for (name, names) in [("get_lsm_write_spec", LSM), ("get_rte_spec", RTE)] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), move |call: Call| spec(call, names));
    }
    for name in ["set_lsm_write_spec", "enable_rte"] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), set);
    }
    for name in ["unset_lsm_write_spec", "disable_rte"] {
        routes = posted(routes, &format!("/v1/table/{{id}}/{name}"), unset);
    }
    routes
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
    // Writes to the base that are under way end first.
    let _closed = api.pod.close(&call.table().await?).await?;
    let table = call.table().await?;
    if table.mem_wal().await?.is_some() {
        return Err(Refused::invalid(format!(
            "`{id}` has an LSM write spec already; unset_lsm_write_spec first, which folds everything"
        )));
    }
    if let Some(shard) = left_over(&table).await? {
        return Err(Refused::invalid(format!(
            "shard `{shard}` of `{id}` holds rows from an earlier write spec, which would come back over newer ones; \
             drop the table, or remove its folder `_mem_wal` if nobody needs them"
        )));
    }
    if table.primary_key().is_empty() {
        return Err(Refused::invalid(format!(
            "`{id}` has no primary key, by which LSM writes replace rows; set one with \
             set_unenforced_primary_key, or, where the client does not do that over the wire, by the key's field \
             metadata `lance-schema:unenforced-primary-key`"
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
    // Most of it while the table still takes writes.
    api.pod.flush(&table).await?;
    api.force(&table, None).await?;
    let closed = api.pod.close(&table).await?;
    let table = call.table().await?;
    takes_writes(&table, table.mem_wal().await?)?;
    api.pod.flush_closed(&closed, &table).await?;
    loop {
        let Some(fresh) = api.pod.fresh(&table).await? else { return Ok(StatusCode::OK.into_response()) };
        if fresh.is_empty() {
            let mut dataset = (*fresh.table.dataset).clone();
            api.pod.release(&table.uri).await;
            retire_all(&fresh.table).await?;
            dataset.drop_index(MEM_WAL_INDEX_NAME).await?;
            api.wrote(id);
            return Ok(StatusCode::OK.into_response());
        }
        // What a log holds still, as where a flush took less than all of it, or another server has claimed the shard.
        api.pod.flush_closed(&closed, &table).await?;
        api.force(&table, None).await?;
        if began.elapsed() > UNSET {
            let why = format!("`{id}` still has rows to fold; ask again: nothing is lost meanwhile");
            return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, code::TABLE_STATE, why));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Takes every SSTable off the shards' lists, and their logs for read: where a spec is set again, nobody knows that
/// they are folded.
async fn retire_all(table: &Table) -> Result<()> {
    for shard in crate::read::shard_ids(table).await? {
        let Some(manifest) = table.shard_manifest(shard).await? else { continue };
        let listed = manifest.sstables.into_iter();
        let listed = listed.map(|sstable| SsTableId { generation: sstable.generation, path: sstable.path });
        retire(table, &shard.to_string(), &listed.collect::<Vec<_>>()).await?;
        log_read(table, shard).await?;
    }
    Ok(())
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
