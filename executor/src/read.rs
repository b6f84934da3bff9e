//! The only way in: Lance's manifests, indexes and folders become facts.

mod base;
pub(crate) mod clones;
mod garbage;
mod retained;
mod sizes;
pub mod space;

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};
use lance::index::DatasetIndexExt;
use lance_index::mem_wal::MEM_WAL_INDEX_NAME;
use lance_index::mem_wal::{MemWalIndexDetails, ShardManifest, ShardStatus as LanceStatus};
use lance_table::format::IndexMetadata;
use lance_table::system_index::is_system_index;
use planner::facts::{IndexFacts, ShardFacts, ShardStatus, SsTableFacts, TableFacts};
use roaring::RoaringBitmap;
use uuid::Uuid;

pub(crate) use self::base::{listed_rewrites, overrides, segments_of};
use self::sizes::Size;
pub use self::sizes::Sizes;
use crate::error::{Doing, Result};
use crate::table::{Table, shard_id};

/// Manifests and folders of one table that are read at once.
const READS_AT_ONCE: usize = 8;

/// How much to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What the fold needs: one manifest a shard.
    Fold,
    /// Also each shard's folder and the retained versions, for collecting.
    Garbage,
}

/// Reads everything that is decided about `table`, from the version it is open at.
///
/// # Errors
/// A shard whose manifest can't be read fails the table: half the facts would be a wrong plan.
pub async fn table_facts(table: &Table, depth: Depth, sizes: &Sizes) -> Result<TableFacts> {
    let (segments, ids) = tokio::try_join!(base::segments(table), shard_ids(table))?;
    let mem_wal = table.mem_wal().await?;
    let readable = table.dataset.load_indices().await;
    let readable = readable.doing(|| format!("reading the indexes of `{}`", table.name))?;
    let rows = table.dataset.count_rows(None).await.doing(|| "counting rows".into())? as u64;
    let indexes = indexes(table, &segments, rows).await?;
    let recorded_at_ms = recorded_at_ms(&segments);
    let mut shards = Vec::new();
    let retained = match depth {
        Depth::Garbage if !ids.is_empty() => Some(retained::oldest(table).await?),
        _ => None,
    };
    let manifests: Vec<BoxFuture<'_, Result<_>>> =
        ids.into_iter().map(|id| table.shard_manifest(id).map_ok(move |manifest| (id, manifest)).boxed()).collect();
    let mut manifests = stream::iter(manifests).buffered(READS_AT_ONCE);
    while let Some((shard, manifest)) = manifests.try_next().await? {
        let Some(manifest) = manifest else {
            warn_of_lost_manifest(table, &shard).await?;
            continue;
        };
        let mut facts = shard_facts(table, mem_wal.as_ref(), &manifest, sizes).await?;
        facts.recorded_at_ms = recorded_at_ms;
        if let Some(oldest) = &retained {
            facts.retained_generation = Some(oldest.generation(&shard));
            facts.retained_by = oldest.name();
            facts.garbage = Some(garbage::walk(table, &manifest).await?);
        }
        shards.push(facts);
    }
    Ok(TableFacts {
        table: table.name.clone(),
        version: table.version(),
        rows: Some(rows),
        primary_key: table.primary_key(),
        indexes,
        shards,
        fragments: Some(base::fragments(&table.dataset, &segments, &readable)),
        stable_row_ids: table.dataset.manifest().uses_stable_row_ids(),
        remap: Some(base::remap(table, &segments).await?),
        overrides: base::overrides(&table.dataset),
        ..TableFacts::default()
    })
}

/// The facts of one shard, with its folder walked.
pub(crate) async fn shard_with_garbage(table: &Table, shard: &str, sizes: &Sizes) -> Result<TableFacts> {
    let shard = shard_id(shard)?;
    let mut facts = table_facts(table, Depth::Fold, sizes).await?;
    let oldest = retained::oldest(table).await?;
    let manifest = table.listed_manifest(shard).await?;
    let garbage = garbage::walk(table, &manifest).await?;
    for found in facts.shards.iter_mut().filter(|s| s.shard == shard.to_string()) {
        found.retained_generation = Some(oldest.generation(&shard));
        found.retained_by = oldest.name();
        found.garbage = Some(garbage.clone());
    }
    Ok(facts)
}

/// A shard folder without a manifest belongs to a writer that has not opened it yet, or has lost what
/// names its SSTables: their rows are read by nobody.
async fn warn_of_lost_manifest(table: &Table, shard: &Uuid) -> Result<()> {
    let names = table.store().read_dir(table.shard_dir(shard)).await;
    let names = names.doing(|| format!("listing shard `{shard}` of `{}`", table.name))?;
    let sstables = names.iter().filter(|name| name.contains("_gen_")).count();
    if sstables > 0 {
        tracing::warn!(
            table = table.name,
            %shard,
            sstables,
            "a shard has SSTables but no manifest, so no reader sees their rows; restore its `manifest` folder"
        );
    }
    Ok(())
}

