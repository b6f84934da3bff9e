//! Settings held against a table: each remark is provoked on purpose, and the right value beside it gets
//! none.
#![allow(clippy::unwrap_used)]

use planner::facts::{FragmentFacts, GarbageFacts, GarbageKind, IndexFacts, ShardFacts, SsTableFacts, TableFacts};
use planner::lint::{self, EVALUATION, JobSpent, Lint, Pinned, Seen, WALK};
use planner::policy::{MIB, Policy};
use planner::time::{HOUR_MS, MINUTE_MS, SECOND_MS};

const AGE: &str = "cleanup_min_version_age_secs";
const WEEK: (&str, &str) = (AGE, "7d");

fn policy(pairs: &[(&str, &str)]) -> Policy {
    Policy::from_pairs(pairs.iter().copied()).unwrap()
}

fn table(pairs: &[(&str, &str)], facts: &TableFacts, seen: &Seen) -> Vec<Lint> {
    lint::table(&policy(pairs), facts, seen)
}

/// Exactly one remark, on this knob, with these words in it.
#[track_caller]
fn one(found: &[Lint], key: &str, said: &str) {
    assert_eq!(found.iter().map(|lint| lint.key.as_str()).collect::<Vec<_>>(), [key], "{found:?}");
    assert!(found[0].why.contains(said), "{}", found[0].why);
}

/// Fragments of a million rows in all, each of `width` bytes.
fn rows_of(width: u64) -> TableFacts {
    let fragment = |id| FragmentFacts { id, rows: 100_000, bytes: Some(100_000 * width), ..FragmentFacts::default() };
    TableFacts { fragments: Some((0..10).map(fragment).collect()), ..TableFacts::default() }
}

fn with_index(kind: &str) -> TableFacts {
    let index = IndexFacts { name: "by_text".into(), kind: kind.into(), ..IndexFacts::default() };
    TableFacts { rows: Some(5_000), indexes: vec![index], ..TableFacts::default() }
}

fn with_sstables(sizes: &[u64]) -> TableFacts {
    let sstable = |(at, bytes): (usize, &u64)| SsTableFacts {
        generation: at as u64 + 1,
        path: format!("g{at}"),
        bytes: Some(*bytes),
        rows: None,
        flushed_at_ms: None,
    };
    let sstables = sizes.iter().enumerate().map(sstable).collect();
    TableFacts { shards: vec![ShardFacts { sstables, ..ShardFacts::default() }], ..TableFacts::default() }
}

/// Two unlisted SSTables of 20 MiB, generations 3 and 4; the base version 12 needs what is above `retained`.
fn with_garbage(retained: u64) -> TableFacts {
    let file = |position| GarbageFacts {
        kind: GarbageKind::SsTable,
        path: format!("g{position}"),
        position,
        bytes: 20 * MIB,
        since_ms: Some(0),
    };
    let shard = ShardFacts {
        compacted_generation: 4,
        retained_generation: Some(retained),
        retained_by: Some("version 12".into()),
        garbage: Some(vec![file(3), file(4)]),
        ..ShardFacts::default()
    };
    TableFacts { shards: vec![shard], ..TableFacts::default() }
}

fn read(ms: u64) -> Seen {
    Seen { longest_read_ms: Some(ms), ..Seen::default() }
}

fn spent(kind: &str, millis: &[u64]) -> Seen {
    let job = |millis: &u64| JobSpent { kind: kind.into(), millis: *millis };
    Seen { jobs: millis.iter().map(job).collect(), ..Seen::default() }
}

fn pinned(by: &str, version: u64, bytes: u64) -> Pinned {
    Pinned { by: by.into(), versions: vec![version], bytes: Some(bytes) }
}

