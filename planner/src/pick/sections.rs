//! What a merge rewrites and what it only moves to another level (`IntervalPartition`,
//! `MergeTreeCompactTask` of Apache Paimon).

use alloc::{collections::BTreeSet, vec::Vec};

/// Sections of key ranges: rows of positions in `ranges`. Ranges of different sections have no key in
/// common, nor have those of one row, where a range that ends at a key meets one that begins at it.
///
/// Sections, rows and their ranges are in the order of keys. A range goes to the row that ends first, and
/// of those that end at the same key to the one that began its last range first.
pub fn sections<K: Ord + Clone>(ranges: &[(K, K)]) -> Vec<Vec<Vec<usize>>> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by(|a, b| ranges[*a].cmp(&ranges[*b]));
    let mut sections: Vec<Vec<Vec<usize>>> = Vec::new();
    // The ends of the last section's rows, and what its largest key is.
    let mut ends: BTreeSet<(K, K, usize)> = BTreeSet::new();
    for at in order {
        let (min, max) = &ranges[at];
        if ends.last().is_none_or(|(end, ..)| min > end) {
            sections.push(Vec::new());
            ends.clear();
        }
        let Some(rows) = sections.last_mut() else { continue };
        let free = ends.first().filter(|(end, ..)| min > end).cloned();
        let row = match &free {
            Some(end) => {
                ends.remove(end);
                end.2
            }
            None => {
                rows.push(Vec::new());
                rows.len() - 1
            }
        };
        rows[row].push(at);
        ends.insert((max.clone(), min.clone(), row));
    }
    sections
}

/// A file of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeFile<K> {
    /// Its level.
    pub level: u32,
    /// Its first key.
    pub min: K,
    /// Its last key.
    pub max: K,
    /// Bytes.
    pub size: u64,
    /// Deletes among its rows; `None`: not known.
    pub deletes: Option<u64>,
    /// It has rows that are expired (Java only).
    pub has_expired: bool,
}

/// The numbers of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The level that its rows go to.
    pub output_level: u32,
    /// The last level.
    pub top: u32,
    /// Below so many bytes a file is merged with its neighbours ([`super::rules::Rules::compaction_file_size`]).
    pub cutoff: u64,
    /// `compaction.force-rewrite-all-files`.
    pub force_rewrite_all: bool,
}

/// One step of a merge; files by their positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Rewrite these together, in this order of keys.
    Rewrite(Vec<usize>),
    /// Give this one its new level; its bytes stay as they are.
    Upgrade(usize),
}

impl Merge {
    /// The steps, in the order of keys. A file that no step names stays as it is.
    pub fn steps<K: Ord>(&self, files: &[MergeFile<K>]) -> Vec<Step> {
        let ranges: Vec<(&K, &K)> = files.iter().map(|file| (&file.min, &file.max)).collect();
        let mut steps = Vec::new();
        let mut pending: Vec<Vec<Vec<usize>>> = Vec::new();
        for mut section in sections(&ranges) {
            if section.len() > 1 {
                pending.push(section);
                continue;
            }
            for at in section.pop().unwrap_or_default() {
                if files[at].size < self.cutoff {
                    pending.push(Vec::from([Vec::from([at])]));
                } else {
                    self.flush(core::mem::take(&mut pending), files, &mut steps);
                    steps.extend(self.upgrade(at, &files[at]));
                }
            }
        }
        self.flush(pending, files, &mut steps);
        steps
    }

    /// The steps where each file is rewritten alone ([`super::full::Full::Each`]).
    pub fn each(files: usize) -> Vec<Step> {
        (0..files).map(|at| Step::Rewrite(Vec::from([at]))).collect()
    }

    /// A lone row needs no merge; everything else becomes one.
    fn flush<K>(&self, mut pending: Vec<Vec<Vec<usize>>>, files: &[MergeFile<K>], steps: &mut Vec<Step>) {
        match pending.as_mut_slice() {
            [] => {}
            [rows] if rows.len() == 1 => {
                let row = rows.concat();
                steps.extend(row.into_iter().filter_map(|at| self.upgrade(at, &files[at])));
            }
            _ => steps.push(Step::Rewrite(pending.concat().concat())),
        }
    }

    /// What moves a file. Deletes have nothing below them on the last level, so they may not get there.
    fn upgrade<K>(&self, at: usize, file: &MergeFile<K>) -> Option<Step> {
        let has_deletes = self.output_level == self.top && file.deletes != Some(0);
        if has_deletes || self.force_rewrite_all || file.has_expired {
            return Some(Step::Rewrite(Vec::from([at])));
        }
        (file.level != self.output_level).then_some(Step::Upgrade(at))
    }
}
