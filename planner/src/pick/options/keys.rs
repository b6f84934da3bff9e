//! The list of options.

use alloc::string::String;

use super::text::{bytes, count, flag, hour, millis, share, size, whole, word};
use super::{AppendRule, CutoffRule, Options, UniversalRule};
use crate::pick::rules::Profile;

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its public name.
    pub name: &'static str,
    /// Its default as it is written; `None` where it has none, or one that follows from other options.
    pub default: Option<&'static str>,
    /// What it does.
    pub help: &'static str,
    pub(super) set: fn(&mut Options, &str) -> Result<(), String>,
}

/// A list of [`Key`]s: name, default, help, field and how its text is read.
macro_rules! keys {
    ($($name:literal, $default:expr, $help:literal, |$options:ident, $text:ident| $field:expr => $value:expr;)*) => {
        &[$(Key {
            name: $name,
            default: $default,
            help: $help,
            set: |$options, $text| {
                $field = $value;
                Ok(())
            },
        }),*]
    };
}

/// Every option. The first four are not Paimon's: they say whose rules are followed.
pub const KEYS: &[Key] = keys![
    "profile", Some("cpp-main"), "Release whose rules are followed: cpp-main, java-1.3, java-1.4, java-2.0, java-master",
        |o, text| o.rules => word(text, &Profile::ALL.map(|profile| (profile.name(), profile)))?.rules();
    "universal-rule", None, "R0, R1 or R2: what happens at a run that is too big; else the profile's",
        |o, text| o.rules.universal => word(text, &UNIVERSAL)?;
    "append-rule", None, "A0 or A1: how far the append window reaches; else the profile's",
        |o, text| o.rules.append => word(text, &APPEND)?;
    "cut-off-rule", None, "S0 or S1: how the compaction file size follows from the target; else the profile's",
        |o, text| o.rules.cutoff => word(text, &CUTOFF)?;
    "num-sorted-run.compaction-trigger", Some("5"), "Sorted runs that make a merge worth looking for",
        |o, text| o.compaction_trigger => count(text)?;
    "num-sorted-run.stop-trigger", None, "Sorted runs above which writes wait; else the compaction trigger and 3",
        |o, text| o.stop_trigger => Some(whole(text, 0)?);
    "num-levels", None, "Levels of a bucket; else the compaction trigger and 1",
        |o, text| o.num_levels => Some(whole(text, 2)?);
    "compaction.max-size-amplification-percent", Some("200"), "Percent of the oldest run that the newer ones may have",
        |o, text| o.max_size_amp => whole(text, 0)?;
    "compaction.size-ratio", Some("1"), "Percent by which the next run may be larger than those before it",
        |o, text| o.size_ratio => whole(text, 0)?;
    "compaction.offpeak.start.hour", Some("-1"), "Local hour from which the size ratio is larger; -1: never",
        |o, text| o.off_peak_start => hour(text)?;
    "compaction.offpeak.end.hour", Some("-1"), "Local hour before which the size ratio is larger; -1: never",
        |o, text| o.off_peak_end => hour(text)?;
    "compaction.offpeak-ratio", Some("0"), "Percent that are added to the size ratio then",
        |o, text| o.off_peak_ratio => whole(text, 0)?;
    "compaction.optimization-interval", None, "Time after which everything is merged",
        |o, text| o.optimization_interval_ms => Some(millis(text)?);
    "compaction.total-size-threshold", None, "Bytes of all runs below which everything is merged",
        |o, text| o.total_size_threshold => Some(bytes(text)?);
    "compaction.incremental-size-threshold", None, "Bytes that are not on the last level above which everything is merged",
        |o, text| o.incremental_size_threshold => Some(bytes(text)?);
    "compaction.force-up-level-0", Some("false"), "Keep level 0 empty",
        |o, text| o.force_up_level_0 => flag(text)?;
    "lookup-compact", Some("radical"), "radical or gentle: keep level 0 empty at once, or after some picks",
        |o, text| o.gentle => word(text, &[("radical", false), ("gentle", true)])?;
    "lookup-compact.max-interval", None, "Picks that gentle leaves out; else twice the compaction trigger",
        |o, text| o.lookup_max_interval => Some(whole(text, 0)?);
    "lookup-wait", Some("true"), "Commits wait for lookup compaction",
        |o, text| o.lookup_wait => flag(text)?;
    "force-lookup", Some("false"), "Writes look keys up",
        |o, text| o.lookup.force => flag(text)?;
    "merge-engine", Some("deduplicate"), "What becomes of rows of one key; first-row looks keys up",
        |o, text| o.lookup.first_row => word(text, &ENGINES)?;
    "changelog-producer", Some("none"), "Who writes the changelog; lookup looks keys up",
        |o, text| o.lookup.changelog => word(text, &PRODUCERS)?;
    "deletion-vectors.enabled", Some("false"), "Deleted rows are marked beside their file; looks keys up",
        |o, text| o.lookup.vectors => flag(text)?;
    "compaction.force-rewrite-all-files", Some("false"), "A full compaction rewrites every file",
        |o, text| o.force_rewrite_all => flag(text)?;
    "compaction.min.file-num", Some("5"), "Append-only files that are worth a rewrite together",
        |o, text| o.min_file_num => whole(text, 1)?;
    "target-file-size", None, "Bytes of a file; else 128 MiB with a primary key, 256 MiB without",
        |o, text| o.target_file_size => Some(size(text)?);
    "compaction.small-file-ratio", None, "Share of the target below which a file is small (S1); else 0.7",
        |o, text| o.small_file_ratio => Some(share(text)?);
    "compaction.delete-ratio-threshold", Some("0.2"), "Share of deleted rows above which an append-only file is rewritten",
        |o, text| o.delete_ratio_threshold => share(text)?;
    "compaction.file-num-limit", Some("100000"), "Files that the coordinator looks at in one round",
        |o, text| o.file_num_limit => whole(text, 1)?;
    "source.split.open-file-cost", Some("4 mb"), "Bytes that each file counts more for the coordinator",
        |o, text| o.open_file_cost => bytes(text)?;
    "write-only", Some("false"), "No merges here",
        |o, text| o.write_only => flag(text)?;
    "commit.force-compact", Some("false"), "Commits wait for merges",
        |o, text| o.commit_force_compact => flag(text)?;
    "full-compaction.delta-commits", None, "Commits after which a full compaction is asked for",
        |o, text| o.full_delta_commits => Some(whole(text, 1)?);
    "bucket", Some("-1"), "Buckets of a partition; -1: not fixed",
        |o, text| o.buckets => if text == "-1" { None } else { Some(whole(text, 1)?) };
    "data-evolution.enabled", Some("false"), "Columns may be in files of their own",
        |o, text| o.data_evolution => flag(text)?;
];

const UNIVERSAL: [(&str, UniversalRule); 3] =
    [("R0", UniversalRule::R0), ("R1", UniversalRule::R1), ("R2", UniversalRule::R2)];
const APPEND: [(&str, AppendRule); 2] = [("A0", AppendRule::A0), ("A1", AppendRule::A1)];
const CUTOFF: [(&str, CutoffRule); 2] = [("S0", CutoffRule::S0), ("S1", CutoffRule::S1)];
const ENGINES: [(&str, bool); 4] =
    [("deduplicate", false), ("partial-update", false), ("aggregation", false), ("first-row", true)];
const PRODUCERS: [(&str, bool); 4] = [("none", false), ("input", false), ("full-compaction", false), ("lookup", true)];
