//! Settings as text: strict to read, exact to print, and explained.
#![allow(clippy::unwrap_used)]

use planner::policy::{GIB, KNOBS, Knob, MIB, Policy, Unit};
use planner::time::{DAY_MS, SECOND_MS};

fn set(key: &str, text: &str) -> Result<Policy, String> {
    Policy::from_pairs([(key, text)]).map_err(|refused| refused.to_string())
}

#[test]
fn defaults_are_the_documented_ones() {
    let documented = [
        ("wal_compaction_interval_secs", 5),
        ("wal_compact_trigger_count", 4),
        ("wal_compact_trigger_bytes", GIB),
        ("wal_max_data_age_secs", 7 * 24 * 3600),
        ("wal_compact_prefix_max", 32),
        ("compact_pass_target_bytes", 2 * GIB),
        ("wal_compact_concurrency", 32),
        ("compact_pass_memory_bytes", 512 * MIB),
        ("collect_grace_secs", 24 * 3600),
        ("index_unindexed_rows_min", 100_000),
        ("index_unindexed_permille", 100),
        ("index_unindexed_age_secs", 24 * 3600),
        ("index_segments_max", 8),
        ("compaction_small_fragments_min", 4),
        ("compaction_target_bytes", 512 * MIB),
        ("compaction_target_rows", 1_048_576),
        ("compaction_deleted_permille", 100),
        ("compaction_defer_remap", 0),
        ("cleanup_min_version_age_secs", 0),
        ("cleanup_version_interval", 20),
        ("cleanup_interval_secs", 24 * 3600),
        ("cleanup_initial_version", 20),
        ("cleanup_retry_delay_secs", 60),
        ("remap_rewrites_min", 8),
        ("remap_age_secs", 3600),
        ("agent_sweep_interval_secs", 600),
        ("agent_budget", 64),
        ("agent_backoff_secs", 60),
    ];
    for (key, value) in documented {
        assert_eq!(Knob::named(key).unwrap().value(&Policy::default()), value, "{key}");
    }
    assert_eq!(Policy::default().check(), Ok(()));
    assert_eq!(Policy::default().lint(), []);
}

#[test]
fn a_number_stands_for_the_unit_of_its_knob_and_a_suffix_for_its_own() {
    for (text, bytes) in
        [("1", 1), ("512MiB", 512 * MIB), ("2GiB", 2 * GIB), ("1KB", 1000), ("3B", 3), ("1TiB", 1 << 40)]
    {
        assert_eq!(set("compact_pass_target_bytes", text).unwrap().pass_bytes, bytes, "{text}");
    }
    for (text, ms) in [
        ("9", 9 * SECOND_MS),
        ("90s", 90 * SECOND_MS),
        ("5m", 300_000),
        ("24h", DAY_MS),
        ("7d", 7 * DAY_MS),
        ("3000ms", 3000),
    ] {
        assert_eq!(set("wal_max_data_age_secs", text).unwrap().age_ms_max, ms, "{text}");
    }
    assert_eq!(set("wal_compact_trigger_count", "8").unwrap().trigger_count, 8);
    assert_eq!(set("wal_compaction_interval_secs", "0").unwrap().tick_ms, 0);
}

#[test]
fn what_is_not_a_whole_number_is_refused() {
    for text in ["", " ", "4 ", " 4", "4\n", "+4", "-4", "4.0", "4e3", "0x4", "four", "４", "4,000", "1_000", "NaN"] {
        for knob in KNOBS {
            let refused = set(knob.key, text).unwrap_err();
            assert!(refused.starts_with(&format!("`{}`: ", knob.key)), "{refused}");
        }
    }
    for text in ["4 ", " 4", "4\n"] {
        assert!(set("wal_compact_trigger_count", text).unwrap_err().contains("has a space too many"));
    }
}

