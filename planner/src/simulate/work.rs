//! What a job costs, and what it does to the table.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use super::base::{self, Moved};
use super::disk::Disk;
use super::garbage::Garbage;
use super::rows::{Newest, Skew, Written, share};
use super::series::State;
use super::workload::Workload;
use crate::decision::compaction::left_of;
use crate::facts::{FragmentFacts, GarbageKind, ShardFacts, SsTableFacts, TableFacts};
use crate::job::{IndexOp, JobSpec, SsTableId};
use crate::pick::rewrite;
use crate::policy::Policy;

/// Rows of a file that a writer begins a new one after: Lance's `max_rows_per_file`.
const FILE_ROWS: u64 = 1 << 20;

/// Fragments that one commit makes at most.
const FILES_MAX: u64 = 1_000;

/// What an attempt costs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) ms: u64,
}

/// What is known of an SSTable beside its facts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extra {
    pub(super) generation: u64,
    /// When its oldest row came, milliseconds since the epoch.
    pub(super) first_ms: u64,
    pub(super) written: Written,
}

/// A table in motion.
pub(super) struct World {
    pub(super) workload: Workload,
    pub(super) facts: TableFacts,
    pub(super) disk: Disk,
    /// By shard, oldest first: the SSTables that are not folded.
    pub(super) unfolded: Vec<Vec<Extra>>,
    pub(super) garbage: Garbage,
    /// Of fragments and indexes, as they were counted last.
    base_bytes: u64,
    /// By shard: the newest generation, and the newest entry of its log.
    newest: Vec<(u64, u64)>,
    /// Rows of hot keys by fragment.
    hot: BTreeMap<u64, u64>,
    /// By number of a set of index segments: the segment of each index, 0 for none.
    sets: BTreeMap<u32, Vec<u32>>,
    last_segment: u32,
    /// The base has changed: what was counted of it is old.
    pub(super) changed: bool,
    /// There are other SSTables.
    pub(super) flushed: bool,
}

impl World {
    pub(super) fn new(workload: &Workload, facts: TableFacts, start_ms: u64) -> Self {
        let unfolded = facts.shards.iter().map(|shard| {
            let extra = |sstable: &&SsTableFacts| Extra {
                generation: sstable.generation,
                first_ms: sstable.flushed_at_ms.unwrap_or(start_ms),
                written: written(sstable, workload),
            };
            shard.unfolded().iter().map(extra).collect()
        });
        let hot = |rows| share(rows, workload.hot_keys_permille, 1_000);
        let fragments = facts.fragments.as_deref().unwrap_or_default();
        let sets = fragments.iter().map(|f| (f.coverage, alloc::vec![f.coverage; facts.indexes.len()]));
        Self {
            workload: workload.clone(),
            disk: Disk::new(&facts, workload.index_row_bytes, start_ms),
            unfolded: unfolded.collect(),
            garbage: Garbage::new(facts.shards.len()),
            base_bytes: 0,
            newest: facts.shards.iter().map(newest).collect(),
            flushed: true,
            hot: fragments.iter().map(|f| (f.id, hot(f.rows.saturating_sub(f.deleted.unwrap_or(0))))).collect(),
            sets: sets.collect(),
            last_segment: fragments.iter().map(|f| f.coverage).max().unwrap_or(0),
            changed: true,
            facts,
        }
    }

    fn skew(&self) -> Skew {
        let Workload { hot_update_permille, hot_keys_permille, .. } = self.workload;
        Skew { hot_update_permille, hot_keys_permille }
    }

    /// What rows become when they go into the base, of one of `writers` equal parts of it.
    pub(super) fn newest(&self, written: Written, writers: u64) -> Newest {
        let rows = self.facts.live_rows().unwrap_or(0);
        written.newest(rows / writers.max(1), self.skew())
    }

    /// Rows of a prefix of a shard's SSTables, by what they do.
    fn prefix(&self, shard: &str, sstables: &[SsTableId]) -> Written {
        let Some(at) = self.facts.shards.iter().position(|s| s.shard == shard) else { return Written::default() };
        let last = sstables.last().map_or(0, |s| s.generation);
        let taken = self.unfolded[at].iter().take_while(|extra| extra.generation <= last);
        taken.fold(Written::default(), |sum, extra| sum.plus(extra.written))
    }

    fn folds(&self, shard: &str, sstables: &[SsTableId]) -> Newest {
        self.newest(self.prefix(shard, sstables), self.facts.shards.len() as u64)
    }

