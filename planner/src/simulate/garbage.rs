//! Garbage that no plan would do anything with now: it is set aside, as planning looks at each file.

use alloc::{collections::VecDeque, vec, vec::Vec};

use crate::facts::{GarbageFacts, GarbageKind, ShardFacts, TableFacts};

/// What is set aside, by shard.
pub(super) struct Garbage {
    /// SSTables that a retained version needs, by generation.
    kept: Vec<Vec<GarbageFacts>>,
    /// Files within their grace, oldest first.
    young: Vec<VecDeque<GarbageFacts>>,
    /// Bytes of all of them.
    pub(super) bytes: u64,
}

impl Garbage {
    pub(super) fn new(shards: usize) -> Self {
        Self { kept: vec![Vec::new(); shards], young: vec![VecDeque::new(); shards], bytes: 0 }
    }

    /// What a log held is replayed no more. Its newest entry stays among the facts: it is never deleted.
    pub(super) fn log(&mut self, shard: usize, facts: &mut ShardFacts, entry: GarbageFacts) {
        let garbage = facts.garbage.get_or_insert_default();
        let newest = garbage.iter().enumerate().filter(|(_, file)| file.kind == GarbageKind::WalEntry);
        if let Some((at, _)) = newest.max_by_key(|(_, file)| file.position) {
            let before = garbage.swap_remove(at);
            self.bytes = self.bytes.saturating_add(before.bytes);
            self.young[shard].push_back(before);
        }
        garbage.push(entry);
    }

    /// Sets SSTables aside that have just left the list, and takes back what no version needs any more.
    pub(super) fn keep(&mut self, facts: &mut TableFacts, now_ms: u64) {
        for (at, shard) in facts.shards.iter_mut().enumerate() {
            let retained = shard.retained_generation.unwrap_or(0);
            let kept = &mut self.kept[at];
            let needed = |file: &GarbageFacts| file.kind == GarbageKind::SsTable && file.position > retained;
            let garbage = shard.garbage.get_or_insert_default();
            if garbage.iter().any(needed) {
                let (more, rest): (Vec<_>, Vec<_>) = core::mem::take(garbage).into_iter().partition(needed);
                self.bytes = more.iter().map(|file| file.bytes).fold(self.bytes, u64::saturating_add);
                kept.extend(more);
                *garbage = rest;
            }
            // Those that have just left the list, and that no version needs.
            let (rest, young) = (core::mem::take(garbage), &mut self.young[at]);
            for file in rest {
                let fresh = file.kind == GarbageKind::SsTable && file.since_ms == Some(now_ms);
                if fresh {
                    self.bytes = self.bytes.saturating_add(file.bytes);
                    young.push_back(file);
                } else {
                    garbage.push(file);
                }
            }
            let free = kept.iter().take_while(|file| file.position <= retained).count();
            let bytes = kept[..free].iter().map(|file| file.bytes).fold(0, u64::saturating_add);
            self.bytes = self.bytes.saturating_sub(bytes);
            garbage.extend(kept.drain(..free));
        }
    }

    /// A walk finds what is past its grace, and the oldest file that is not: of the others it would say the
    /// same.
    pub(super) fn surface(&mut self, facts: &mut TableFacts, grace_ms: u64, now_ms: u64) {
        for (shard, young) in facts.shards.iter_mut().zip(&mut self.young) {
            let garbage = shard.garbage.get_or_insert_default();
            let newest =
                garbage.iter().filter(|file| file.kind == GarbageKind::WalEntry).map(|file| file.position).max();
            let waits = |file: &GarbageFacts| {
                let is_newest = file.kind == GarbageKind::WalEntry && Some(file.position) == newest;
                !is_newest && file.since_ms.is_some_and(|at| now_ms.saturating_sub(at) < grace_ms)
            };
            let mut waiting = garbage.iter().any(waits);
            while let Some(file) = young.pop_front_if(|_| !waiting) {
                waiting = waits(&file);
                self.bytes = self.bytes.saturating_sub(file.bytes);
                garbage.push(file);
            }
        }
    }

    /// All that was set aside is garbage like any other.
    pub(super) fn show(&mut self, facts: &mut TableFacts) {
        for (at, shard) in facts.shards.iter_mut().enumerate() {
            let garbage = shard.garbage.get_or_insert_default();
            garbage.append(&mut self.kept[at]);
            garbage.extend(self.young[at].drain(..));
        }
        self.bytes = 0;
    }
}
