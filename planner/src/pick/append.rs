//! Append-only tables with fixed buckets (`BucketedAppendCompactManager` of Apache Paimon).
//!
//! A queue holds the files of a bucket in the order of their sequence numbers. What leaves it is picked, or
//! forgotten: a forgotten file is no longer looked at until the bucket is read anew. Both are returned, so
//! that a caller without a memory can say what happened.

use alloc::{collections::VecDeque, vec::Vec};

use super::rules::AppendRule;

/// A file. Files are ordered by their sequence numbers, and by `id` where these are equal.
///
/// Some writers give every file the same numbers; then `id` alone is the order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppendFile<I> {
    /// Its first sequence number.
    pub min_seq: u64,
    /// Its last one.
    pub max_seq: u64,
    /// What the caller calls it.
    pub id: I,
    /// Bytes.
    pub size: u64,
    /// It has a deletion vector.
    pub has_vector: bool,
}

/// What an automatic pick made of a queue; each list is in the order of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoPick<I> {
    /// To be rewritten together: neighbours in the queue. Empty: nothing is to be done.
    pub picked: Vec<AppendFile<I>>,
    /// Left the queue for good.
    pub forgotten: Vec<AppendFile<I>>,
    /// Still in the queue.
    pub queue: Vec<AppendFile<I>>,
}

/// The first `min_file_num` neighbours that are small enough together. How large the file is that
/// completes them does not matter: the number is looked at before the size.
///
/// `queue` may be in any order; `target` is the target file size, bytes.
pub fn auto<I: Ord>(mut queue: Vec<AppendFile<I>>, min_file_num: u32, target: u64, rule: AppendRule) -> AutoPick<I> {
    queue.sort_unstable();
    let min = usize::try_from(min_file_num).unwrap_or(usize::MAX);
    let limit = match rule {
        AppendRule::A0 => u128::from(target),
        AppendRule::A1 => 2 * u128::from(target),
    };
    let (mut window, mut total, mut forgotten) = (VecDeque::new(), 0u128, Vec::new());
    let mut rest = queue.into_iter();
    while let Some(file) = rest.next() {
        total += u128::from(file.size);
        window.push_back(file);
        if window.len() >= min {
            return AutoPick { picked: window.into(), forgotten, queue: rest.collect() };
        }
        if total >= limit {
            // One file, even where the rest is still above the limit.
            let oldest = window.pop_front();
            total -= oldest.as_ref().map_or(0, |file| u128::from(file.size));
            forgotten.extend(oldest);
        }
    }
    AutoPick { picked: Vec::new(), forgotten, queue: window.into() }
}

/// All picks of a bucket for a caller that remembers no queue and sees every file each time.
///
/// Such a caller would give [`auto`] what it has just written, for ever: outputs come out a little below the
/// target. So a large file ends a window, and one file is no pick: then each pick leaves fewer small files
/// than it took, and where nothing is written no pick is left.
pub fn auto_of_table<I: Ord>(
    mut files: Vec<AppendFile<I>>,
    min_file_num: u32,
    target: u64,
    cutoff: u64,
    rule: AppendRule,
) -> Vec<Vec<AppendFile<I>>> {
    files.sort_unstable();
    let (mut picks, mut small) = (Vec::new(), Vec::new());
    let mut take = |mut queue: Vec<AppendFile<I>>| {
        loop {
            let pick = auto(queue, min_file_num.max(2), target, rule);
            if pick.picked.is_empty() {
                break;
            }
            picks.push(pick.picked);
            queue = pick.queue;
        }
    };
    for file in files {
        if file.size < cutoff {
            small.push(file);
        } else {
            take(core::mem::take(&mut small));
        }
    }
    take(small);
    picks
}

/// How a full compaction treats files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FullRules {
    /// From so many bytes on a file is large ([`super::rules::Rules::append_cutoff`]).
    pub cutoff: u64,
    /// Somebody maintains deletion vectors of this table.
    pub vectors: bool,
    /// `compaction.force-rewrite-all-files`.
    pub force_rewrite_all: bool,
}

/// Whether a full compaction takes a queue of `files` files. It takes all of it then, and leaves the
/// queue empty.
pub fn is_full_due(files: usize, rules: &FullRules) -> bool {
    rules.force_rewrite_all || (files > 0 && (rules.vectors || files >= 3))
}

/// The files that a full compaction rewrites; none where it is not worth it. What it took and does not
/// rewrite does not go back to the queue.
///
/// Large files without a deletion vector are left alone at the beginning; a large file after a small one
/// is rewritten with it. `files` may be in any order: they are taken in the order of their sequences, as
/// C++ does. (Java takes them as its heap holds them.)
pub fn full<I: Ord>(mut files: Vec<AppendFile<I>>, rules: &FullRules) -> Vec<AppendFile<I>> {
    files.sort_unstable();
    if rules.force_rewrite_all {
        return files;
    }
    let is_large = |file: &AppendFile<I>| file.size >= rules.cutoff;
    let head = files.iter().take_while(|file| is_large(file) && !(rules.vectors && file.has_vector)).count();
    files.drain(..head);
    let large = files.iter().filter(|file| is_large(file)).count();
    let small = files.len() - large;
    if rules.vectors || (small > large && files.len() >= 3) { files } else { Vec::new() }
}

/// Whether the last output of a rewrite goes back to the queue: it is small still. Its place there follows
/// from its sequence numbers.
pub fn goes_back(last_output: u64, cutoff: u64) -> bool {
    last_output < cutoff
}