    /// What it costs to run a job on the table as it is.
    pub(super) fn cost(&self, job: &JobSpec) -> Work {
        let Workload { row_bytes, index_row_bytes, .. } = self.workload;
        let entries =
            |rows: u64, names: &[String]| rows.saturating_mul(index_row_bytes).saturating_mul(names.len() as u64);
        let (mut read, mut written, mut indexed) = (0u64, 0u64, 0u64);
        let mut commits = 1;
        match job {
            JobSpec::Fold { shard, sstables, .. } => {
                let all = self.facts.shards.iter().filter(|s| s.shard == *shard).flat_map(|s| &s.sstables);
                let bytes = all.filter(|s| sstables.contains(&s.id())).map(|s| s.bytes.unwrap_or(0));
                read = bytes.fold(0, u64::saturating_add);
                written = self.folds(shard, sstables).rows.saturating_mul(row_bytes);
            }
            JobSpec::CatchUp { indexes, .. } | JobSpec::Index { indexes, op: IndexOp::Append, .. } => {
                indexed = self.missing(indexes);
                (read, written) = (
                    entries(indexed, &indexes[..1.min(indexes.len())]),
                    entries(indexed, &indexes[..1.min(indexes.len())]),
                );
                commits = indexes.len() as u64;
            }
            JobSpec::Index { indexes, op, .. } => {
                let rows = self.facts.live_rows().unwrap_or(0);
                let all = entries(rows, indexes);
                (read, written) = (all, all);
                indexed = match op {
                    IndexOp::Reindex => rows.saturating_mul(indexes.len() as u64),
                    IndexOp::Append | IndexOp::Merge => self.missing(indexes),
                };
                commits = indexes.len() as u64;
            }
            JobSpec::Compact { tasks, deferred, .. } => {
                let fragments = self.facts.fragments.as_deref().unwrap_or_default();
                for id in tasks.iter().flatten() {
                    let Ok(at) = fragments.binary_search_by_key(id, |f| f.id) else { continue };
                    let (fragment, rows) = (&fragments[at], fragments[at].rows);
                    let bytes = fragment.bytes.unwrap_or_else(|| rows.saturating_mul(row_bytes));
                    read = read.saturating_add(bytes);
                    written = written.saturating_add(left_of(bytes, fragment));
                    if !deferred && fragment.coverage != 0 {
                        let moved =
                            rows.saturating_mul(index_row_bytes).saturating_mul(self.facts.indexes.len() as u64);
                        (read, written) = (read.saturating_add(moved), written.saturating_add(moved));
                    }
                }
            }
            JobSpec::Remap { indexes } => {
                let bytes = indexes.iter().filter_map(|name| self.disk.indexes.get(name));
                read = bytes.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
                written = read;
            }
            JobSpec::Retire { .. } | JobSpec::Collect { .. } | JobSpec::Cleanup { .. } => {}
        }
        let speed = |amount: u64, each: u64| share(amount, 1_000, each.max(1));
        let moved = speed(read.saturating_add(written), self.workload.worker_bytes_per_sec);
        let built = speed(indexed, self.workload.index_rows_per_sec);
        let commits = self.workload.commit_ms.saturating_mul(commits);
        Work {
            read_bytes: read,
            written_bytes: written,
            ms: moved.saturating_add(built).saturating_add(commits).max(1),
        }
    }

    /// Rows that indexes lack, together.
    fn missing(&self, names: &[String]) -> u64 {
        let of = self.facts.indexes.iter().filter(|index| names.contains(&index.name));
        of.filter_map(|index| index.unindexed_rows).fold(0, u64::saturating_add)
    }

    /// Runs the folds of one claim: one pass, one commit. `now_ms` is what the clock says.
    pub(super) fn fold(&mut self, folds: &[(String, Vec<SsTableId>)], now_ms: u64) {
        let mut sum = Newest::default();
        for (shard, sstables) in folds {
            let newest = self.folds(shard, sstables);
            sum = Newest {
                rows: sum.rows.saturating_add(newest.rows),
                hot: sum.hot.saturating_add(newest.hot),
                tombstones: 0,
                marks: sum.marks.saturating_add(newest.marks),
                hot_marks: sum.hot_marks.saturating_add(newest.hot_marks),
            };
        }
        self.facts.version = self.facts.version.saturating_add(1);
        for (name, sstables) in folds {
            let highest = sstables.iter().map(|s| s.generation).max().unwrap_or(0);
            for (shard, unfolded) in
                self.facts.shards.iter_mut().zip(&mut self.unfolded).filter(|(s, _)| s.shard == *name)
            {
                shard.compacted_generation = shard.compacted_generation.max(highest);
                unfolded.retain(|extra| extra.generation > highest);
            }
        }
        self.facts.shards.iter_mut().for_each(|shard| shard.recorded_at_ms = Some(now_ms));
        self.moved(&sum, now_ms);
    }

