//! What lies on storage: versions of the base, and the files that only old ones need.

use alloc::{collections::BTreeMap, collections::VecDeque, string::String, vec::Vec};

use crate::facts::TableFacts;

/// Versions of the same age.
struct Versions {
    /// The newest of them.
    last: u64,
    many: u64,
    at_ms: u64,
}

/// Storage, beside what the facts say of it.
pub(super) struct Disk {
    versions: VecDeque<Versions>,
    /// Files that versions up to this one need, oldest first, and their bytes.
    old: VecDeque<(u64, u64)>,
    pub(super) old_bytes: u64,
    /// Bytes of each index.
    pub(super) indexes: BTreeMap<String, u64>,
    /// By shard: from which version on the base records which generation.
    folded: Vec<VecDeque<(u64, u64)>>,
}

impl Disk {
    pub(super) fn new(facts: &TableFacts, index_row_bytes: u64, now_ms: u64) -> Self {
        let many = facts.versions.unwrap_or(1).clamp(1, facts.version.max(1));
        let rows = facts.live_rows().unwrap_or(0);
        let bytes = |unindexed: u64| rows.saturating_sub(unindexed).saturating_mul(index_row_bytes);
        let indexes = facts.indexes.iter().map(|i| (i.name.clone(), bytes(i.unindexed_rows.unwrap_or(0))));
        let retained =
            |shard: &crate::facts::ShardFacts| shard.retained_generation.unwrap_or(shard.compacted_generation);
        Self {
            // How old versions are that were there before, nobody knows: as old as the start.
            versions: [Versions { last: facts.version, many, at_ms: now_ms }].into(),
            old: VecDeque::new(),
            old_bytes: 0,
            indexes: indexes.collect(),
            folded: facts
                .shards
                .iter()
                .map(|shard| [(0, retained(shard)), (facts.version, shard.compacted_generation)].into())
                .collect(),
        }
    }

    /// The base has a version more, or several.
    pub(super) fn commit(&mut self, facts: &mut TableFacts, now_ms: u64) {
        let before = self.versions.back().map_or(0, |versions| versions.last);
        self.versions.push_back(Versions {
            last: facts.version,
            many: facts.version.saturating_sub(before),
            at_ms: now_ms,
        });
        for (folded, shard) in self.folded.iter_mut().zip(&facts.shards) {
            if folded.back().is_none_or(|(_, generation)| *generation != shard.compacted_generation) {
                folded.push_back((facts.version, shard.compacted_generation));
            }
        }
        self.retain(facts);
    }

    /// Files that the newest version does not need any more.
    pub(super) fn leave(&mut self, version: u64, bytes: u64) {
        self.old_bytes = self.old_bytes.saturating_add(bytes);
        match self.old.back_mut() {
            Some((last, more)) if *last == version => *more = more.saturating_add(bytes),
            _ => self.old.push_back((version, bytes)),
        }
    }

    /// Removes versions that are old enough, and the files that only they needed. The newest one stays.
    pub(super) fn cleanup(&mut self, facts: &mut TableFacts, min_age_ms: u64, retain: u64, now_ms: u64) {
        let mut left = self.count();
        while self.versions.len() > 1 {
            let Some(oldest) = self.versions.front() else { break };
            if now_ms.saturating_sub(oldest.at_ms) < min_age_ms || left.saturating_sub(oldest.many) < retain.max(1) {
                break;
            }
            left = left.saturating_sub(oldest.many);
            self.versions.pop_front();
        }
        let oldest = self.oldest();
        while let Some((_, bytes)) = self.old.front().copied().filter(|(last, _)| *last < oldest) {
            self.old_bytes = self.old_bytes.saturating_sub(bytes);
            self.old.pop_front();
        }
        self.retain(facts);
    }

    fn oldest(&self) -> u64 {
        self.versions.front().map_or(0, |oldest| oldest.last.saturating_sub(oldest.many.saturating_sub(1)))
    }

    fn count(&self) -> u64 {
        self.versions.iter().fold(0, |sum, versions| sum.saturating_add(versions.many))
    }

    /// Writes down what is retained.
    fn retain(&mut self, facts: &mut TableFacts) {
        let oldest = self.oldest();
        facts.versions = Some(facts.version.saturating_sub(oldest).saturating_add(1));
        for (folded, shard) in self.folded.iter_mut().zip(&mut facts.shards) {
            while folded.get(1).is_some_and(|(version, _)| *version <= oldest) {
                folded.pop_front();
            }
            shard.retained_generation = folded.front().map(|(_, generation)| *generation);
        }
    }
}