#[test]
fn the_defaults_have_no_remark_on_an_ordinary_table() {
    for width in [1, 100, 512, 5_000, 100_000] {
        let facts = TableFacts {
            shards: with_sstables(&[64 * MIB; 3]).shards,
            indexes: with_index("fm").indexes,
            ..rows_of(width)
        };
        let seen = Seen { jobs: spent("compact", &[5 * MINUTE_MS]).jobs, ..read(HOUR_MS) };
        assert_eq!(table(&[], &facts, &seen), [], "{width} bytes a row");
    }
    assert_eq!(table(&[], &TableFacts::default(), &Seen::default()), []);
}

#[test]
fn versions_that_go_before_the_longest_read_ends() {
    let (facts, seen) = (TableFacts::default(), read(2 * HOUR_MS));
    one(&table(&[(AGE, "1h")], &facts, &seen), AGE, "the longest read took 2h, and a version may go when it is 1h old");
    let retained = [(AGE, "1h"), ("cleanup_retain_versions", "9")];
    one(&table(&retained, &facts, &seen), AGE, "1h old, once 9 newer ones are there");
    assert_eq!(table(&[(AGE, "2h")], &facts, &seen), []);
    // Without cleanup no version goes.
    assert_eq!(table(&[], &facts, &seen), []);
    let opted_out = [("caretaker.cleanup.enabled".to_string(), "false".to_string())].into();
    assert_eq!(table(&[(AGE, "1h")], &TableFacts { overrides: opted_out, ..facts }, &seen), []);
}

#[test]
fn files_that_go_before_the_longest_read_ends() {
    let (facts, grace) = (with_sstables(&[MIB]), "collect_grace_secs");
    one(&table(&[(grace, "1h")], &facts, &read(HOUR_MS + 1)), grace, "nothing has listed them for 1h");
    assert_eq!(table(&[(grace, "1h")], &facts, &read(HOUR_MS)), []);
    assert_eq!(table(&[(grace, "1h")], &TableFacts::default(), &read(2 * HOUR_MS)), []);
}

#[test]
fn a_size_that_the_row_target_never_reaches() {
    let key = "compaction_target_bytes";
    let found = table(&[(key, "4GiB")], &rows_of(100), &Seen::default());
    one(&found, key, "a row has 100 bytes on average, so the 1048576 rows that a fragment has at most are 100M: 4GiB");
    // A rewrite leaves less than twice its row target, which is just not enough.
    one(&table(&[(key, "200MiB")], &rows_of(100), &Seen::default()), key, "200MiB are never reached");
    assert_eq!(table(&[(key, "199MiB")], &rows_of(100), &Seen::default()), []);
    // The other knob was set, and does it.
    one(&table(&[("compaction_target_rows", "10000")], &rows_of(100), &Seen::default()), key, "are 976K: 512MiB");
}

#[test]
fn a_row_that_is_larger_than_a_fragment_may_be() {
    let key = "compaction_target_bytes";
    let found = table(&[(key, "1MiB")], &rows_of(2 * MIB), &Seen::default());
    one(&found, key, "a row has 2M on average, more than 1MiB: every row");
    assert_eq!(table(&[(key, "2MiB")], &rows_of(2 * MIB), &Seen::default()), []);
}

#[test]
fn rows_that_the_size_target_never_holds() {
    let key = "compaction_target_rows";
    let found = table(&[(key, "8388608")], &rows_of(512), &Seen::default());
    one(&found, key, "512 bytes on average, so 512MiB hold 1048576 rows: 8388608 are never reached");
    assert_eq!(table(&[(key, "2097151")], &rows_of(512), &Seen::default()), []);
}

#[test]
fn a_compaction_that_ends_after_one_fragment() {
    let (key, facts) = ("compaction_job_bytes", rows_of(5_120));
    one(&table(&[(key, "511MiB")], &facts, &Seen::default()), key, "a job rewrites 511MiB at most");
    assert_eq!(table(&[(key, "512MiB")], &facts, &Seen::default()), []);
}