    /// Rows come into the base, and others of it are marked; a version is there already.
    fn moved(&mut self, newest: &Newest, now_ms: u64) {
        self.mark(newest);
        let (mut rows, mut hot) = (newest.rows, newest.hot);
        // Facts may say anything of an SSTable.
        let file = FILE_ROWS.max(rows / FILES_MAX);
        while rows > 0 {
            let part = rows.min(file);
            let bytes = Some(part.saturating_mul(self.workload.row_bytes));
            let id = base::moved_in(&mut self.facts, &Moved { rows: part, bytes }, now_ms);
            if let Some(id) = id.filter(|_| hot > 0) {
                self.hot.insert(id, hot.min(part));
            }
            hot = hot.saturating_sub(part);
            rows -= part;
        }
        self.disk.commit(&mut self.facts, now_ms);
        self.garbage.keep(&mut self.facts, now_ms);
        self.changed = true;
    }

    /// Marks rows of the base as deleted: those of hot keys where hot rows are, the others by rows.
    fn mark(&mut self, newest: &Newest) {
        if newest.marks == 0 {
            return;
        }
        self.facts.rows = self.facts.rows.map(|rows| rows.saturating_sub(newest.marks));
        let Some(fragments) = &mut self.facts.fragments else { return };
        let live = |f: &FragmentFacts| f.rows.saturating_sub(f.deleted.unwrap_or(0));
        let hot_rows = self.hot.values().fold(0, |sum: u64, rows| sum.saturating_add(*rows));
        let mut left = newest.marks;
        if hot_rows > 0 {
            for fragment in fragments.iter_mut() {
                let Some(hot) = self.hot.get_mut(&fragment.id) else { continue };
                let marks = share(newest.hot_marks, *hot, hot_rows).min(live(fragment)).min(left);
                *hot = hot.saturating_sub(marks);
                fragment.deleted = fragment.deleted.map(|deleted| deleted + marks);
                left -= marks;
            }
        }
        let all = fragments.iter().map(live).fold(0, u64::saturating_add);
        let cold = left;
        for fragment in fragments.iter_mut() {
            let marks = share(cold, live(fragment), all).min(live(fragment));
            fragment.deleted = fragment.deleted.map(|deleted| deleted + marks);
            left -= marks;
        }
        // What rounding left over.
        for fragment in fragments.iter_mut().rev() {
            let marks = left.min(live(fragment));
            fragment.deleted = fragment.deleted.map(|deleted| deleted + marks);
            left -= marks;
        }
        // A fragment of which every row is deleted leaves the table.
        let (mut gone, hot) = (0u64, &mut self.hot);
        fragments.retain(|f| {
            let stays = f.rows > f.deleted.unwrap_or(0);
            if !stays {
                gone = gone.saturating_add(f.bytes.unwrap_or(0));
                hot.remove(&f.id);
            }
            stays
        });
        self.disk.leave(self.facts.version.saturating_sub(1), gone);
    }

    /// A commit of a client to the base.
    pub(super) fn commit(&mut self, written: Written, now_ms: u64) -> u64 {
        let newest = self.newest(written, 1);
        self.facts.version = self.facts.version.saturating_add(1);
        self.moved(&newest, now_ms);
        newest.rows.saturating_mul(self.workload.row_bytes)
    }

