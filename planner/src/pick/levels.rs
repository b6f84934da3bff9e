//! From files to sorted runs (`Levels`, `SortedRun` of Apache Paimon).

use alloc::vec::Vec;
use core::{cmp::Reverse, fmt};

use super::runs::{BadRuns, Run, Runs};

/// A file of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelFile<I, K> {
    /// What the caller calls it.
    pub id: I,
    /// Its level.
    pub level: u32,
    /// Its first key.
    pub min: K,
    /// Its last key.
    pub max: K,
    /// Its first sequence number.
    pub min_seq: u64,
    /// Its last one.
    pub max_seq: u64,
    /// When it was written, milliseconds since the epoch.
    pub created_ms: u64,
    /// Bytes.
    pub size: u64,
}

/// The files of a bucket as runs, from the newest to the oldest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The runs; a size beyond 64 bits is the largest number.
    pub runs: Runs,
    /// The files of each run, by their positions, in the order of keys.
    pub files: Vec<Vec<usize>>,
    /// Bytes of all files.
    pub total_size: u128,
}

impl Levels {
    /// Arranges `files` on `num_levels` levels, or as many as they show. Of level 0 each file is a run:
    /// what has the latest sequence number first; then what has the earliest first number, what is older,
    /// and what has the smaller `id`.
    ///
    /// # Errors
    /// Fewer than two levels; files of a higher level that have a key in common.
    pub fn new<I: Ord, K: Ord>(files: &[LevelFile<I, K>], num_levels: u32) -> Result<Self, BadLevels> {
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by(|a, b| {
            let (a, b) = (&files[*a], &files[*b]);
            let newest_first = |f: &LevelFile<I, K>| (Reverse(f.max_seq), f.min_seq, f.created_ms);
            let on_level_0 = || newest_first(a).cmp(&newest_first(b)).then_with(|| a.id.cmp(&b.id));
            let above = || (&a.min, &a.max).cmp(&(&b.min, &b.max));
            a.level.cmp(&b.level).then_with(|| if a.level == 0 { on_level_0() } else { above() })
        });
        let (mut runs, mut grouped) = (Vec::<Run>::new(), Vec::<Vec<usize>>::new());
        for at in order {
            let file = &files[at];
            match (runs.last_mut(), grouped.last_mut()) {
                (Some(run), Some(group)) if run.level == file.level && file.level > 0 => {
                    if group.last().is_some_and(|before| files[*before].max >= file.min) {
                        return Err(BadLevels::Overlap { level: file.level, file: at });
                    }
                    run.size = run.size.saturating_add(file.size);
                    group.push(at);
                }
                _ => {
                    runs.push(Run { level: file.level, size: file.size });
                    grouped.push(Vec::from([at]));
                }
            }
        }
        let total_size = files.iter().map(|file| u128::from(file.size)).sum();
        Ok(Self { runs: Runs::new(runs, num_levels).map_err(BadLevels::Runs)?, files: grouped, total_size })
    }

    /// The highest level with files, `None` of an empty bucket.
    pub fn highest(&self) -> Option<u32> {
        self.runs.all().last().map(|run| run.level)
    }
}

/// Why files are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLevels {
    /// Files of a higher level have a key in common.
    Overlap {
        /// The level.
        level: u32,
        /// Position of the later file.
        file: usize,
    },
    /// No bucket has such runs.
    Runs(BadRuns),
}

impl fmt::Display for BadLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { level, file } => {
                write!(f, "file {file} has a key in common with the one before it on level {level}")
            }
            Self::Runs(bad) => bad.fmt(f),
        }
    }
}

impl core::error::Error for BadLevels {}