#[test]
fn a_unit_that_is_nearly_right_is_refused_with_how_it_is_written() {
    let why = |key: &str, text: &str| Policy::default().set(key, text).unwrap_err().why;
    let examples = [
        ("wal_compact_trigger_bytes", "1 GB", "`1 GB` is written `1GB`; "),
        ("wal_compact_trigger_bytes", "512 mib", "`512 mib` is written `512MiB`; "),
        ("wal_compact_trigger_bytes", "1G", "`1G` is written `1GiB` or `1GB`; "),
        ("wal_max_data_age_secs", "5 min", "`5 min` is written `5m`; "),
        ("wal_max_data_age_secs", "7D", "`7D` is written `7d`; "),
        ("wal_max_data_age_secs", "2 weeks", "`2 weeks` is not a whole number; "),
        ("wal_compact_trigger_bytes", "1.5GiB", "`1.5GiB` is not a whole number; "),
        ("wal_compact_trigger_count", "4 SSTables", "`4 SSTables` is not a whole number; "),
    ];
    for (key, text, said) in examples {
        assert!(why(key, text).starts_with(said), "{}", why(key, text));
    }
}

#[test]
fn a_unit_of_another_kind_is_refused() {
    for (key, text) in [
        ("wal_compact_trigger_count", "4KiB"),
        ("wal_compact_trigger_count", "4s"),
        ("wal_compact_trigger_bytes", "4s"),
        ("wal_compact_trigger_bytes", "4GIB"),
        ("wal_compact_trigger_bytes", "4 GiB"),
        ("wal_max_data_age_secs", "4GiB"),
        ("wal_max_data_age_secs", "4D"),
    ] {
        set(key, text).unwrap_err();
    }
    assert_eq!(
        set("wal_max_data_age_secs", "1500ms").unwrap_err(),
        "`wal_max_data_age_secs`: `1500ms` is not a whole number of seconds; write a whole number of seconds, \
         or one with s, m, h or d, from 1s to 3650d"
    );
}

#[test]
fn a_value_out_of_range_is_refused_with_the_range() {
    for knob in KNOBS {
        let above = (u128::from(knob.max) + 1).to_string();
        for text in [above.as_str(), "18446744073709551615", "18446744073709551616", "99999999999999999999999"] {
            set(knob.key, text).unwrap_err();
        }
        set(knob.key, &knob.max.to_string()).unwrap();
        set(knob.key, &knob.min.to_string()).unwrap();
        if let Some(below) = knob.min.checked_sub(1) {
            set(knob.key, &below.to_string()).unwrap_err();
        }
        assert_eq!(knob.min == 0, knob.zero.is_some(), "{}: 0 is allowed where it means something", knob.key);
    }
    // 16 EiB and more: the product must not wrap into range.
    set("wal_compact_trigger_bytes", "16777216TiB").unwrap_err();
    set("wal_max_data_age_secs", "213503982334d").unwrap_err();
    assert_eq!(
        set("compact_pass_target_bytes", "0").unwrap_err(),
        "`compact_pass_target_bytes`: `0` means nothing here; write a whole number of bytes, or one with \
         B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, from 1B to 1024TiB"
    );
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    for (written, meant) in [
        ("wal_compact_triger_count", "wal_compact_trigger_count"),
        ("WAL_COMPACT_PREFIX_MAX", "wal_compact_prefix_max"),
        ("collect-grace-secs", "collect_grace_secs"),
        ("collect_grace", "collect_grace_secs"),
    ] {
        let refused = set(written, "4").unwrap_err();
        assert_eq!(refused, format!("`{written}`: is not a setting; did you mean `{meant}`?"));
    }
    let refused = set("colour", "4").unwrap_err();
    assert!(refused.contains("the settings are wal_compaction_interval_secs, "), "{refused}");
    set(&"x".repeat(1 << 20), "4").unwrap_err();
}

#[test]
fn a_refused_value_changes_nothing_and_a_later_pair_wins() {
    let mut policy = Policy::default();
    policy.set("wal_compact_trigger_count", "0").unwrap_err();
    assert_eq!(policy, Policy::default());
    let pairs = [("wal_compact_trigger_count", "8"), ("wal_compact_trigger_count", "9")];
    assert_eq!(Policy::from_pairs(pairs).unwrap().trigger_count, 9);
}

