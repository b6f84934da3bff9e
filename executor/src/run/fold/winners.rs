//! Newest-first pass over the key columns: which rows of the prefix are the newest of their key.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use futures::{StreamExt, TryStreamExt};
use lance::dataset::mem_wal::TOMBSTONE;
use lance_table::format::key_existence::{
    FilterType, KeyExistenceFilter, KeyExistenceFilterBuilder, extract_key_value_from_batch,
};
use roaring::RoaringTreemap;

use super::ahead::ahead;
use super::keys::{Encoder, Full, KeySet, Offer};
use super::source::{Source, addresses};
use crate::error::{Error, Result};
use crate::run::scan::ScanLimits;

/// Upserted keys past which the conflict filter would answer "maybe" to everything anyway.
const FILTER_KEYS_MAX: usize = 65_536;

/// Why a pass over the keys ended early.
pub(super) enum Stop {
    /// More keys than the memory allows.
    Full,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Offers every row of the prefix to `set`, newest SSTable first within a shard, and returns the
/// addresses of the live winners, one bitmap a source.
pub(super) async fn find(
    sources: &[Source],
    key: &[(String, i32)],
    encoder: &Encoder,
    limits: ScanLimits,
    set: &mut KeySet,
    filter: &mut Filter,
) -> Result<Vec<RoaringTreemap>, Stop> {
    let mut winners = vec![RoaringTreemap::new(); sources.len()];
    let scans = sources.iter().enumerate().rev().map(|(index, source)| {
        let scan = source.scan_keys(key, limits)?;
        Ok(scan.map_ok(move |batch| (index, batch)).boxed())
    });
    let mut batches = ahead(scans.collect::<Result<Vec<_>>>()?);
    let mut current = None;
    while let Some((index, batch)) = batches.try_next().await? {
        let since = match current {
            Some((at, since)) if at == index => since,
            _ => set.begin(index),
        };
        current = Some((index, since));
        offer(&batch, encoder, set, since, &mut winners[index], filter)?;
    }
    Ok(winners)
}

fn offer(
    batch: &RecordBatch,
    encoder: &Encoder,
    set: &mut KeySet,
    since: u32,
    winners: &mut RoaringTreemap,
    filter: &mut Filter,
) -> Result<(), Stop> {
    let keys = encoder.encode(batch)?;
    let addresses = addresses(batch)?;
    let tombstones = batch.column_by_name(TOMBSTONE).map(|c| c.as_boolean());
    for (row, address) in addresses.iter().copied().enumerate() {
        let dead = tombstones.is_some_and(|t| t.is_valid(row) && t.value(row));
        match set.offer(&keys, row, address, dead, since).map_err(|Full| Stop::Full)? {
            Offer::Passed => continue,
            Offer::Newest => {}
            Offer::Replaces(before) => {
                winners.remove(before);
            }
        }
        if !dead {
            winners.insert(address);
            filter.add(batch, row)?;
        }
    }
    Ok(())
}

/// The keys this pass may insert, for Lance's conflict check: a concurrent commit that inserts one
/// of them makes ours retry instead of leaving two rows of a key.
pub(super) struct Filter {
    columns: Vec<String>,
    builder: KeyExistenceFilterBuilder,
    keys: usize,
}

impl Filter {
    pub(super) fn new(key: &[(String, i32)]) -> Self {
        Self {
            columns: key.iter().map(|(name, _)| name.clone()).collect(),
            builder: KeyExistenceFilterBuilder::new(key.iter().map(|(_, id)| *id).collect()),
            keys: 0,
        }
    }

    fn add(&mut self, batch: &RecordBatch, row: usize) -> Result<()> {
        self.keys += 1;
        if self.keys <= FILTER_KEYS_MAX {
            match extract_key_value_from_batch(batch, row, &self.columns) {
                Some(value) => self.builder.insert(value)?,
                // A type the filter has no form for: be as careful as with too many keys.
                None => self.keys = FILTER_KEYS_MAX + 1,
            }
        }
        Ok(())
    }

    pub(super) fn build(&self) -> KeyExistenceFilter {
        let mut filter = self.builder.build();
        if self.keys > FILTER_KEYS_MAX
            && let FilterType::Bloom { bitmap, .. } = &mut filter.filter
        {
            bitmap.fill(0xff);
        }
        filter
    }
}

/// What probing the base found.
#[derive(Default)]
pub(super) struct Matches {
    /// Addresses of base rows whose key the pass touches: they go, replaced or deleted.
    pub(super) gone: RoaringTreemap,
    /// Of these, rows that a tombstone deletes.
    pub(super) deleted: u64,
    /// With stable row ids: (address in the SSTable, row id in the base) of each replaced row.
    pub(super) kept_ids: Vec<(u32, u64)>,
}

/// Scans the key columns of the base and matches them with `set`. The base is streamed: memory
/// follows the pass, not the table.
pub(super) async fn probe(
    dataset: &lance::Dataset,
    key: &[(String, i32)],
    encoder: &Encoder,
    limits: ScanLimits,
    set: &mut KeySet,
    matches: &mut Matches,
) -> Result<()> {
    let stable = dataset.manifest().uses_stable_row_ids();
    let paths: Vec<String> = key.iter().map(|(n, _)| lance_core::datatypes::format_field_path_minimal(&[n])).collect();
    let mut scanner = dataset.scan();
    scanner.project(&paths)?.with_row_address();
    if stable {
        scanner.with_row_id();
    }
    limits.apply(&mut scanner, 64);
    scanner.fragment_readahead(4);
    let mut batches = ahead([scanner.try_into_stream().await?.map_err(Error::from).boxed()]);
    while let Some(batch) = batches.try_next().await? {
        let keys = encoder.encode(&batch)?;
        let addresses = addresses(&batch)?;
        let ids = batch.column_by_name(lance_core::ROW_ID).map(|c| c.as_primitive::<arrow_array::types::UInt64Type>());
        for (row, address) in addresses.iter().copied().enumerate() {
            let Some(slot) = set.match_base(&keys, row) else { continue };
            matches.gone.insert(address);
            if set.is_tombstone(slot) {
                matches.deleted += 1;
            } else if let (true, Some(ids)) = (stable, ids) {
                matches.kept_ids.push((slot, ids.value(row)));
            }
        }
    }
    Ok(())
}
