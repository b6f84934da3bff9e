use alloc::{collections::BTreeSet, format, vec::Vec};
use core::fmt::Display;

use super::{Found, Rule, Violation};
use crate::facts::{ShardFacts, TableFacts};

/// Whether facts can be true.
///
/// # Errors
/// Every violation. Facts that fail must not be planned from: a generation counted twice or an index
/// that claims too much could let an SSTable go whose rows are nowhere else.
pub fn facts(facts: &TableFacts) -> Result<(), Vec<Violation>> {
    let mut found = Found::default();
    unique(&mut found, "shard", facts.shards.iter().map(|s| &s.shard));
    unique(&mut found, "index", facts.indexes.iter().map(|i| &i.name));
    unique(&mut found, "key column", facts.primary_key.iter());
    for pair in facts.fragments.iter().flat_map(|fragments| fragments.windows(2)) {
        if pair[0].id >= pair[1].id {
            found.add(Rule::Unique, format!("fragment {} does not stand above {}", pair[1].id, pair[0].id));
        }
    }
    for fragment in facts.fragments.iter().flatten() {
        if let Some(deleted) = fragment.deleted.filter(|deleted| *deleted > fragment.rows) {
            let what = format!("fragment {}: {deleted} of {} rows are deleted", fragment.id, fragment.rows);
            found.add(Rule::Deleted, what);
        }
    }
    for shard in &facts.shards {
        check_shard(&mut found, facts, shard);
    }
    found.result()
}

fn check_shard(found: &mut Found, facts: &TableFacts, shard: &ShardFacts) {
    let id = &shard.shard;
    unique(found, format!("shard `{id}`: generation"), shard.sstables.iter().map(|s| s.generation));
    unique(found, format!("shard `{id}`: SSTable"), shard.sstables.iter().map(|s| &s.path));
    if shard.sstables.iter().any(|s| s.generation == 0) {
        found.add(Rule::Unique, format!("shard `{id}`: generation 0 would count as folded; generations begin at 1"));
    }
    for index in &facts.indexes {
        let (covers, folded) = (shard.covered_by(&index.name), shard.compacted_generation);
        if covers > folded {
            found.add(
                Rule::CoversUnfolded,
                format!("shard `{id}`: index `{}` claims generation {covers}, but only {folded} is folded", index.name),
            );
        }
    }
    let garbage = shard.garbage.as_deref().unwrap_or_default();
    unique(found, format!("shard `{id}`: garbage"), garbage.iter().map(|g| &g.path));
    let listed: BTreeSet<&str> = shard.sstables.iter().map(|s| s.path.as_str()).collect();
    for file in garbage.iter().filter(|g| listed.contains(g.path.as_str())) {
        found.add(Rule::ListedGarbage, format!("shard `{id}`: `{}` is both listed and garbage", file.path));
    }
}

fn unique<T: Ord + Display>(found: &mut Found, what: impl Display, items: impl Iterator<Item = T>) {
    let mut seen = BTreeSet::new();
    for item in items {
        if seen.contains(&item) {
            found.add(Rule::Unique, format!("{what} `{item}` occurs twice"));
        }
        seen.insert(item);
    }
}
