use alloc::{collections::BTreeSet, format, vec::Vec};

use super::{Found, Rule, Violation};
use crate::facts::{ShardFacts, ShardStatus, TableFacts};

/// Whether jobs, and writers beside them, may have turned `before` into `after` (R2.10, R2.13).
///
/// # Errors
/// Every violation.
pub fn after(before: &TableFacts, after: &TableFacts) -> Result<(), Vec<Violation>> {
    let mut found = Found::default();
    if after.version < before.version {
        down(&mut found, "the base version", before.version, after.version);
    }
    for old in &before.shards {
        match after.shards.iter().find(|s| s.shard == old.shard) {
            Some(new) => shard(&mut found, before, after, old, new),
            None if old.status == ShardStatus::Sealed || old.unfolded().is_empty() => {}
            None => {
                let what = format!("shard `{}` is gone with SSTables that were not folded", old.shard);
                found.add(Rule::Vanished, what);
            }
        }
    }
    found.result()
}

fn shard(found: &mut Found, before: &TableFacts, after: &TableFacts, old: &ShardFacts, new: &ShardFacts) {
    let id = &old.shard;
    let folded = new.compacted_generation;
    if folded < old.compacted_generation {
        let what = format!("shard `{id}`: the folded generation");
        down(found, &what, old.compacted_generation, folded);
    }
    if new.manifest_version < old.manifest_version {
        let what = format!("shard `{id}`: the manifest version");
        down(found, &what, old.manifest_version, new.manifest_version);
    }
    let still: BTreeSet<_> = new.sstables.iter().map(|s| s.id()).collect();
    for gone in old.sstables.iter().filter(|s| !still.contains(&s.id())) {
        let generation = gone.generation;
        if generation > folded {
            found.add(
                Rule::Vanished,
                format!("shard `{id}`: generation {generation} left the list, but only {folded} is folded"),
            );
        }
        // An index that was made, or made anew, after the SSTable left can't be asked about it.
        for index in after.indexes.iter().filter(|i| before.indexes.iter().any(|b| b.name == i.name)) {
            let covers = new.covered_by(&index.name);
            if covers < generation && covers >= old.covered_by(&index.name) {
                found.add(
                    Rule::NotCovered,
                    format!(
                        "shard `{id}`: generation {generation} left the list, but index `{}` covers {covers}",
                        index.name
                    ),
                );
            }
        }
    }
}

fn down(found: &mut Found, what: &str, from: u64, to: u64) {
    found.add(Rule::WentDown, format!("{what} went down from {from} to {to}"));
}
