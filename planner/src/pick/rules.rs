//! Whose rules: Apache Paimon changed its picks several times, and its C++ version follows the oldest.

use serde::{Deserialize, Serialize};

/// What `compaction.small-file-ratio` is where nobody set it.
pub const SMALL_FILE_RATIO: f64 = 0.7;

/// What happens when the universal pick meets a run that is too big (`UniversalCompaction`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UniversalRule {
    /// It stops, whatever the run's level. Java up to 1.4.2, C++.
    R0,
    /// As R0, but a forced pick of level 0 starts with the run of level 1, too. Java 2.0.0.
    R1,
    /// Runs of levels 0 and 1 always join a pick that was triggered. Java after 2.0.0.
    R2,
}

/// How far the append window reaches (`BucketedAppendCompactManager`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppendRule {
    /// Its limit is the target, and a large file is one of the target size. Java up to 1.3.
    A0,
    /// Its limit is twice the target, and a large file is one of the compaction file size. Java from 1.4.1, C++.
    A1,
}

/// How the compaction file size follows from the target (`CoreOptions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutoffRule {
    /// `target / 10 * 7` in whole numbers. Java up to 1.4.2, C++.
    S0,
    /// `target * compaction.small-file-ratio` in double precision, cut off. Java from 2.0.0.
    S1,
}

/// A release whose rules are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Paimon C++.
    #[default]
    CppMain,
    /// Java up to 1.3.2.
    #[serde(rename = "java-1.3")]
    Java13,
    /// Java 1.4.1 and 1.4.2.
    #[serde(rename = "java-1.4")]
    Java14,
    /// Java 2.0.0.
    #[serde(rename = "java-2.0")]
    Java20,
    /// Java after 2.0.0.
    JavaMaster,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::CppMain, Self::Java13, Self::Java14, Self::Java20, Self::JavaMaster];

    /// As it is written: `cpp-main`, `java-1.4`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CppMain => "cpp-main",
            Self::Java13 => "java-1.3",
            Self::Java14 => "java-1.4",
            Self::Java20 => "java-2.0",
            Self::JavaMaster => "java-master",
        }
    }

    /// The profile of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Its rules.
    pub fn rules(self) -> Rules {
        let (universal, append, cutoff) = match self {
            Self::Java13 => (UniversalRule::R0, AppendRule::A0, CutoffRule::S0),
            Self::CppMain | Self::Java14 => (UniversalRule::R0, AppendRule::A1, CutoffRule::S0),
            Self::Java20 => (UniversalRule::R1, AppendRule::A1, CutoffRule::S1),
            Self::JavaMaster => (UniversalRule::R2, AppendRule::A1, CutoffRule::S1),
        };
        let java = self != Self::CppMain;
        let seeds_clock = matches!(self, Self::Java20 | Self::JavaMaster);
        Rules { universal, append, cutoff, java, seeds_clock }
    }
}

/// A set of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Of the universal pick.
    pub universal: UniversalRule,
    /// Of the append window.
    pub append: AppendRule,
    /// Of the compaction file size.
    pub cutoff: CutoffRule,
    /// What only Java has: an early full compaction of nothing starts the clock, expired rows make a
    /// file worth rewriting, chain tables keep their deletes, and the coordinator remembers what it saw.
    pub java: bool,
    /// A new writer takes the time of the last full compaction from the files of the last level.
    pub seeds_clock: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Profile::default().rules()
    }
}

impl Rules {
    /// Below this many bytes a file is small. `ratio` counts under [`CutoffRule::S1`] only.
    pub fn compaction_file_size(self, target: u64, ratio: f64) -> u64 {
        match self.cutoff {
            CutoffRule::S0 => target / 10 * 7,
            // As upstream computes it, so that the last byte agrees. The cast cuts off and saturates.
            CutoffRule::S1 => (target as f64 * ratio) as u64,
        }
    }

    /// From this many bytes on an append-only file is large.
    pub fn append_cutoff(self, target: u64, ratio: f64) -> u64 {
        match self.append {
            AppendRule::A0 => target,
            AppendRule::A1 => self.compaction_file_size(target, ratio),
        }
    }
}