    /// Runs any other job.
    pub(super) fn run(&mut self, job: &JobSpec, now_ms: u64) {
        let before = self.facts.version;
        let names = match job {
            JobSpec::CatchUp { indexes, .. } | JobSpec::Index { indexes, .. } => indexes.clone(),
            _ => Vec::new(),
        };
        let op = match job {
            JobSpec::Index { op, .. } => *op,
            _ => IndexOp::Append,
        };
        let rows = self.facts.live_rows().unwrap_or(0);
        for (at, index) in self.facts.indexes.iter().enumerate().filter(|(_, index)| names.contains(&index.name)) {
            let bytes = self.disk.indexes.entry(index.name.clone()).or_default();
            let missing = index.unindexed_rows.unwrap_or(0).saturating_mul(self.workload.index_row_bytes);
            let old = core::mem::replace(
                bytes,
                match op {
                    IndexOp::Append => bytes.saturating_add(missing),
                    IndexOp::Merge | IndexOp::Reindex => rows.saturating_mul(self.workload.index_row_bytes),
                },
            );
            if op != IndexOp::Append {
                self.disk.leave(before, old);
            }
            self.last_segment = self.last_segment.saturating_add(1);
            cover(self.facts.fragments.as_deref_mut().unwrap_or_default(), &mut self.sets, at, self.last_segment, op);
        }
        if let JobSpec::Compact { tasks, .. } = job {
            self.rewrite(tasks, before);
        }
        super::apply(&mut self.facts, job, now_ms);
        // An index is a commit of its own.
        self.facts.version = self.facts.version.saturating_add(names.len().saturating_sub(1) as u64);
        if let JobSpec::Compact { tasks, .. } = job {
            self.rewritten(tasks);
        }
        if let JobSpec::Cleanup { min_age_ms, retain_versions, .. } = job {
            self.disk.cleanup(&mut self.facts, *min_age_ms, *retain_versions, now_ms);
        }
        if self.facts.version > before {
            self.disk.commit(&mut self.facts, now_ms);
        }
        self.garbage.keep(&mut self.facts, now_ms);
        self.changed = true;
    }

    /// The next generation of a shard, and the next entry of its log.
    pub(super) fn next_generation(&mut self, shard: usize) -> (u64, u64) {
        let (generation, log) = &mut self.newest[shard];
        (*generation, *log) = (generation.saturating_add(1), log.saturating_add(1));
        (*generation, *log)
    }

    /// When the oldest row came that is in an SSTable and not in the base, milliseconds since the epoch.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.unfolded.iter().filter_map(|unfolded| Some(unfolded.first()?.first_ms)).min()
    }

    /// Rows that a reader of everything sees, but those of memtables; about, where rows are replaced.
    pub(super) fn live_rows(&self) -> u64 {
        let waiting = self.unfolded.iter().flatten().fold(Written::default(), |sum, extra| sum.plus(extra.written));
        let base = self.facts.live_rows().unwrap_or(0);
        base.saturating_add(waiting.inserts).saturating_sub(waiting.deletes)
    }

    /// How much there is to look at for a plan, of the base too or of shards only.
    pub(super) fn size(&self, base: bool) -> u64 {
        let indexes = self.facts.indexes.len();
        let of = |shard: &ShardFacts| shard.sstables.len() + shard.garbage.as_ref().map_or(0, Vec::len) + indexes + 1;
        let shards: usize = self.facts.shards.iter().map(of).sum();
        let base = if base { self.facts.fragments.as_ref().map_or(0, Vec::len) * 4 } else { 0 };
        (shards + base + indexes) as u64
    }

    /// Counts what is there, as far as it has changed.
    pub(super) fn count(&mut self, policy: &Policy, state: &mut State) {
        let (changed, flushed) = (core::mem::take(&mut self.changed), core::mem::take(&mut self.flushed));
        if changed {
            self.count_base(policy, state);
        }
        if changed || flushed {
            self.count_shards(state);
        }
    }

    fn count_base(&mut self, policy: &Policy, state: &mut State) {
        let facts = &self.facts;
        let fragments = facts.fragments.as_deref().unwrap_or_default();
        let target = rewrite::Target::of(fragments, &policy.compaction);
        let (mut small, mut deleted, mut base) = (0, 0u64, 0u64);
        for fragment in fragments {
            small += u64::from(target.is_small(fragment));
            deleted = deleted.saturating_add(fragment.deleted.unwrap_or(0));
            base = base.saturating_add(target.bytes(fragment));
        }
        let unindexed = facts.indexes.iter().filter_map(|index| index.unindexed_rows).max().unwrap_or(0);
        state.peaks = [0, 0, unindexed, fragments.len() as u64, small, deleted];
        state.ends = [facts.live_rows().unwrap_or(0), facts.versions.unwrap_or(0), 0, 0];
        let indexes = self.disk.indexes.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        self.base_bytes = base.saturating_add(indexes);
    }

    fn count_shards(&self, state: &mut State) {
        let (mut listed, mut garbage) = (0u64, self.disk.old_bytes.saturating_add(self.garbage.bytes));
        state.shards.clear();
        for shard in &self.facts.shards {
            let (mut many, mut bytes) = (0, 0u64);
            for sstable in &shard.sstables {
                let size = sstable.bytes.unwrap_or(0);
                listed = listed.saturating_add(size);
                if sstable.generation > shard.compacted_generation {
                    (many, bytes) = (many + 1, bytes.saturating_add(size));
                }
            }
            garbage = shard.garbage.iter().flatten().map(|file| file.bytes).fold(garbage, u64::saturating_add);
            state.shards.push((many, bytes));
        }
        let unfolded = state.shards.iter().fold((0u64, 0u64), |sum, s| (sum.0 + s.0, sum.1.saturating_add(s.1)));
        (state.peaks[0], state.peaks[1]) = unfolded;
        let disk = [self.base_bytes, listed, garbage].into_iter().fold(0, u64::saturating_add);
        (state.ends[2], state.ends[3]) = (disk, garbage);
    }

    /// The files of what is rewritten stay for the versions before.
    fn rewrite(&mut self, tasks: &[Vec<u64>], before: u64) {
        let fragments = self.facts.fragments.as_deref().unwrap_or_default();
        let of = |id: &u64| fragments.binary_search_by_key(id, |f| f.id).ok().and_then(|at| fragments[at].bytes);
        let bytes = tasks.iter().flatten().filter_map(of).fold(0, u64::saturating_add);
        self.disk.leave(before, bytes);
    }

    /// Rows of hot keys go where their fragments went: into the newest, by rows.
    fn rewritten(&mut self, tasks: &[Vec<u64>]) {
        let moved = tasks.iter().flatten().filter_map(|id| self.hot.remove(id)).fold(0, u64::saturating_add);
        let known = self.hot.keys().copied().max().unwrap_or(0);
        let fragments = self.facts.fragments.as_deref().unwrap_or_default();
        let made = fragments.iter().rev().take_while(|f| f.id > known && !self.hot.contains_key(&f.id));
        let made: Vec<(u64, u64)> = made.map(|f| (f.id, f.rows)).collect();
        let all = made.iter().map(|(_, rows)| *rows).fold(0, u64::saturating_add);
        for (id, rows) in made {
            let hot = share(moved, rows, all).min(rows);
            if hot > 0 {
                self.hot.insert(id, hot);
            }
        }
    }
}

