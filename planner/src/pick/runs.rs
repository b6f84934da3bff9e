//! The sorted runs of a bucket, as all picks of a table with a primary key see them.

use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// One sorted run: one file of level 0, or all files of a higher level (`LevelSortedRun`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Its level.
    pub level: u32,
    /// Bytes.
    pub size: u64,
}

/// Runs from the newest to the oldest: those of level 0, then one for each higher level that has files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    runs: Vec<Run>,
    top: u32,
}

impl Runs {
    /// `runs` from the newest to the oldest in `num_levels` levels, or as many as the runs show.
    ///
    /// # Errors
    /// Fewer than two levels; runs that no bucket can have.
    pub fn new(runs: Vec<Run>, num_levels: u32) -> Result<Self, BadRuns> {
        for (at, pair) in runs.windows(2).enumerate() {
            let (newer, older) = (pair[0].level, pair[1].level);
            if older < newer || (older == newer && older > 0) {
                return Err(BadRuns::Order { at: at + 1 });
            }
        }
        let highest = runs.last().map_or(0, |run| run.level);
        let top = num_levels.saturating_sub(1).max(highest);
        if top == 0 { Err(BadRuns::TooFewLevels) } else { Ok(Self { runs, top }) }
    }

    /// From the newest to the oldest.
    pub fn all(&self) -> &[Run] {
        &self.runs
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether the bucket is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The last level, at least 1.
    pub fn top(&self) -> u32 {
        self.top
    }

    /// How many runs are on level 0.
    pub fn level_0(&self) -> usize {
        self.runs.iter().take_while(|run| run.level == 0).count()
    }
}

/// Why runs are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRuns {
    /// A bucket has two levels at least.
    TooFewLevels,
    /// The run at this position is on a level before or at that of the run before it.
    Order {
        /// Position, from 0.
        at: usize,
    },
}

impl fmt::Display for BadRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewLevels => f.write_str("a bucket has two levels at least"),
            Self::Order { at } => write!(f, "run {at} stands after one of its own or a higher level"),
        }
    }
}

impl core::error::Error for BadRuns {}

/// What a pick takes: the newest runs, to one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pick {
    /// How many of the newest runs.
    pub runs: usize,
    /// The level that their rows go to.
    pub output_level: u32,
    /// The rule that took them.
    pub why: Why,
}

/// Which rule made a pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// `compaction.optimization-interval` is over.
    Interval,
    /// All runs together are below `compaction.total-size-threshold`.
    TotalSize,
    /// What is not on the last level is above `compaction.incremental-size-threshold`.
    IncrementalSize,
    /// The newer runs are too large for the oldest one.
    SizeAmplification,
    /// The next run is no larger than those before it.
    SizeRatio,
    /// There are more runs than the trigger.
    RunCount,
    /// Level 0 has to go up.
    Level0,
}

/// What a strategy remembers of a bucket. It decides nothing by itself, and may be stored anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// When everything was merged last, milliseconds since the epoch; `None`: not known.
    pub last_full_ms: Option<u64>,
    /// Picks that the gentle lookup compaction left out since it last forced level 0 up.
    pub skips: u32,
}

/// The time of a pick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the epoch.
    pub ms: u64,
    /// Hour of the local day, 0 to 23.
    pub hour: u8,
}