#[test]
fn every_name_is_made_from_the_key() {
    for knob in KNOBS {
        assert_eq!(knob.env().to_ascii_lowercase(), knob.key);
        assert_eq!(knob.flag().replace('-', "_"), knob.key);
        assert!(knob.help.ends_with('.'), "{}", knob.help);
        let unit = match knob.unit {
            Unit::Seconds => knob.key.ends_with("_secs"),
            Unit::Bytes => knob.key.ends_with("_bytes"),
            Unit::Count => !knob.key.ends_with("_secs") && !knob.key.ends_with("_bytes"),
        };
        assert!(unit, "{}: the unit comes last", knob.key);
    }
    let mut keys: Vec<_> = KNOBS.iter().map(|knob| knob.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), KNOBS.len());
}

#[test]
fn each_knob_has_a_field_of_its_own() {
    for knob in KNOBS {
        let value = if knob.value(&Policy::default()) == knob.min { knob.max } else { knob.min };
        let policy = set(knob.key, &value.to_string()).unwrap();
        let moved: Vec<_> = KNOBS.iter().filter(|k| k.value(&policy) != k.value(&Policy::default())).collect();
        assert_eq!(moved.len(), 1);
        assert_eq!(moved[0].key, knob.key);
    }
}

#[test]
fn the_settings_file_explains_every_knob_and_holds_what_is_not_default() {
    let default = Policy::default().to_toml();
    assert!(default.lines().all(|line| line.is_empty() || line.starts_with('#')));
    for knob in KNOBS {
        assert!(default.contains(knob.help));
        assert!(default.contains(&format!("\n# {} = ", knob.key)));
        assert!(default.contains(&format!("Environment {}, flag --{}.", knob.env(), knob.flag())));
    }
    assert!(default.contains("\n# wal_compact_trigger_bytes = \"1GiB\"\n"));
    let set: Vec<_> = [("wal_compact_prefix_max", "8"), ("collect_grace_secs", "2h")].into();
    let text = Policy::from_pairs(set).unwrap().to_toml();
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(lines, ["wal_compact_prefix_max = 8", "collect_grace_secs = \"2h\""]);
}

#[test]
fn a_negative_value_is_refused_wherever_settings_are_read() {
    for knob in KNOBS {
        for text in ["-1", "-0", "-1s", "-1GiB"] {
            assert!(set(knob.key, text).unwrap_err().contains("is not a whole number"), "{} = {text}", knob.key);
        }
        let key = format!("caretaker.{}", knob.key);
        let policy = Policy::default();
        let of_table = policy.for_table(&[(key.clone(), "-1".to_string())].into()).complaints;
        assert_eq!(of_table.iter().map(|refused| &refused.key).collect::<Vec<_>>(), [&key]);
    }
    let lance = [("lance.auto_cleanup.interval", "-1"), ("lance.compaction.target_rows_per_fragment", "-1")];
    for (key, text) in lance {
        assert_eq!(Policy::default().for_table(&[(key.into(), text.into())].into()).complaints.len(), 1, "{key}");
    }
    for field in ["tick_ms", "trigger_bytes", "grace_ms"] {
        serde_json::from_value::<Policy>(serde_json::json!({ field: -1 })).unwrap_err();
    }
}

const AGE: &str = "cleanup_min_version_age_secs";

