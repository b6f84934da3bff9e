//! Full compaction before any other rule asks for it, and the hours in which more is merged
//! (`EarlyFullCompaction`, `OffPeakHours` of Apache Paimon).

use super::runs::{Pick, Runs, Why};

/// When all runs are merged early. What is `None` never does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyFull {
    /// Longer ago than this, milliseconds.
    pub interval_ms: Option<u64>,
    /// All runs together below this, bytes.
    pub total_size: Option<u64>,
    /// Runs that are not on the last level together above this, bytes.
    pub incremental_size: Option<u64>,
    /// Whether an empty bucket fires, too, which moves nothing but starts the clock (Java).
    pub of_nothing: bool,
}

impl EarlyFull {
    /// Whether it can ever fire.
    pub fn is_enabled(&self) -> bool {
        self.interval_ms.is_some() || self.total_size.is_some() || self.incremental_size.is_some()
    }

    /// All runs to the last level, if it is time. All comparisons are strict. The interval fires where
    /// nobody knows when the last full compaction was. A clock that went back fires nothing.
    pub fn pick(&self, runs: &Runs, last_full_ms: Option<u64>, now_ms: u64) -> Option<Pick> {
        if runs.len() == 1 || (runs.is_empty() && !self.of_nothing) {
            return None;
        }
        let all = runs.all().iter();
        let total: u128 = all.clone().map(|run| u128::from(run.size)).sum();
        let incremental: u128 = all.filter(|run| run.level != runs.top()).map(|run| u128::from(run.size)).sum();
        let over = |interval| last_full_ms.is_none_or(|last| now_ms.saturating_sub(last) > interval);
        let why = if self.interval_ms.is_some_and(over) {
            Why::Interval
        } else if self.total_size.is_some_and(|threshold| total < threshold.into()) {
            Why::TotalSize
        } else if self.incremental_size.is_some_and(|threshold| incremental > threshold.into()) {
            Why::IncrementalSize
        } else {
            return None;
        };
        Some(Pick { runs: runs.len(), output_level: runs.top(), why })
    }
}

/// When a new writer's clock starts: the newest of `created`, pairs of the level and creation time
/// (milliseconds since the epoch) of files, on the last of `num_levels`. `None` fires at once.
///
/// `num_levels` is the option, not the number that the files show.
pub fn last_full_ms(created: impl IntoIterator<Item = (u32, u64)>, num_levels: u32) -> Option<u64> {
    let last = num_levels.checked_sub(1)?;
    created.into_iter().filter(|(level, _)| *level == last).map(|(_, at)| at).max()
}

/// Hours of the day in which the size ratio is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffPeak {
    start: u8,
    end: u8,
    ratio: u32,
}

impl OffPeak {
    /// From hour `start` until before hour `end`, over midnight where `end` is earlier; `ratio` is
    /// percent. `None` where an hour is `None` or both are the same: there is no such time.
    pub fn new(start: Option<u8>, end: Option<u8>, ratio: u32) -> Option<Self> {
        let (start, end) = (start?, end?);
        (start != end).then_some(Self { start, end, ratio })
    }

    /// What is added to the size ratio at this hour, percent.
    pub fn ratio(&self, hour: u8) -> u32 {
        let inside = if self.start < self.end {
            (self.start..self.end).contains(&hour)
        } else {
            hour >= self.start || hour < self.end
        };
        if inside { self.ratio } else { 0 }
    }
}
