//! The base as its manifest has it: fragments, index segments, rewrites that wait for a remap.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lance::Dataset;
use lance::index::frag_reuse::load_frag_reuse_index_details;
use lance_table::format::{Fragment, IndexMetadata};
use lance_table::io::manifest::read_manifest_indexes;
use lance_table::system_index::frag_reuse::{FRAG_REUSE_INDEX_NAME, FragReuseIndexDetails, FragReuseVersion};
use lance_table::system_index::is_system_index;
use planner::facts::{FragmentFacts, RemapFacts};
use roaring::RoaringBitmap;
use uuid::Uuid;

use crate::error::{Doing, Result};
use crate::table::Table;

/// Keys of a table's config that concern its maintenance.
const OVERRIDES: [&str; 3] = ["caretaker.", "lance.compaction.", "lance.auto_cleanup."];

/// The config keys that the planner reads a table's own policy from.
pub(crate) fn overrides(dataset: &Dataset) -> BTreeMap<String, String> {
    let config = dataset.manifest().config.iter();
    let ours = config.filter(|(key, _)| OVERRIDES.iter().any(|prefix| key.starts_with(prefix)));
    ours.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The index segments as the manifest lists them, before Lance translates what they cover.
pub(super) async fn segments(table: &Table) -> Result<Vec<IndexMetadata>> {
    let (store, location) = (table.store(), table.dataset.manifest_location());
    let read = read_manifest_indexes(&store, location, table.dataset.manifest()).await;
    read.doing(|| format!("reading the indexes of `{}`", table.name))
}

/// Every fragment, in the table's order. `readable` are the segments as Lance sees them, rewrites that
/// wait for a remap applied: what they cover is what its compaction groups by.
pub(super) fn fragments(dataset: &Dataset, raw: &[IndexMetadata], readable: &[IndexMetadata]) -> Vec<FragmentFacts> {
    let fragments = &dataset.manifest().fragments;
    let mut facts: Vec<FragmentFacts> = fragments.iter().map(fragment).collect();
    // Each segment splits the groups that the segments before it left.
    let mut next = 0;
    for covered in bitmaps(readable) {
        let mut split = HashMap::new();
        for facts in facts.iter_mut().filter(|f| contains(covered, f.id)) {
            facts.coverage = *split.entry(facts.coverage).or_insert_with(|| {
                next += 1;
                next
            });
        }
    }
    // Of a segment from before Lance recorded what one covers, or of a type this build can't read, nobody
    // knows what a rewrite would do to it.
    let blind = readable.iter().any(|s| !is_system_index(s) && s.fragment_bitmap.is_none());
    // A clone's segments of its source: Lance looks for what a rewrite makes of them where the source lies.
    let foreign = |s: &IndexMetadata| s.base_id.is_some();
    let unread = |s: &IndexMetadata| !readable.iter().any(|r| r.uuid == s.uuid);
    let kept: Vec<_> = raw.iter().filter(|s| foreign(s) || unread(s)).flat_map(|s| bitmaps([s])).collect();
    for facts in &mut facts {
        facts.excluded |= blind || kept.iter().any(|covered| contains(covered, facts.id));
    }
    facts
}

/// What the segments cover that have a user's index behind them.
fn bitmaps<'a>(segments: impl IntoIterator<Item = &'a IndexMetadata>) -> impl Iterator<Item = &'a RoaringBitmap> {
    segments
        .into_iter()
        .filter(|segment| !is_system_index(segment))
        .filter_map(|segment| segment.fragment_bitmap.as_ref())
}

fn contains(covered: &RoaringBitmap, fragment: u64) -> bool {
    u32::try_from(fragment).is_ok_and(|id| covered.contains(id))
}

