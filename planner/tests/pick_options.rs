//! Options of the picks: their public names, their defaults, and what is refused.
#![allow(clippy::unwrap_used)]

use planner::pick::lookup::ForceUp;
use planner::pick::options::{INT_MAX, KEYS, KeyStrategy, Options};
use planner::pick::rules::{AppendRule, CutoffRule, Profile, Rules, UniversalRule};

fn of(pairs: &[(&str, &str)]) -> Options {
    Options::from_pairs(pairs.iter().copied()).unwrap()
}

#[track_caller]
fn refused(key: &str, text: &str, says: &str) {
    let refused = Options::from_pairs([(key, text)]).expect_err(key);
    assert_eq!(refused.key, key);
    assert!(refused.why.contains(says), "{key} = `{text}`: {}", refused.why);
}

#[test]
fn a_default_that_is_written_down_changes_nothing() {
    for key in KEYS {
        if let Some(text) = key.default {
            assert_eq!(of(&[(key.name, text)]), Options::default(), "{}", key.name);
        }
        assert!(!key.help.is_empty() && !key.help.ends_with('.'));
        assert_eq!(KEYS.iter().filter(|other| other.name == key.name).count(), 1);
    }
}

/// An option, a text that is not its default, and what it makes of the defaults.
type Change = (&'static str, &'static str, fn(&mut Options));

#[test]
fn every_option_sets_its_own_field() {
    let changes: &[Change] = &[
        ("profile", "java-master", |o| o.rules = Profile::JavaMaster.rules()),
        ("universal-rule", "r2", |o| o.rules.universal = UniversalRule::R2),
        ("append-rule", "A0", |o| o.rules.append = AppendRule::A0),
        ("cut-off-rule", "S1", |o| o.rules.cutoff = CutoffRule::S1),
        ("num-sorted-run.compaction-trigger", "1", |o| o.compaction_trigger = 1.try_into().unwrap()),
        ("num-sorted-run.stop-trigger", "0", |o| o.stop_trigger = Some(0)),
        ("num-levels", "2", |o| o.num_levels = Some(2)),
        ("compaction.max-size-amplification-percent", "0", |o| o.max_size_amp = 0),
        ("compaction.size-ratio", "2147483647", |o| o.size_ratio = INT_MAX),
        ("compaction.offpeak.start.hour", "0", |o| o.off_peak_start = Some(0)),
        ("compaction.offpeak.end.hour", "23", |o| o.off_peak_end = Some(23)),
        ("compaction.offpeak-ratio", "7", |o| o.off_peak_ratio = 7),
        ("compaction.optimization-interval", "2 min", |o| o.optimization_interval_ms = Some(120_000)),
        ("compaction.total-size-threshold", "5GB", |o| o.total_size_threshold = Some(5 << 30)),
        ("compaction.incremental-size-threshold", "12 kb", |o| o.incremental_size_threshold = Some(12 << 10)),
        ("compaction.force-up-level-0", "TRUE", |o| o.force_up_level_0 = true),
        ("lookup-compact", "GENTLE", |o| o.gentle = true),
        ("lookup-compact.max-interval", "7", |o| o.lookup_max_interval = Some(7)),
        ("lookup-wait", "false", |o| o.lookup_wait = false),
        ("force-lookup", "true", |o| o.lookup.force = true),
        ("merge-engine", "first-row", |o| o.lookup.first_row = true),
        ("changelog-producer", "lookup", |o| o.lookup.changelog = true),
        ("deletion-vectors.enabled", "true", |o| o.lookup.vectors = true),
        ("compaction.force-rewrite-all-files", "true", |o| o.force_rewrite_all = true),
        ("compaction.min.file-num", "1", |o| o.min_file_num = 1),
        ("target-file-size", "1", |o| o.target_file_size = Some(1)),
        ("compaction.delete-ratio-threshold", "1", |o| o.delete_ratio_threshold = 1.0),
        ("compaction.file-num-limit", "1", |o| o.file_num_limit = 1),
        ("source.split.open-file-cost", "0", |o| o.open_file_cost = 0),
        ("write-only", "true", |o| o.write_only = true),
        ("commit.force-compact", "true", |o| o.commit_force_compact = true),
        ("full-compaction.delta-commits", "1", |o| o.full_delta_commits = Some(1)),
        ("bucket", "1", |o| o.buckets = Some(1)),
        ("data-evolution.enabled", "true", |o| o.data_evolution = true),
    ];
    for (key, text, change) in changes {
        let mut expected = Options::default();
        change(&mut expected);
        assert_ne!(expected, Options::default(), "{key}");
        assert_eq!(of(&[(key, text)]), expected, "{key}");
    }
    let ratio = of(&[("compaction.small-file-ratio", "0.29"), ("cut-off-rule", "S1")]);
    assert_eq!(ratio.small_file_ratio, Some(0.29));
    assert_eq!(changes.len() + 1, KEYS.len(), "every option is here");
}

