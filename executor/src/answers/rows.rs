//! The rows before a commit and after it.

use std::collections::HashMap;

use arrow_array::ArrayRef;
use futures::TryStreamExt;
use lance_core::datatypes::format_field_path_minimal;
use lance_table::format::Fragment;

use super::digest::{self, Digest, RowHasher, scan};
use crate::error::{Error, Result};
use crate::run::fold::Newest;
use crate::table::Table;

/// Compares the rows of the version that a commit made with those of the one before it, and returns
/// how many were compared. Fragments that the commit left as they were are equal by their metadata.
///
/// A rewrite has the same rows. A fold has `newest` in the place of the rows of their keys, and none
/// of these keys is left in a fragment that it did not touch.
///
/// # Errors
/// `Mismatch`; whatever keeps the rows from being read.
pub(super) async fn committed(before: &Table, after: &Table, newest: Option<&Newest>) -> Result<u64> {
    let (old, new) = (&before.dataset.manifest().fragments, &after.dataset.manifest().fragments);
    let known: HashMap<u64, &Fragment> = old.iter().map(|f| (f.id, f)).collect();
    let (kept, added): (Vec<_>, Vec<_>) = new.iter().cloned().partition(|f| known.get(&f.id).is_some_and(|k| *k == f));
    let stays: HashMap<u64, ()> = kept.iter().map(|f| (f.id, ())).collect();
    let gone = old.iter().filter(|f| !stays.contains_key(&f.id)).cloned().collect();
    let (expected, found) = match newest {
        None => (digest::of(&before.dataset, gone).await?, digest::of(&after.dataset, added).await?),
        Some(newest) => {
            untouched(after, kept, newest).await?;
            let mut expected = sampled(before, gone, newest, true).await?;
            newest.live().for_each(|row| expected.add(row));
            (expected, sampled(after, added, newest, false).await?)
        }
    };
    if expected == found {
        return Ok(found.rows);
    }
    let (was, version) = (before.version(), after.version());
    Err(Error::Mismatch(match expected.rows == found.rows {
        true => format!("version {version} has other rows than version {was} should have become"),
        false => format!(
            "version {version} has {} rows where version {was} should have become {}",
            found.rows, expected.rows
        ),
    }))
}

/// The digest of the rows whose keys are in the sample of a fold; without those that it replaces.
async fn sampled(table: &Table, fragments: Vec<Fragment>, newest: &Newest, without: bool) -> Result<Digest> {
    let (mut digest, mut rows, mut keys) = (Digest::default(), RowHasher::default(), RowHasher::default());
    let key = table.primary_key();
    let mut batches = scan(&table.dataset, fragments, None);
    while let Some(batch) = batches.try_next().await? {
        let columns = key.iter().filter_map(|name| batch.column_by_name(name).cloned()).collect::<Vec<ArrayRef>>();
        let rows = rows.hashes(batch.columns())?;
        for (key, row) in keys.hashes(&columns)?.into_iter().zip(rows) {
            if newest.samples(key) && !(without && newest.holds(key)) {
                digest.add(row);
            }
        }
    }
    Ok(digest)
}

async fn untouched(table: &Table, fragments: Vec<Fragment>, newest: &Newest) -> Result<()> {
    if fragments.is_empty() {
        return Ok(());
    }
    let columns: Vec<String> = table.primary_key().iter().map(|name| format_field_path_minimal(&[name])).collect();
    let mut hasher = RowHasher::default();
    let mut batches = scan(&table.dataset, fragments, Some(columns));
    while let Some(batch) = batches.try_next().await? {
        if hasher.hashes(batch.columns())?.into_iter().any(|key| newest.holds(key)) {
            return Err(Error::Mismatch(format!(
                "version {} still has the old row of a key that was folded",
                table.version()
            )));
        }
    }
    Ok(())
}