type Odd = (&'static [(&'static str, &'static str)], &'static str, &'static str, &'static str, &'static str);

/// What is set beside the value, the knob whose value is odd, that value, its nearest that is not, and
/// words of the remark.
const ODD: &[Odd] = &[
    (&[], "wal_compaction_interval_secs", "0", "1s", "the walk is off"),
    (&[], "wal_compaction_interval_secs", "601", "10m", "601s is longer than the sweep of 10m"),
    (&[], "wal_max_data_age_secs", "4s", "5s", "4s is shorter than the walk's period of 5s"),
    (&[], "wal_compact_trigger_count", "1", "2", "neither 1GiB nor an age of 7d"),
    (&[], "wal_compact_trigger_count", "33", "32", "33 SSTables make a fold due, but a pass takes 32"),
    (&[], "wal_compact_trigger_bytes", "255B", "256B", "more bytes than 255B"),
    (&[], "wal_compact_trigger_bytes", "3GiB", "2GiB", "3GiB make a fold due, but a pass takes 2GiB"),
    (&[], "retire_delay_secs", "0", "1s", "can miss the folded rows"),
    (&[("wal_max_data_age_secs", "5m")], "retire_delay_secs", "605", "604", "every 10m5s at the latest"),
    (&[], "collect_grace_secs", "0", "1h", "a grace of 0"),
    (&[], "collect_grace_secs", "59m", "1h", "a grace of 59m"),
    (&[], "answers_check_percent", "0", "1", "0 of 100 jobs"),
    (&[("index_unindexed_permille", "0")], "index_unindexed_rows_min", "1", "2", "an age of 1d never decides"),
    (&[], "index_unindexed_permille", "1000", "999", "1000 of 1000 rows"),
    (&[], "index_segments_max", "1", "2", "the second segment"),
    (&[], "compaction_small_fragments_min", "1", "2", "a neighbour of up to 512MiB"),
    (&[], "compaction_small_fragments_min", "100001", "100000", "a job takes 100000 at most"),
    (&[], "compaction_target_bytes", "1023KiB", "1MiB", "a table of 1GiB has 1025 of them"),
    (&[], "compaction_target_rows", "999", "1000", "a million rows has 1001 of them"),
    (&[], "compaction_deleted_permille", "0", "1", "its fragment of up to 512MiB"),
    (&[], "compaction_deleted_permille", "1000", "999", "1000 of 1000 rows are never exceeded"),
    (&[], "compaction_defer_remap", "1", "0", "loses index entries"),
    (&[], AGE, "59m", "1h", "a minimum age of 59m"),
    (&[(AGE, "7d")], "cleanup_version_interval", "1", "2", "stays for 7d: an interval of 1d"),
    (&[(AGE, "7d"), ("cleanup_retain_versions", "9")], "cleanup_initial_version", "9", "10", "its newest 9 versions"),
    (
        &[(AGE, "7d"), ("cleanup_interval_secs", "1h")],
        "cleanup_retry_delay_secs",
        "61m",
        "1h",
        "waits 61m, longer than",
    ),
    (&[], "cleanup_retain_versions", "5", "0", "5 counts for nothing: cleanup is off"),
    (&[], "cleanup_interval_secs", "2h", "1d", "2h counts for nothing: cleanup is off"),
    (&[], "agent_tick_secs", "601", "10m", "the sweep of 10m is shorter than the agent's period of 601s"),
    (&[], "agent_budget", "1", "2", "half of 1 is 0"),
    (&[], "agent_backoff_secs", "601", "10m", "601s is longer than the sweep of 10m"),
    (&[], "agent_evaluation_timeout_secs", "1h", "10m", "from 6 sweeps of 10m"),
];

#[test]
fn an_odd_value_gets_exactly_its_remark_and_the_value_beside_it_none() {
    for (beside, key, odd, right, said) in ODD {
        let lint = |text| Policy::from_pairs(beside.iter().copied().chain([(*key, text)])).unwrap().lint();
        assert_eq!(lint(right), [], "{key} = {right}");
        let found = lint(odd);
        assert_eq!(found.len(), 1, "{key} = {odd}: {found:?}");
        // Where two knobs contradict each other, the one that does nothing is named.
        let named = if *key == "agent_tick_secs" { "agent_sweep_interval_secs" } else { key };
        assert_eq!(found[0].key, named);
        assert!(found[0].why.contains(said), "{key} = {odd}: {}", found[0].why);
    }
}

#[test]
fn to_defer_remaps_and_to_make_each_due_at_once_is_remarked_on() {
    let keys = |rewrites| {
        let pairs = [("compaction_defer_remap", "1"), ("remap_rewrites_min", rewrites)];
        Policy::from_pairs(pairs).unwrap().lint().into_iter().map(|lint| lint.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("1"), ["compaction_defer_remap", "remap_rewrites_min"]);
    assert_eq!(keys("2"), ["compaction_defer_remap"]);
}

#[test]
fn what_a_pass_or_a_neighbour_bounds_is_remarked_on_whichever_of_the_two_was_set() {
    for (key, text, named) in [
        ("compact_pass_target_bytes", "1MiB", "wal_compact_trigger_bytes"),
        ("wal_compact_prefix_max", "3", "wal_compact_trigger_count"),
        ("compaction_fragments_max", "3", "compaction_small_fragments_min"),
    ] {
        let lints = set(key, text).unwrap().lint();
        assert_eq!(lints.iter().map(|lint| lint.key.as_str()).collect::<Vec<_>>(), [named]);
    }
}