#[test]
fn what_follows_from_options_is_lifted_and_never_wraps() {
    let defaults = Options::default();
    assert_eq!((defaults.stop_trigger(), defaults.num_levels(), defaults.lookup_max_interval()), (8, 6, 10));
    let trigger = ("num-sorted-run.compaction-trigger", "11");
    let stop = |text| of(&[trigger, ("num-sorted-run.stop-trigger", text)]).stop_trigger();
    assert_eq!([stop("7"), stop("11"), stop("12")], [11, 11, 12]);
    let interval = |text| of(&[trigger, ("lookup-compact.max-interval", text)]).lookup_max_interval();
    assert_eq!([interval("7"), interval("0"), interval("13")], [11, 11, 13]);
    assert_eq!(of(&[trigger, ("num-levels", "3")]).num_levels(), 3);
    let most = of(&[("num-sorted-run.compaction-trigger", "2147483647")]);
    assert_eq!((most.stop_trigger(), most.num_levels(), most.lookup_max_interval()), (INT_MAX, INT_MAX, INT_MAX));
    let nearly = of(&[("num-sorted-run.compaction-trigger", "2147483645")]);
    assert_eq!((nearly.stop_trigger(), nearly.num_levels()), (INT_MAX, INT_MAX - 1));
    let least = of(&[("num-sorted-run.compaction-trigger", "1")]);
    assert_eq!((least.stop_trigger(), least.num_levels(), least.lookup_max_interval()), (4, 2, 2));
}

#[test]
fn the_compaction_file_size_follows_from_the_target_to_the_last_byte() {
    let sizes = |pairs: &[(&str, &str)]| {
        let options = of(pairs);
        (options.compaction_file_size(true), options.compaction_file_size(false))
    };
    assert_eq!(sizes(&[]), (93_952_404, 187_904_815));
    assert_eq!(sizes(&[("profile", "java-1.4")]), (93_952_404, 187_904_815));
    assert_eq!(sizes(&[("profile", "java-2.0")]), (93_952_409, 187_904_819));
    let target = ("target-file-size", "1000");
    assert_eq!(sizes(&[target]), (700, 700));
    assert_eq!(sizes(&[target, ("compaction.small-file-ratio", "0.29"), ("cut-off-rule", "S1")]), (290, 290));
    assert_eq!(sizes(&[("target-file-size", "9")]).0, 0);
    let huge = ("target-file-size", "18446744073709551615");
    assert_eq!(sizes(&[huge, ("cut-off-rule", "S1"), ("compaction.small-file-ratio", "1")]).0, u64::MAX);
    assert_eq!(sizes(&[huge]).0, u64::MAX / 10 * 7);
    assert_eq!((of(&[]).target_file_size(true), of(&[]).target_file_size(false)), (128 << 20, 256 << 20));
    assert_eq!((of(&[target]).target_file_size(true), of(&[target]).target_file_size(false)), (1000, 1000));
}