fn fragment(fragment: &Fragment) -> FragmentFacts {
    let bytes = fragment.files.iter().map(|file| file.file_size_bytes.get().map(u64::from));
    FragmentFacts {
        id: fragment.id,
        rows: fragment.physical_rows.unwrap_or_default() as u64,
        deleted: match &fragment.deletion_file {
            None => Some(0),
            Some(file) => file.num_deleted_rows.map(|rows| rows as u64),
        },
        bytes: bytes.sum(),
        coverage: 0,
        // Files from before Lance counted rows: nothing can be foretold of their rewrite.
        excluded: fragment.physical_rows.is_none(),
    }
}

/// What the fragment reuse index holds, and which indexes still need it.
pub(super) async fn remap(table: &Table, segments: &[IndexMetadata]) -> Result<RemapFacts> {
    let Some((reuse, details)) = rewrites(table, segments).await? else { return Ok(RemapFacts::default()) };
    let touched: RoaringBitmap = details
        .versions
        .iter()
        .flat_map(|version| version.old_frag_ids().into_iter().chain(version.new_frag_ids()))
        .filter_map(|id| u32::try_from(id).ok())
        .collect();
    let needs = |segment: &&IndexMetadata| details.versions.iter().any(|version| needs(segment, version, &touched));
    let mut indexes: Vec<String> = segments.iter().filter(needs).map(|segment| segment.name.clone()).collect();
    indexes.sort_unstable();
    indexes.dedup();
    let oldest = details.versions.iter().map(|version| version.dataset_version).min();
    Ok(RemapFacts {
        rewrites: details.versions.len() as u64,
        oldest_at_ms: recorded_at(table, oldest, reuse).await,
        indexes,
    })
}

/// Whether a segment keeps a rewrite on the list, by the rule that Lance trims it by: it covers
/// something that was rewritten, and is older than that or still covers what was there before.
fn needs(segment: &IndexMetadata, version: &FragReuseVersion, touched: &RoaringBitmap) -> bool {
    let covers = segment.fragment_bitmap.as_ref();
    if is_system_index(segment) || covers.is_some_and(|covers| covers.is_disjoint(touched)) {
        return false;
    }
    let old = || version.old_frag_ids().into_iter().filter_map(|id| u32::try_from(id).ok());
    segment.dataset_version <= version.dataset_version
        || covers.is_some_and(|covers| old().any(|id| covers.contains(id)))
}

/// The segments of these indexes and what each covers.
pub(crate) async fn segments_of(table: &Table, names: &[String]) -> Result<Vec<(Uuid, Option<RoaringBitmap>)>> {
    let segments = segments(table).await?;
    Ok(segments.into_iter().filter(|s| names.contains(&s.name)).map(|s| (s.uuid, s.fragment_bitmap)).collect())
}

/// The versions of the base whose rewrites are on the list.
pub(crate) async fn listed_rewrites(table: &Table) -> Result<Vec<u64>> {
    let segments = segments(table).await?;
    let listed = rewrites(table, &segments).await?;
    Ok(listed.iter().flat_map(|(_, details)| &details.versions).map(|version| version.dataset_version).collect())
}

async fn rewrites<'a>(
    table: &Table,
    segments: &'a [IndexMetadata],
) -> Result<Option<(&'a IndexMetadata, Arc<FragReuseIndexDetails>)>> {
    let Some(reuse) = segments.iter().find(|s| s.name == FRAG_REUSE_INDEX_NAME) else { return Ok(None) };
    let details = load_frag_reuse_index_details(&table.dataset, reuse).await;
    let details = details.doing(|| format!("reading the fragment reuse index of `{}`", table.name))?;
    Ok(Some((reuse, details)))
}

/// When the rewrite of base version `oldest` was recorded. That version may be cleaned up by now: then
/// the list's own last change is the best that is known.
async fn recorded_at(table: &Table, oldest: Option<u64>, reuse: &IndexMetadata) -> Option<u64> {
    let written = match oldest {
        Some(version) => table.dataset.checkout_version(version).await.ok().map(|at| at.manifest().timestamp()),
        None => None,
    };
    u64::try_from(written.or(reuse.created_at)?.timestamp_millis()).ok()
}