#[test]
fn remaps_that_the_table_can_not_defer() {
    let (key, pairs) = ("compaction_defer_remap", [("compaction_defer_remap", "1")]);
    one(&table(&pairs, &with_index("fm"), &Seen::default()), key, "index by_text can't wait");
    let stable = TableFacts { stable_row_ids: true, ..with_index("btree") };
    one(&table(&pairs, &stable, &Seen::default()), key, "stable row ids");
    assert_eq!(table(&pairs, &with_index("btree"), &Seen::default()), []);
}

#[test]
fn more_unindexed_rows_than_the_table_has() {
    let key = "index_unindexed_rows_min";
    let found = table(&[(key, "5001")], &with_index("btree"), &Seen::default());
    one(&found, key, "the table has 5000 rows, so 5001 unindexed ones can't come together");
    assert_eq!(table(&[(key, "5000")], &with_index("btree"), &Seen::default()), []);
}

#[test]
fn triggers_of_the_fold_that_decide_always_or_never() {
    let (bytes, count, pass) = ("wal_compact_trigger_bytes", "wal_compact_trigger_count", "compact_pass_target_bytes");
    let (facts, none) = (with_sstables(&[70 * MIB, 64 * MIB, 64 * MIB]), Seen::default());
    one(&table(&[(bytes, "64MiB")], &facts, &none), bytes, "the 3 listed SSTables have 64M or more, so each makes");
    assert_eq!(table(&[(bytes, "65MiB")], &facts, &none), []);
    one(&table(&[(bytes, "281MiB")], &facts, &none), bytes, "that is 280M at most, and 281MiB are never reached");
    assert_eq!(table(&[(bytes, "280MiB")], &facts, &none), []);
    one(&table(&[(count, "17")], &facts, &none), count, "fewer than 17 make a fold due by 1GiB");
    assert_eq!(table(&[(count, "16")], &facts, &none), []);
    let small = [(pass, "127MiB"), (bytes, "100MiB")];
    one(&table(&small, &facts, &none), pass, "the smallest two of the 3 listed SSTables have 128M");
    assert_eq!(table(&[(pass, "128MiB"), (bytes, "100MiB")], &facts, &none), []);
    // Of one SSTable that is not measured nobody knows on which side it is.
    let mut unmeasured = facts;
    unmeasured.shards[0].sstables[1].bytes = None;
    assert_eq!(table(&[(bytes, "64MiB")], &unmeasured, &none), []);
}

#[test]
fn intervals_that_are_over_before_their_job_is() {
    const MIN: u64 = MINUTE_MS;
    // The kind, the knob, a value that is too short, what half of its jobs took, the right value, the words.
    for (kind, key, short, took, right, said) in [
        (
            "memwal_compaction",
            "wal_compaction_interval_secs",
            "5s",
            42 * SECOND_MS,
            "42s",
            "8 looks find the same pass",
        ),
        ("memwal_compaction", "wal_max_data_age_secs", "4m", 5 * MIN, "5m", "is 4m old before it ends"),
        (WALK, "wal_compaction_interval_secs", "5s", 8 * SECOND_MS, "8s", "waits for the one before"),
        (
            EVALUATION,
            "agent_evaluation_timeout_secs",
            "30s",
            40 * SECOND_MS,
            "40s",
            "after 30s an evaluation has failed",
        ),
        ("compact", "agent_sweep_interval_secs", "10m", 60 * MIN, "1h", "6 times it finds the same job at work"),
        ("memwal_catchup_btree", "agent_sweep_interval_secs", "2m", 3 * MIN, "3m", "comes every 2m"),
        ("reindex_fts", "index_unindexed_age_secs", "8m", 9 * MIN, "9m", "is 8m old before it ends"),
        ("remap", "remap_age_secs", "8m", 9 * MIN, "9m", "is 8m old before it ends"),
        ("cleanup", "cleanup_interval_secs", "1h", 61 * MIN, "61m", "the next is due 1h after its end"),
    ] {
        // Only this knob counts here: some values are odd beside others, too.
        let keys = |value, seen: &Seen| {
            let found = table(&[WEEK, (key, value)], &TableFacts::default(), seen);
            found.into_iter().filter(|lint| lint.key == key).collect::<Vec<_>>()
        };
        one(&keys(short, &spent(kind, &[took])), key, said);
        assert!(keys(short, &spent(kind, &[took]))[0].why.contains(&format!("`{kind}` took ")));
        assert_eq!(keys(right, &spent(kind, &[took])), [], "{key} = {right}");
        // One that was slow is no rule; half of them are.
        assert_eq!(keys(short, &spent(kind, &[took, 1, 1])), []);
        one(&keys(short, &spent(kind, &[took, took, 1])), key, "half of 3 times");
    }
}