#[test]
fn a_named_rule_wins_over_the_profile_wherever_it_stands() {
    let pairs = [("universal-rule", "R1"), ("profile", "java-master"), ("append-rule", "A0")];
    let rules = Rules { universal: UniversalRule::R1, append: AppendRule::A0, ..Profile::JavaMaster.rules() };
    assert_eq!(of(&pairs).rules, rules);
    assert_eq!(of(&[("profile", "java-1.3"), ("profile", "java-1.4")]).rules, Profile::Java14.rules());
    assert_eq!(Options::default().rules, Profile::CppMain.rules());
    for profile in Profile::ALL {
        assert_eq!(Profile::named(profile.name()), Some(profile));
        assert_eq!(serde_json::to_value(profile).unwrap(), profile.name());
    }
    assert_eq!(Profile::named("java"), None);
}

#[test]
fn profiles_follow_their_releases() {
    use AppendRule::{A0, A1};
    use CutoffRule::{S0, S1};
    use UniversalRule::{R0, R1, R2};
    let rules = |profile: Profile| {
        let Rules { universal, append, cutoff, java, seeds_clock } = profile.rules();
        (universal, append, cutoff, java, seeds_clock)
    };
    assert_eq!(rules(Profile::CppMain), (R0, A1, S0, false, false));
    assert_eq!(rules(Profile::Java13), (R0, A0, S0, true, false));
    assert_eq!(rules(Profile::Java14), (R0, A1, S0, true, false));
    assert_eq!(rules(Profile::Java20), (R1, A1, S1, true, true));
    assert_eq!(rules(Profile::JavaMaster), (R2, A1, S1, true, true));
}

#[test]
fn options_choose_the_strategy_of_a_primary_key() {
    let strategy = |pairs: &[(&str, &str)]| of(pairs).key_strategy();
    let universal = Options::default().universal();
    let forced = |max_interval| KeyStrategy::ForceUp(ForceUp { universal, max_interval });
    assert_eq!(strategy(&[]), KeyStrategy::Universal(universal));
    assert_eq!(strategy(&[("compaction.force-up-level-0", "true")]), forced(None));
    assert_eq!(strategy(&[("compaction.force-up-level-0", "true"), ("lookup-compact", "gentle")]), forced(None));
    assert_eq!(strategy(&[("lookup-compact", "gentle")]), KeyStrategy::Universal(universal));
    for lookup in [
        ("force-lookup", "true"),
        ("merge-engine", "first-row"),
        ("changelog-producer", "lookup"),
        ("deletion-vectors.enabled", "true"),
    ] {
        assert_eq!(strategy(&[lookup]), forced(None));
        assert_eq!(strategy(&[lookup, ("lookup-compact.max-interval", "7")]), forced(None), "radical has none");
        assert_eq!(strategy(&[lookup, ("lookup-compact", "gentle")]), forced(Some(10)));
        assert_eq!(strategy(&[lookup, ("write-only", "true")]), KeyStrategy::Off);
        let waits = of(&[lookup]);
        assert!(waits.needs_lookup() && waits.waits_for_lookup() && waits.commit_waits());
        let on = of(&[lookup, ("lookup-wait", "false")]);
        assert!(on.needs_lookup() && !on.waits_for_lookup() && !on.commit_waits());
    }
    let plain = Options::default();
    assert!(!plain.needs_lookup() && !plain.waits_for_lookup() && !plain.commit_waits());
    let forced = of(&[("commit.force-compact", "true")]);
    assert!(!forced.waits_for_lookup() && forced.commit_waits());
}

#[test]
fn the_numbers_of_the_universal_pick_are_those_of_the_options() {
    let universal = of(&[
        ("profile", "java-2.0"),
        ("num-sorted-run.compaction-trigger", "7"),
        ("compaction.max-size-amplification-percent", "11"),
        ("compaction.size-ratio", "12"),
        ("compaction.offpeak.start.hour", "22"),
        ("compaction.offpeak.end.hour", "6"),
        ("compaction.offpeak-ratio", "13"),
        ("compaction.optimization-interval", "14"),
        ("compaction.total-size-threshold", "15"),
        ("compaction.incremental-size-threshold", "16"),
    ])
    .universal();
    assert_eq!(universal.rule, UniversalRule::R1);
    assert_eq!((universal.trigger.get(), universal.max_size_amp, universal.size_ratio), (7, 11, 12));
    assert_eq!(universal.off_peak.map(|hours| (hours.ratio(5), hours.ratio(6))), Some((13, 0)));
    let early = universal.early.unwrap();
    assert_eq!((early.interval_ms, early.total_size, early.incremental_size), (Some(14), Some(15), Some(16)));
    assert!(early.of_nothing);
    assert!(!of(&[("compaction.total-size-threshold", "15")]).early_full().unwrap().of_nothing);
    assert_eq!(of(&[]).universal().early, None);
}

