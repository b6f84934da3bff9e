//! The options of the picks, with the names that Apache Paimon gives them (`CoreOptions`).

mod keys;
mod text;

use alloc::{format, string::String, vec::Vec};
use core::num::NonZeroU32;

pub use self::keys::{KEYS, Key};
use super::append::FullRules;
use super::coordinator::Coordinator;
use super::early::{EarlyFull, OffPeak};
use super::lookup::ForceUp;
use super::pre_commit::PreCommit;
use super::rules::{AppendRule, CutoffRule, Rules, UniversalRule};
use super::universal::Universal;
use crate::policy::{MIB, Refused, distance};

/// The largest number that Paimon's whole options hold. What follows from them stays within it, too.
pub const INT_MAX: u32 = i32::MAX as u32;

/// What makes a table's writes look keys up. Each of the four is reason enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// `merge-engine` is `first-row`.
    pub first_row: bool,
    /// `changelog-producer` is `lookup`.
    pub changelog: bool,
    /// `deletion-vectors.enabled`.
    pub vectors: bool,
    /// `force-lookup`.
    pub force: bool,
}

/// Options as somebody set them. What follows from several of them is a method.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whose rules; the options `profile`, `universal-rule`, `append-rule` and `cut-off-rule`, which Paimon
    /// does not have.
    pub rules: Rules,
    /// `num-sorted-run.compaction-trigger`.
    pub compaction_trigger: NonZeroU32,
    /// `num-sorted-run.stop-trigger`, as set.
    pub stop_trigger: Option<u32>,
    /// `num-levels`, as set.
    pub num_levels: Option<u32>,
    /// `compaction.max-size-amplification-percent`.
    pub max_size_amp: u32,
    /// `compaction.size-ratio`, percent.
    pub size_ratio: u32,
    /// `compaction.offpeak.start.hour`.
    pub off_peak_start: Option<u8>,
    /// `compaction.offpeak.end.hour`.
    pub off_peak_end: Option<u8>,
    /// `compaction.offpeak-ratio`, percent.
    pub off_peak_ratio: u32,
    /// `compaction.optimization-interval`, milliseconds.
    pub optimization_interval_ms: Option<u64>,
    /// `compaction.total-size-threshold`, bytes.
    pub total_size_threshold: Option<u64>,
    /// `compaction.incremental-size-threshold`, bytes.
    pub incremental_size_threshold: Option<u64>,
    /// `compaction.force-up-level-0`.
    pub force_up_level_0: bool,
    /// What makes writes look keys up.
    pub lookup: Lookup,
    /// `lookup-compact` is `gentle`, not `radical`.
    pub gentle: bool,
    /// `lookup-compact.max-interval`, as set; picks.
    pub lookup_max_interval: Option<u32>,
    /// `lookup-wait`.
    pub lookup_wait: bool,
    /// `compaction.force-rewrite-all-files`.
    pub force_rewrite_all: bool,
    /// `compaction.min.file-num`.
    pub min_file_num: u32,
    /// `target-file-size`, bytes, as set.
    pub target_file_size: Option<u64>,
    /// `compaction.small-file-ratio`, as set.
    pub small_file_ratio: Option<f64>,
    /// `compaction.delete-ratio-threshold`.
    pub delete_ratio_threshold: f64,
    /// `compaction.file-num-limit`.
    pub file_num_limit: u32,
    /// `source.split.open-file-cost`, bytes.
    pub open_file_cost: u64,
    /// `write-only`.
    pub write_only: bool,
    /// `commit.force-compact`.
    pub commit_force_compact: bool,
    /// `full-compaction.delta-commits`.
    pub full_delta_commits: Option<u32>,
    /// `bucket`; `None` where it is not fixed.
    pub buckets: Option<u32>,
    /// `data-evolution.enabled`.
    pub data_evolution: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            compaction_trigger: const { NonZeroU32::new(5).unwrap() },
            stop_trigger: None,
            num_levels: None,
            max_size_amp: 200,
            size_ratio: 1,
            off_peak_start: None,
            off_peak_end: None,
            off_peak_ratio: 0,
            optimization_interval_ms: None,
            total_size_threshold: None,
            incremental_size_threshold: None,
            force_up_level_0: false,
            lookup: Lookup::default(),
            gentle: false,
            lookup_max_interval: None,
            lookup_wait: true,
            force_rewrite_all: false,
            min_file_num: 5,
            target_file_size: None,
            small_file_ratio: None,
            delete_ratio_threshold: 0.2,
            file_num_limit: 100_000,
            open_file_cost: 4 * MIB,
            write_only: false,
            commit_force_compact: false,
            full_delta_commits: None,
            buckets: None,
            data_evolution: false,
        }
    }
}