/// A segment more of the index at `at`: over what it lacks, or over everything.
fn cover(fragments: &mut [FragmentFacts], sets: &mut BTreeMap<u32, Vec<u32>>, at: usize, segment: u32, op: IndexOp) {
    let mut known: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
    let mut renamed: BTreeMap<u32, u32> = BTreeMap::new();
    let next = sets.keys().max().map_or(1, |last| last.saturating_add(1));
    let mut kept = BTreeMap::new();
    for fragment in fragments {
        let number = *renamed.entry(fragment.coverage).or_insert_with(|| {
            let mut set = sets.get(&fragment.coverage).cloned().unwrap_or_default();
            set.resize(set.len().max(at + 1), 0);
            if op != IndexOp::Append || set[at] == 0 {
                set[at] = segment;
            }
            let fresh = next.saturating_add(u32::try_from(known.len()).unwrap_or(u32::MAX));
            let number = *known.entry(set.clone()).or_insert(fresh);
            kept.insert(number, set);
            number
        });
        fragment.coverage = number;
    }
    *sets = kept;
}

/// Rows that an SSTable of unknown history holds, as the workload would have written them.
fn written(sstable: &SsTableFacts, workload: &Workload) -> Written {
    let rows = sstable.rows.or_else(|| sstable.bytes.map(|bytes| bytes / workload.row_bytes.max(1)));
    Written::of(rows.unwrap_or(0), workload.update_permille, workload.delete_permille)
}

/// The newest generation of a shard, and the newest entry of its log.
fn newest(shard: &ShardFacts) -> (u64, u64) {
    let generation = shard.sstables.iter().map(|s| s.generation).max().unwrap_or(0);
    let of = |kind| shard.garbage.iter().flatten().filter(move |g| g.kind == kind).map(|g| g.position).max();
    let generation = generation.max(shard.compacted_generation).max(of(GarbageKind::SsTable).unwrap_or(0));
    (generation, of(GarbageKind::WalEntry).unwrap_or(0))
}