#[test]
fn an_unknown_option_is_refused_by_its_name_with_the_nearest_one() {
    refused("num-sorted-run.compaction-triger", "5", "did you mean `num-sorted-run.compaction-trigger`?");
    refused("compaction.max.file-num", "5", "did you mean `compaction.min.file-num`?");
    refused("compaction.file-size", "5", "follows from `target-file-size`");
    refused("no such thing at all", "5", "the options are profile, universal-rule");
    refused("", "5", "is not an option");
}

#[test]
fn what_is_out_of_range_or_malformed_is_refused() {
    let trigger = "num-sorted-run.compaction-trigger";
    for text in ["0", "-1", "2147483648", "99999999999999999999", "", " 5", "5 ", "+5", "5.0", "five", "0x5"] {
        refused(trigger, text, "write one from 1 to 2147483647");
    }
    refused("num-levels", "1", "from 2");
    refused("compaction.min.file-num", "0", "from 1");
    for text in ["24", "-2", "+1", "", "256"] {
        refused("compaction.offpeak.start.hour", text, "write one from 0 to 23, or -1");
    }
    for text in ["", "mb", "1 pb", "-1", "1.5 gb", "18446744073709551616", "16777216 tb", "1 2", "1mbb"] {
        refused("source.split.open-file-cost", text, "too large or malformed");
    }
    for text in ["", "1 week", "5us", "18446744073709551615 d", "h"] {
        refused("compaction.optimization-interval", text, "write a whole number of milliseconds");
    }
    refused("target-file-size", "0", "no size");
    refused("target-file-size", "0 gb", "no size");
    for text in ["1.1", "-0.1", "NaN", "inf", "1e-1", "", ".", "70%"] {
        refused("compaction.delete-ratio-threshold", text, "no number from 0 to 1");
    }
    refused("write-only", "yes", "none of true, false");
    refused("lookup-compact", "mild", "none of radical, gentle");
    refused("profile", "java", "none of cpp-main, java-1.3");
    refused("universal-rule", "R3", "none of R0, R1, R2");
    refused("bucket", "0", "from 1");
    refused("bucket", "-2", "from 1");
    refused("compaction.small-file-ratio", "0.5", "`S1` only");
}

#[test]
fn sizes_and_times_are_read_as_paimon_writes_them() {
    let bytes = |text| of(&[("target-file-size", text)]).target_file_size(false);
    let mib = 1 << 20;
    assert_eq!(["7", "7b", "7 bytes"].map(bytes), [7; 3]);
    assert_eq!(["2k", "2kb", "2 KB", "2KiB"].map(bytes), [2048; 4]);
    assert_eq!(["3m", "3 mb", "3MiB"].map(bytes), [3 * mib; 3]);
    assert_eq!(["3g", "3 gb", "3GiB"].map(bytes), [3072 * mib; 3]);
    assert_eq!(["3t", "3 tb", "3TiB"].map(bytes), [3 << 40; 3]);
    assert_eq!(bytes("16777215 tb"), 16_777_215 << 40);
    let ms = |text| of(&[("compaction.optimization-interval", text)]).optimization_interval_ms.unwrap();
    assert_eq!(["0", "7", "7ms", "7 milliseconds"].map(ms), [0, 7, 7, 7]);
    assert_eq!(["7s", "7 sec", "7 seconds"].map(ms), [7000; 3]);
    assert_eq!(["7m", "7 min", "7 Minutes"].map(ms), [420_000; 3]);
    assert_eq!(["1h", "1 hour"].map(ms), [3_600_000; 2]);
    assert_eq!(["1 d", "1day"].map(ms), [86_400_000; 2]);
}