#[test]
fn an_evaluation_that_is_longer_than_the_sweep() {
    let pairs = |sweep| [("agent_sweep_interval_secs", sweep), ("agent_backoff_secs", "1s")];
    let seen = spent(EVALUATION, &[59 * SECOND_MS]);
    let found = table(&pairs("58s"), &TableFacts::default(), &seen);
    one(&found, "agent_sweep_interval_secs", "the table is read without a pause");
    assert_eq!(table(&pairs("59s"), &TableFacts::default(), &seen), []);
}

#[test]
fn a_walk_and_a_cleanup_that_are_off_are_never_too_short() {
    let seen = Seen {
        jobs: [spent("memwal_compaction", &[HOUR_MS]).jobs, spent("cleanup", &[u64::MAX]).jobs].concat(),
        ..Seen::default()
    };
    assert_eq!(table(&[("wal_compaction_interval_secs", "0")], &TableFacts::default(), &seen), []);
}

#[test]
fn tags_and_branches_keep_what_cleanup_would_remove() {
    let pins = vec![pinned("tag `v1`", 12, 20 << 20), pinned("branch `b`", 3, 1 << 20)];
    let seen = |removable_bytes| Seen { pinned: pins.clone(), removable_bytes, ..Seen::default() };
    let found = table(&[WEEK], &TableFacts::default(), &seen(Some(0)));
    one(&found, AGE, "2 versions older than 7d stay for branch `b`, tag `v1`, and with them 21M");
    assert!(found[0].why.contains("due every 20 versions or 1d, leaves them; it would free 0 now"), "{}", found[0].why);
    one(&table(&[WEEK], &TableFacts::default(), &seen(None)), AGE, "and with them 21M");
    // As much goes beside them; they hold nothing; cleanup is off.
    assert_eq!(table(&[WEEK], &TableFacts::default(), &seen(Some(21 << 20))), []);
    let empty = Seen { pinned: vec![pinned("tag `v1`", 12, 0)], ..Seen::default() };
    assert_eq!(table(&[WEEK], &TableFacts::default(), &empty), []);
    assert_eq!(table(&[], &TableFacts::default(), &seen(Some(0))), []);
}

#[test]
fn sstables_that_a_tag_keeps_for_longer_than_the_grace() {
    let seen = |version| Seen { pinned: vec![pinned("tag `v1`", version, 0)], ..Seen::default() };
    let found = table(&[WEEK], &with_garbage(3), &seen(12));
    one(
        &found,
        "collect_grace_secs",
        "20M of unlisted SSTables (1) stay past their grace of 1d for as long as tag `v1`",
    );
    assert_eq!(table(&[WEEK], &with_garbage(4), &seen(12)), []);
    // A version that is only young goes one day.
    assert_eq!(table(&[WEEK], &with_garbage(3), &seen(11)), []);
}