/// How a bucket with a primary key is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStrategy {
    /// Not here: the table is `write-only`.
    Off,
    /// By the universal pick.
    Universal(Universal),
    /// So, and level 0 is kept empty.
    ForceUp(ForceUp),
}

/// How an append-only table is compacted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AppendStrategy {
    /// Not here: the table is `write-only`, evolves its data, or has columns of large objects.
    Off,
    /// Each bucket by its window.
    Bucketed {
        /// Files of a window.
        min_file_num: u32,
        /// Its target, bytes.
        target: u64,
        /// How far it reaches.
        rule: AppendRule,
        /// A full compaction, and what goes back to the queue.
        full: FullRules,
    },
    /// Each partition by its coordinator: the buckets are not fixed.
    Unaware(Coordinator),
}

impl Options {
    /// The defaults with `pairs` of key and text on top; a later pair wins. Texts are Paimon's: bytes take
    /// `b`, `kb`, `mb`, `gb`, `tb` (each 1024 of the one before), times `ms`, `s`, `min`, `h`, `d`, a bare
    /// number is bytes or milliseconds.
    ///
    /// # Errors
    /// The first pair that can't be followed: an unknown key, with the nearest known one; a text that is
    /// malformed or out of range; `compaction.small-file-ratio` where the rules fix it.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Refused> {
        let mut pairs: Vec<(&str, &str)> = pairs.into_iter().collect();
        // A profile sets several rules: those that are named win, wherever they stand.
        pairs.sort_by_key(|(key, _)| *key != "profile");
        let mut options = Self::default();
        for (key, text) in pairs {
            let known = KEYS.iter().find(|known| known.name == key).ok_or_else(|| unknown(key))?;
            (known.set)(&mut options, text).map_err(|why| Refused { key: key.into(), why })?;
        }
        if options.small_file_ratio.is_some() && options.rules.cutoff == CutoffRule::S0 {
            let why = "counts under the cut-off rule `S1` only; `S0` has 7/10 always";
            return Err(Refused { key: "compaction.small-file-ratio".into(), why: why.into() });
        }
        Ok(options)
    }

    /// Above so many runs writes wait: never below the compaction trigger.
    pub fn stop_trigger(&self) -> u32 {
        let trigger = self.compaction_trigger.get();
        self.stop_trigger.unwrap_or(lifted(trigger, 3)).max(trigger)
    }

    /// Levels of a bucket; one that has files on more has those.
    pub fn num_levels(&self) -> u32 {
        self.num_levels.unwrap_or(lifted(self.compaction_trigger.get(), 1))
    }

    /// Picks that a gentle lookup compaction leaves out, the last of them not.
    pub fn lookup_max_interval(&self) -> u32 {
        let trigger = self.compaction_trigger.get();
        self.lookup_max_interval.unwrap_or(lifted(trigger, trigger)).max(trigger)
    }

    /// Bytes of a file: of a table with a primary key, or of an append-only one.
    pub fn target_file_size(&self, primary_key: bool) -> u64 {
        self.target_file_size.unwrap_or(if primary_key { 128 * MIB } else { 256 * MIB })
    }

    /// Below so many bytes a file is small. It follows from the target and is no option.
    pub fn compaction_file_size(&self, primary_key: bool) -> u64 {
        self.rules.compaction_file_size(self.target_file_size(primary_key), self.ratio())
    }

    /// Whether writes look keys up.
    pub fn needs_lookup(&self) -> bool {
        let Lookup { first_row, changelog, vectors, force } = self.lookup;
        first_row || changelog || vectors || force
    }

    /// Whether a commit waits for the lookup compaction.
    pub fn waits_for_lookup(&self) -> bool {
        self.lookup_wait && self.needs_lookup()
    }

    /// Whether a commit waits for merges at all.
    pub fn commit_waits(&self) -> bool {
        self.commit_force_compact || self.waits_for_lookup()
    }

    /// When everything is merged early; `None` where nothing asks for it.
    pub fn early_full(&self) -> Option<EarlyFull> {
        let early = EarlyFull {
            interval_ms: self.optimization_interval_ms,
            total_size: self.total_size_threshold,
            incremental_size: self.incremental_size_threshold,
            of_nothing: self.rules.java,
        };
        early.is_enabled().then_some(early)
    }

    /// The universal pick of these options.
    pub fn universal(&self) -> Universal {
        Universal {
            rule: self.rules.universal,
            trigger: self.compaction_trigger,
            max_size_amp: self.max_size_amp,
            size_ratio: self.size_ratio,
            off_peak: OffPeak::new(self.off_peak_start, self.off_peak_end, self.off_peak_ratio),
            early: self.early_full(),
        }
    }

    /// How buckets with a primary key are merged.
    pub fn key_strategy(&self) -> KeyStrategy {
        let universal = self.universal();
        if self.write_only {
            KeyStrategy::Off
        } else if self.needs_lookup() {
            let max_interval = self.gentle.then(|| self.lookup_max_interval());
            KeyStrategy::ForceUp(ForceUp { universal, max_interval })
        } else if self.force_up_level_0 {
            KeyStrategy::ForceUp(ForceUp { universal, max_interval: None })
        } else {
            KeyStrategy::Universal(universal)
        }
    }

    /// How an append-only table is compacted. `large_objects`: it has columns of them.
    pub fn append_strategy(&self, large_objects: bool) -> AppendStrategy {
        if self.write_only || self.data_evolution || large_objects {
            AppendStrategy::Off
        } else if self.buckets.is_some() {
            let (target, vectors) = (self.target_file_size(false), self.lookup.vectors);
            let cutoff = self.rules.append_cutoff(target, self.ratio());
            AppendStrategy::Bucketed {
                min_file_num: self.min_file_num,
                target,
                rule: self.rules.append,
                full: FullRules { cutoff, vectors, force_rewrite_all: self.force_rewrite_all },
            }
        } else {
            AppendStrategy::Unaware(self.coordinator())
        }
    }

    /// The coordinator of an append-only table without fixed buckets.
    pub fn coordinator(&self) -> Coordinator {
        Coordinator {
            min_file_num: self.min_file_num,
            target: self.target_file_size(false),
            cutoff: self.compaction_file_size(false),
            open_file_cost: self.open_file_cost,
            delete_ratio: self.lookup.vectors.then_some(self.delete_ratio_threshold),
        }
    }

    /// The compaction of append-only files before their commit.
    pub fn pre_commit(&self) -> PreCommit {
        PreCommit { target: self.target_file_size(false), cutoff: self.compaction_file_size(false) }
    }

    fn ratio(&self) -> f64 {
        self.small_file_ratio.unwrap_or(super::rules::SMALL_FILE_RATIO)
    }
}

/// A sum that stays within [`INT_MAX`].
fn lifted(number: u32, more: u32) -> u32 {
    number.saturating_add(more).min(INT_MAX)
}

fn unknown(key: &str) -> Refused {
    if key == "compaction.file-size" {
        let why = "is not an option: it follows from `target-file-size`";
        return Refused { key: key.into(), why: why.into() };
    }
    let nearest = KEYS.iter().map(|known| (distance(key, known.name), known.name)).min();
    let why = match nearest {
        Some((far, known)) if far <= 1 + known.len() / 4 => format!("is not an option; did you mean `{known}`?"),
        _ => {
            let names: Vec<&str> = KEYS.iter().map(|known| known.name).collect();
            format!("is not an option; the options are {}", names.join(", "))
        }
    };
    Refused { key: String::from(key), why }
}
