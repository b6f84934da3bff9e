//! What happens to fragments and indexes.

use alloc::{collections::BTreeSet, string::String, vec::Vec};

use crate::decision::compaction::left_of;
use crate::facts::{FragmentFacts, TableFacts, total};
use crate::job::{IndexOp, SsTableId};
use crate::pick::rewrite;

/// Types whose entries a compaction withdraws when it remaps in its own commit.
const WITHDRAWN: [&str; 4] = ["zonemap", "bloom_filter", "rtree", "fm"];

/// Fragments that the model makes of one task at most.
const OUTPUTS_MAX: u64 = 1 << 16;

/// The folded rows become a fragment that no index covers, where they are counted.
pub(super) fn fold(facts: &mut TableFacts, shard: &str, sstables: &[SsTableId], now_ms: u64) {
    let listed = facts.shards.iter().filter(|s| s.shard == shard).flat_map(|s| &s.sstables);
    let folded: Vec<_> = listed.filter(|s| sstables.contains(&s.id())).collect();
    let Some(rows) = total(folded.iter().map(|s| s.rows)).filter(|rows| *rows > 0) else { return };
    let bytes = total(folded.iter().map(|s| s.bytes));
    moved_in(facts, &Moved { rows, bytes }, now_ms);
}

/// Rows that come into the base in one file.
pub(super) struct Moved {
    pub(super) rows: u64,
    pub(super) bytes: Option<u64>,
}

/// A fragment more, that no index covers; its id, where fragments are measured.
pub(super) fn moved_in(facts: &mut TableFacts, moved: &Moved, now_ms: u64) -> Option<u64> {
    let Moved { rows, bytes } = *moved;
    let id = facts.fragments.as_mut().map(|fragments| {
        let id = fragments.last().map_or(0, |f| f.id.saturating_add(1));
        fragments.push(FragmentFacts { id, rows, deleted: Some(0), bytes, ..FragmentFacts::default() });
        id
    });
    facts.rows = facts.rows.map(|all| all.saturating_add(rows));
    for index in &mut facts.indexes {
        index.unindexed_rows = index.unindexed_rows.map(|all| all.saturating_add(rows));
        index.unindexed_since_ms = index.unindexed_since_ms.or(Some(now_ms));
    }
    id
}

pub(super) fn index(facts: &mut TableFacts, names: &[String], op: IndexOp) {
    for index in facts.indexes.iter_mut().filter(|index| names.contains(&index.name)) {
        let extends = index.unindexed_rows != Some(0);
        index.segments = index.segments.map(|segments| match op {
            IndexOp::Append => segments.saturating_add(u64::from(extends)),
            IndexOp::Merge | IndexOp::Reindex => 1,
        });
        index.unindexed_rows = index.unindexed_rows.map(|_| 0);
        index.unindexed_since_ms = None;
        index.withdrawn &= op != IndexOp::Reindex;
    }
}

/// Lance gives what comes out new ids, so it stands at the end of the table.
pub(super) fn compact(facts: &mut TableFacts, tasks: &[Vec<u64>], deferred: bool, target_rows: u64, now_ms: u64) {
    let Some(fragments) = &mut facts.fragments else { return };
    let mut id = fragments.iter().map(|f| f.id).max().unwrap_or(0);
    let (mut gone, mut made, mut covered) = (BTreeSet::new(), Vec::new(), false);
    for task in tasks {
        let find = |id: &u64| fragments.binary_search_by_key(id, |f| f.id).ok().map(|at| fragments[at]);
        let Some(taken) = task.iter().map(find).collect::<Option<Vec<_>>>() else { continue };
        gone.extend(taken.iter().map(|f| f.id));
        covered |= taken.iter().any(|f| f.coverage != 0);
        for fragment in rewritten(&taken, target_rows) {
            id = id.saturating_add(1);
            made.push(FragmentFacts { id, ..fragment });
        }
    }
    fragments.retain(|f| !gone.contains(&f.id));
    fragments.extend(made);
    if deferred {
        let remap = facts.remap.get_or_insert_default();
        remap.rewrites = remap.rewrites.saturating_add(1);
        remap.oldest_at_ms = remap.oldest_at_ms.or(Some(now_ms));
        remap.indexes = facts.indexes.iter().map(|index| index.name.clone()).collect();
    } else if covered {
        facts.indexes.iter_mut().for_each(|index| index.withdrawn |= WITHDRAWN.contains(&&*index.kind));
    }
}

/// Rows and bytes spread evenly, as Lance does.
fn rewritten(taken: &[FragmentFacts], target_rows: u64) -> impl Iterator<Item = FragmentFacts> {
    let rows = taken.iter().map(rewrite::live).fold(0, u64::saturating_add);
    let bytes = total(taken.iter().map(|f| Some(left_of(f.bytes?, f))));
    let many = rewrite::outputs(rows, target_rows).min(OUTPUTS_MAX);
    let coverage = taken.first().map_or(0, |f| f.coverage);
    let part = move |all: u64, nth: u64| all / many + u64::from(nth < all % many);
    (0..many).map(move |nth| FragmentFacts {
        rows: part(rows, nth),
        deleted: Some(0),
        bytes: bytes.map(|bytes| part(bytes, nth)),
        coverage,
        ..FragmentFacts::default()
    })
}