#[test]
fn sstables_that_no_grace_frees_while_cleanup_is_off() {
    let none = Seen::default();
    let found = table(&[], &with_garbage(2), &none);
    one(&found, AGE, "40M of unlisted SSTables (2) stay for version 12, and as cleanup is off");
    assert_eq!(table(&[], &with_garbage(4), &none), []);
    assert_eq!(table(&[WEEK], &with_garbage(2), &none), []);
    let mut opted_out = with_garbage(2);
    opted_out.overrides.insert("caretaker.cleanup.enabled".into(), "false".into());
    one(&table(&[WEEK], &opted_out, &none), "caretaker.cleanup.enabled", "no version ever goes");
    // When nobody could tell what versions need, nothing is sure.
    let mut unknown = with_garbage(2);
    unknown.shards[0].retained_generation = None;
    assert_eq!(table(&[], &unknown, &none), []);
}

#[test]
fn a_clone_that_stops_every_cleanup() {
    let facts = TableFacts { clones: vec!["copy".into()], ..TableFacts::default() };
    one(&table(&[WEEK], &facts, &Seen::default()), AGE, "shallow clones read the table's files (copy)");
    assert_eq!(table(&[], &facts, &Seen::default()), []);
    let many = TableFacts { clones: ["d", "c", "b", "a"].map(String::from).into(), ..facts };
    one(&table(&[WEEK], &many, &Seen::default()), AGE, "(a, b, c and 1 more)");
}

#[test]
fn more_versions_stay_than_there_are() {
    let (key, facts) = ("cleanup_retain_versions", TableFacts { versions: Some(9), ..TableFacts::default() });
    one(&table(&[WEEK, (key, "9")], &facts, &Seen::default()), key, "the table has 9 versions, and the newest 9 stay");
    assert_eq!(table(&[WEEK, (key, "8")], &facts, &Seen::default()), []);
}

#[test]
fn a_table_s_own_choice_is_remarked_on_and_the_deployment_s_is_not() {
    let own =
        |key: &str, text: &str| TableFacts { overrides: [(key.into(), text.into())].into(), ..TableFacts::default() };
    let (grace, none) = ("collect_grace_secs", Seen::default());
    one(&table(&[], &own("caretaker.collect_grace_secs", "59m"), &none), grace, "a grace of 59m");
    assert_eq!(table(&[], &own("caretaker.collect_grace_secs", "1h"), &none), []);
    assert_eq!(table(&[(grace, "59m")], &TableFacts::default(), &none), []);
    // Its own value is what counts for the longest read.
    assert_eq!(table(&[(AGE, "1h")], &own("caretaker.cleanup_min_version_age_secs", "2h"), &read(2 * HOUR_MS)), []);
}

#[test]
fn a_minimum_age_of_the_table_that_counts_for_nothing() {
    let key = "caretaker.cleanup_min_version_age_secs";
    let own = |text: &str| TableFacts { overrides: [(key.into(), text.into())].into(), ..TableFacts::default() };
    let none = Seen::default();
    one(&table(&[], &own("30d"), &none), key, "30d counts for nothing: the deployment's is 0");
    one(&table(&[WEEK], &own("1d"), &none), key, "1d counts for nothing: the deployment keeps versions for 7d");
    one(&table(&[WEEK], &own("0"), &none), key, "`caretaker.cleanup.enabled = false` keeps them all");
    assert_eq!(table(&[WEEK], &own("7d"), &none), []);
    assert_eq!(table(&[WEEK], &own("30d"), &none), []);
}

#[test]
fn what_was_measured_may_be_left_out() {
    let seen: Seen =
        serde_json::from_str(r#"{"jobs":[{"kind":"compact","millis":7}],"pinned":[{"by":"tag","versions":[1]}]}"#)
            .unwrap();
    assert_eq!((seen.longest_read_ms, seen.jobs.len(), seen.pinned[0].bytes), (None, 1, None));
    assert_eq!(serde_json::from_str::<Seen>("{}").unwrap(), Seen::default());
    serde_json::from_str::<Seen>(r#"{"longest_read_ms":-1}"#).unwrap_err();
}