/// The shards that have a folder, sorted.
pub(crate) async fn shard_ids(table: &Table) -> Result<Vec<Uuid>> {
    let store = table.store();
    let dir = lance::dataset::mem_wal::util::mem_wal_path(&table.base());
    let names = store.read_dir(dir).await.doing(|| format!("listing the shards of `{}`", table.name))?;
    let mut ids: Vec<Uuid> = names.iter().filter_map(|n| Uuid::parse_str(n.trim_end_matches('/')).ok()).collect();
    ids.sort_unstable();
    Ok(ids)
}

async fn shard_facts(
    table: &Table,
    mem_wal: Option<&MemWalIndexDetails>,
    manifest: &ShardManifest,
    sizes: &Sizes,
) -> Result<ShardFacts> {
    let shard = manifest.shard_id;
    // Collected before they run: a closure that lends its argument makes no future that threads can share.
    let measured: Vec<BoxFuture<'_, Result<SsTableFacts>>> = manifest
        .sstables
        .iter()
        .map(|sstable| {
            let facts = |size: Option<Size>| SsTableFacts {
                generation: sstable.generation,
                path: sstable.path.clone(),
                bytes: size.map(|s| s.bytes),
                rows: sstable.physical_rows,
                flushed_at_ms: size.map(|s| s.flushed_at_ms),
            };
            sizes.of(table, &shard, &sstable.path).map_ok(facts).boxed()
        })
        .collect();
    let sstables = stream::iter(measured).buffered(READS_AT_ONCE).try_collect().await?;
    let compacted = mem_wal.and_then(|m| m.compacted_sstables.iter().find(|c| c.shard_id == shard));
    let caught_up: BTreeMap<String, u64> = mem_wal
        .iter()
        .flat_map(|m| &m.index_catchup)
        .filter_map(|i| Some((i.index_name.clone(), i.caught_up_generation_for_shard(&shard)?)))
        .collect();
    Ok(ShardFacts {
        shard: shard.to_string(),
        status: match manifest.status {
            LanceStatus::Sealed => ShardStatus::Sealed,
            _ => ShardStatus::Active,
        },
        manifest_version: manifest.version,
        sstables,
        compacted_generation: compacted.map_or(0, |c| c.generation),
        caught_up,
        detached: mem_wal.is_none(),
        ..ShardFacts::default()
    })
}

/// When the base last wrote its MemWAL index: with a fold's marker or with a catch-up.
fn recorded_at_ms(segments: &[IndexMetadata]) -> Option<u64> {
    let written = segments.iter().find(|i| i.name == MEM_WAL_INDEX_NAME).and_then(|i| i.created_at)?;
    u64::try_from(written.timestamp_millis()).ok()
}

async fn indexes(table: &Table, segments: &[IndexMetadata], rows: u64) -> Result<Vec<IndexFacts>> {
    let described = table.dataset.describe_indices(None).await;
    let described = described.doing(|| format!("reading the indexes of `{}`", table.name))?;
    let live = table.dataset.manifest().fragments.iter().filter_map(|f| u32::try_from(f.id).ok());
    let live: RoaringBitmap = live.collect();
    let described = described.iter().filter(|index| !index.metadata().iter().any(is_system_index));
    Ok(described
        .map(|index| {
            let kind = kind(index.index_type());
            let own = || segments.iter().filter(|segment| segment.name == index.name());
            let unindexed = rows.saturating_sub(index.rows_indexed());
            // Lance can't translate the entries of such a type. A rewrite of fragments it covers takes the
            // segment's coverage away where it is deferred, and else leaves it with what is gone.
            let withdrawn = own()
                .filter_map(|segment| segment.fragment_bitmap.as_ref())
                .any(|covers| covers.is_empty() || unindexed > 0 && !covers.is_subset(&live));
            IndexFacts {
                name: index.name().to_string(),
                withdrawn: withdrawn && rows > 0 && is_withdrawn_by_rewrites(&kind),
                unindexed_rows: Some(unindexed),
                segments: Some(own().count() as u64),
                ..IndexFacts { kind, ..IndexFacts::default() }
            }
        })
        .collect())
}

/// Types whose entries a compaction can't remap (SPEC section 7).
fn is_withdrawn_by_rewrites(kind: &str) -> bool {
    matches!(kind, "zonemap" | "bloomfilter" | "rtree" | "fm" | "fmindex")
}

/// Lance's name of an index type as job names spell it: `IVF_PQ` is `ivfpq`, `Inverted` is `fts`.
pub(crate) fn kind(lance: &str) -> String {
    match lance.to_ascii_lowercase().replace('_', "").as_str() {
        "inverted" => "fts".into(),
        other => other.into(),
    }
}
