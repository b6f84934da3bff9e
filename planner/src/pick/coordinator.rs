//! Append-only tables without buckets (`AppendCompactCoordinator` of Apache Paimon): one partition at a time.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::mem;

/// Plans without a task after which the files of a partition are forgotten.
const REMOVE_AGE: u32 = 10;

/// Plans without a task after which a partition's files are taken, however few they are.
const COMPACT_AGE: u32 = 5;

/// A file of a partition. Files are ordered by size, and by `id` where sizes are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct File<I> {
    /// Bytes.
    pub size: u64,
    /// What the caller calls it.
    pub id: I,
    /// Rows.
    pub rows: u64,
    /// Its deletion vector.
    pub vector: Option<Vector<I>>,
}

/// A file's deletion vector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vector<I> {
    /// The index file that holds it. What shares an index file is rewritten together.
    pub index: I,
    /// Deleted rows; `None`: not known.
    pub deleted: Option<u64>,
}

/// What is known of a partition: nothing at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition<I> {
    /// Plans since the last news that gave no task.
    pub age: u32,
    /// Files that are to be rewritten some time.
    pub held: BTreeSet<File<I>>,
}

impl<I> Default for Partition<I> {
    fn default() -> Self {
        Self { age: 0, held: BTreeSet::new() }
    }
}

/// Files that are rewritten together.
pub type Task<I> = Vec<File<I>>;

/// Whether a task leaves less to do than it found: more than one file, or deleted rows. What rewrites a
/// lone small file does so for ever; `compaction.min.file-num` of 1 asks for it.
pub fn makes_progress<I>(task: &[File<I>]) -> bool {
    task.len() > 1 || task.iter().any(|file| file.vector.is_some())
}

/// The numbers of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coordinator {
    /// `compaction.min.file-num`.
    pub min_file_num: u32,
    /// `target-file-size`, bytes.
    pub target: u64,
    /// Below so many bytes a file is small.
    pub cutoff: u64,
    /// `source.split.open-file-cost`, bytes: each file counts as so much more.
    pub open_file_cost: u64,
    /// `compaction.delete-ratio-threshold`, where the table has deletion vectors; else these are not
    /// looked at. C++ refuses such tables.
    pub delete_ratio: Option<f64>,
}

impl Coordinator {
    /// Whether a file is worth rewriting: it is small, or more of its rows are deleted than the threshold.
    pub fn is_candidate<I>(&self, file: &File<I>) -> bool {
        let deleted = match (self.delete_ratio, &file.vector) {
            // In double precision, as upstream.
            (Some(ratio), Some(vector)) => vector.deleted.is_none_or(|rows| rows as f64 > file.rows as f64 * ratio),
            _ => false,
        };
        file.size < self.cutoff || deleted
    }

    /// Files that were seen: what is worth rewriting is held, and the partition is young again.
    pub fn notify<I: Ord>(
        &self,
        mut partition: Partition<I>,
        files: impl IntoIterator<Item = File<I>>,
    ) -> Partition<I> {
        partition.held.extend(files.into_iter().filter(|file| self.is_candidate(file)));
        Partition { age: 0, ..partition }
    }

    /// The tasks of a partition, and what is known of it then; `None`: it is forgotten with all it held.
    pub fn plan<I: Ord + Clone>(&self, mut partition: Partition<I>) -> (Vec<Task<I>>, Option<Partition<I>>) {
        let (mut tasks, left) = self.pack_all(mem::take(&mut partition.held));
        partition.held = left;
        if tasks.is_empty() {
            partition.age = partition.age.saturating_add(1);
            if partition.age > COMPACT_AGE && partition.held.len() > 1 {
                tasks.push(mem::take(&mut partition.held).into_iter().collect());
            }
        }
        let forgotten = partition.held.is_empty() || partition.age > REMOVE_AGE;
        (tasks, (!forgotten).then_some(partition))
    }

    /// The tasks of all files of a partition, seen once and not remembered (C++).
    pub fn once<I: Ord>(&self, files: impl IntoIterator<Item = File<I>>) -> Vec<Task<I>> {
        self.pack(files.into_iter().filter(|file| self.is_candidate(file)).collect()).0
    }

    fn pack_all<I: Ord + Clone>(&self, held: BTreeSet<File<I>>) -> (Vec<Task<I>>, BTreeSet<File<I>>) {
        if self.delete_ratio.is_none() {
            return self.pack(held);
        }
        let (mut groups, mut without) = (BTreeMap::<I, Task<I>>::new(), BTreeSet::new());
        for file in held {
            match &file.vector {
                Some(vector) => groups.entry(vector.index.clone()).or_default().push(file),
                None => _ = without.insert(file),
            }
        }
        // A lone file without a vector waits, even where one file would be enough.
        let (packed, left) = if without.len() > 1 { self.pack(without) } else { (Vec::new(), without) };
        let mut tasks = self.pack_groups(groups.into_values().collect());
        tasks.extend(packed);
        (tasks, left)
    }

    /// Smallest first, each bin until it has enough. The last bin needs the number of files.
    fn pack<I: Ord>(&self, files: BTreeSet<File<I>>) -> (Vec<Task<I>>, BTreeSet<File<I>>) {
        let (mut tasks, mut bin) = (Vec::new(), Bin::default());
        for file in files {
            bin.add(file, self);
            tasks.extend(bin.full(self));
        }
        if bin.files.len() as u64 >= u64::from(self.min_file_num.max(1)) {
            tasks.push(mem::take(&mut bin.files));
        }
        (tasks, bin.files.into_iter().collect())
    }

    /// Groups stay together, the smallest first; the last bin is a task however little it holds.
    fn pack_groups<I>(&self, mut groups: Vec<Task<I>>) -> Vec<Task<I>> {
        groups.sort_by_key(|group| group.iter().map(|file| u128::from(file.size)).sum::<u128>());
        let (mut tasks, mut bin) = (Vec::new(), Bin::default());
        for group in groups {
            group.into_iter().for_each(|file| bin.add(file, self));
            tasks.extend(bin.full(self));
        }
        tasks.extend(Some(bin.files).filter(|files| !files.is_empty()));
        tasks
    }
}

struct Bin<I> {
    files: Task<I>,
    total: u128,
}

impl<I> Default for Bin<I> {
    fn default() -> Self {
        Self { files: Vec::new(), total: 0 }
    }
}

impl<I> Bin<I> {
    fn add(&mut self, file: File<I>, rules: &Coordinator) {
        self.total += u128::from(file.size) + u128::from(rules.open_file_cost);
        self.files.push(file);
    }

    /// Its files, if they are enough for a task: more than one, and twice the target.
    fn full(&mut self, rules: &Coordinator) -> Option<Task<I>> {
        let enough = self.files.len() > 1 && self.total >= 2 * u128::from(rules.target);
        enough.then(|| mem::take(self).files)
    }
}
