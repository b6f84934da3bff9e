//! Small files that are merged before they are committed (the pre-commit compaction of Apache Paimon's
//! writers for Flink): one partition at a time, nothing waits beyond a checkpoint.

use alloc::vec::Vec;
use core::mem;

/// Files that wait for their like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting<I> {
    files: Vec<I>,
    bytes: u128,
}

impl<I> Default for Waiting<I> {
    fn default() -> Self {
        Self { files: Vec::new(), bytes: 0 }
    }
}

/// What becomes of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Emitted<I> {
    /// Committed as they are.
    Commit(Vec<I>),
    /// Rewritten together, then committed.
    Compact(Vec<I>),
}

/// The numbers of the pre-commit compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreCommit {
    /// `target-file-size`, bytes.
    pub target: u64,
    /// From so many bytes on a file is left as it is.
    pub cutoff: u64,
}

impl PreCommit {
    /// Files of a partition, each with its bytes: what leaves now, and what waits on. A group leaves as
    /// soon as it has the target size; files that are left as they are leave after it, together.
    pub fn arrive<I>(
        &self,
        mut waiting: Waiting<I>,
        files: impl IntoIterator<Item = (I, u64)>,
    ) -> (Vec<Emitted<I>>, Waiting<I>) {
        let (mut emitted, mut large) = (Vec::new(), Vec::new());
        for (id, size) in files {
            if size >= self.cutoff {
                large.push(id);
                continue;
            }
            waiting.files.push(id);
            waiting.bytes += u128::from(size);
            if waiting.bytes >= self.target.into() {
                emitted.extend(mem::take(&mut waiting).barrier());
            }
        }
        if !large.is_empty() {
            emitted.push(Emitted::Commit(large));
        }
        (emitted, waiting)
    }
}

impl<I> Waiting<I> {
    /// A checkpoint: all that waits leaves. One file alone is no compaction.
    pub fn barrier(self) -> Option<Emitted<I>> {
        match self.files.len() {
            0 => None,
            1 => Some(Emitted::Commit(self.files)),
            _ => Some(Emitted::Compact(self.files)),
        }
    }
}
