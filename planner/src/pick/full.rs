//! Full compaction that somebody asked for, and what becomes of a pick before and after it runs
//! (`CompactStrategy`, `MergeTreeCompactManager` of Apache Paimon).

use alloc::vec::Vec;
use core::fmt;

use super::runs::Runs;

/// What a full compaction looks at in a file of the last level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopFile {
    /// It has a deletion vector, and somebody maintains them.
    pub has_vector: bool,
    /// It has rows that are expired (Java only).
    pub has_expired: bool,
}

/// What a full compaction does. Everything goes to the last level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Full {
    /// Merge all runs.
    All,
    /// Rewrite these files, each alone, by their positions in the only run.
    Each(Vec<usize>),
}

/// A full compaction of `runs`. `files` are those of the run of the last level, in its order; they are
/// looked at where it is the only run. `None`: there is nothing to do.
pub fn pick(runs: &Runs, files: &[TopFile], force_rewrite_all: bool) -> Option<Full> {
    match runs.all() {
        [] => None,
        [only] if only.level == runs.top() => {
            let worth = |file: &TopFile| force_rewrite_all || file.has_vector || file.has_expired;
            let chosen: Vec<usize> = files.iter().enumerate().filter(|(_, f)| worth(f)).map(|(n, _)| n).collect();
            (!chosen.is_empty()).then_some(Full::Each(chosen))
        }
        _ => Some(Full::All),
    }
}

/// A full compaction of a clustered table (Java): everything, unless one run is all there is, on the last
/// level and clustered by the present columns.
pub fn pick_clustered(runs: &Runs, same_cluster_key: bool) -> Option<Full> {
    match runs.all() {
        [] => None,
        [only] if only.level == runs.top() && same_cluster_key => None,
        _ => Some(Full::All),
    }
}

/// Whether a strategy's pick of files of these levels changes anything: not one of no files, nor one of a
/// file that is where it would go. A full compaction is not asked.
pub fn is_worthwhile(levels: &[u32], output_level: u32) -> bool {
    match levels {
        [] => false,
        [only] => *only != output_level,
        _ => true,
    }
}

/// Whether deletes may be dropped by a merge to `output_level`: nothing older is below it.
/// `highest` is the highest level with files, `None` of an empty bucket. `keep`: for chain tables (Java).
/// `vectors`: somebody maintains deletion vectors, so that older rows are gone already.
pub fn drops_deletes(output_level: u32, highest: Option<u32>, vectors: bool, keep: bool) -> bool {
    let nothing_below = highest.is_none_or(|highest| output_level >= highest);
    !keep && output_level != 0 && (nothing_below || vectors)
}

/// Whether a commit that waits for lookups has to wait.
pub fn is_not_completed(running: bool, needs_lookup: bool, level_0: usize) -> bool {
    running || (needs_lookup && level_0 > 0)
}

/// Who wants a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A flush, or a tick.
    Automatic,
    /// Somebody wants everything merged.
    Full,
}

/// Why a full compaction is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The table is `write-only`.
    WriteOnly,
    /// A merge of the bucket runs.
    Running,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WriteOnly => "the table is `write-only`: nothing merges it here",
            Self::Running => "a merge of this bucket runs",
        })
    }
}

impl core::error::Error for Refusal {}

/// Whether a pick may be made now.
///
/// # Errors
/// A full compaction is refused where an automatic one does nothing.
pub fn admit(request: Request, write_only: bool, running: bool) -> Result<bool, Refusal> {
    let refusal = if write_only {
        Refusal::WriteOnly
    } else if running {
        Refusal::Running
    } else {
        return Ok(true);
    };
    if request == Request::Full { Err(refusal) } else { Ok(false) }
}
