//! The text is parsed strictly, line by line.

use std::collections::BTreeMap;

use planner::facts::{IndexFacts, RemapFacts, ShardFacts, SsTableFacts};

use super::*;
use crate::decide::Decider;
use crate::pod::{Bounds, Pressure};
use crate::run::fold::FoldReport;

/// A series: its name and its labels.
type Series = (String, BTreeMap<String, String>);

/// Parses the text format (version 0.0.4), and refuses whatever it does not allow.
fn parse(text: &str) -> BTreeMap<Series, f64> {
    let mut found = BTreeMap::new();
    assert!(text.ends_with('\n'), "the last line must end, too");
    for line in text.lines().filter(|line| !line.starts_with("# HELP ") && !line.starts_with("# TYPE ")) {
        let end = line.find(['{', ' ']).expect(line);
        let (name, rest) = line.split_at(end);
        let first = name.chars().next().expect(line);
        assert!(first.is_ascii_alphabetic() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest),
            None => (BTreeMap::new(), rest),
        };
        let value = value.strip_prefix(' ').expect(line).parse().expect(line);
        assert!(found.insert((name.to_string(), labels), value).is_none(), "twice: {line}");
    }
    found
}

/// Labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut found = BTreeMap::new();
    loop {
        let (name, quoted) = rest.split_once("=\"").expect(rest);
        let (mut value, mut chars) = (String::new(), quoted.char_indices());
        let end = loop {
            match chars.next().expect("a label value ends") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().expect("an escape ends").1 {
                    'n' => '\n',
                    same @ ('\\' | '"') => same,
                    other => panic!("`\\{other}` is no escape"),
                }),
                (_, plain) => value.push(plain),
            }
        };
        assert!(found.insert(name.to_string(), value).is_none(), "label `{name}` twice");
        rest = &quoted[end + 1..];
        match rest.split_at(1) {
            (",", more) => rest = more,
            ("}", more) => return (found, more),
            other => panic!("{other:?}"),
        }
    }
}

fn metrics() -> Metrics {
    Metrics::new(Some(Arc::new(ObjectStore::memory()))).expect("they fit together")
}

fn read(metrics: &Metrics, now_ms: u64) -> BTreeMap<Series, f64> {
    parse(&metrics.text(now_ms).expect("text"))
}

fn of_table(found: &BTreeMap<Series, f64>, metric: &str, table: &str) -> Option<f64> {
    found.get(&(metric.to_string(), BTreeMap::from([("table".to_string(), table.to_string())]))).copied()
}

fn facts(table: &str) -> TableFacts {
    let sstable = |generation, flushed_at_ms| SsTableFacts {
        generation,
        path: format!("gen_{generation}"),
        bytes: Some(100),
        rows: None,
        flushed_at_ms: Some(flushed_at_ms),
    };
    TableFacts {
        table: table.into(),
        version: 7,
        shards: vec![ShardFacts {
            shard: "s".into(),
            sstables: vec![sstable(1, 1_000), sstable(2, 2_000), sstable(3, 3_000)],
            compacted_generation: 1,
            ..ShardFacts::default()
        }],
        indexes: [3, 5].map(|n| IndexFacts { unindexed_rows: Some(n), ..IndexFacts::default() }).to_vec(),
        ..TableFacts::default()
    }
}

fn names(tables: &[&str]) -> BTreeSet<String> {
    tables.iter().map(ToString::to_string).collect()
}

#[test]
fn cov_06_odd_table_names_are_escaped() {
    let (metrics, long) = (metrics(), "x".repeat(200));
    let odd = ["a\"b", "line\nbreak", "ü.ñ", "x{y=\"z\"}", "back\\slash\\n", &long];
    metrics.owned(&names(&odd));
    odd.iter().for_each(|table| metrics.table(table, &facts(table), 5_000));
    let found = read(&metrics, 5_000);
    for table in odd {
        assert_eq!(of_table(&found, "caretaker_table_version", table), Some(7.0), "{table}");
    }
}

#[test]
fn cov_02_series_of_a_table_that_is_gone_go_away() {
    let metrics = metrics();
    metrics.owned(&names(&["a", "b"]));
    ["a", "b"].iter().for_each(|table| metrics.table(table, &facts(table), 5_000));
    metrics.failing("b", 2);
    assert_eq!(of_table(&read(&metrics, 5_000), "caretaker_table_failures", "b"), Some(2.0));
    metrics.owned(&names(&["a"]));
    let found = read(&metrics, 5_000);
    let of = |name: &str| found.keys().filter(|(_, l)| l.get("table").is_some_and(|t| t == name)).count();
    assert!(of("a") > 5 && of("b") == 0);
    assert_eq!(found[&("caretaker_tables".to_string(), BTreeMap::new())], 1.0);
}

#[test]
fn ages_go_on_while_nothing_is_evaluated() {
    let metrics = metrics();
    metrics.owned(&names(&["a"]));
    metrics.table("a", &facts("a"), 5_000);
    let found = read(&metrics, 65_000);
    let value = |metric| of_table(&found, metric, "a");
    assert_eq!(value("caretaker_table_unfolded_sstables"), Some(2.0));
    assert_eq!(value("caretaker_table_unfolded_bytes"), Some(200.0));
    assert_eq!(value("caretaker_table_oldest_unfolded_age_seconds"), Some(63.0));
    assert_eq!(value("caretaker_table_success_age_seconds"), Some(60.0));
    assert_eq!(value("caretaker_table_unindexed_rows"), Some(5.0));
    assert_eq!(value("caretaker_table_fragments"), None, "what was not measured has no series");
}

#[test]
fn r5_1_coverage_is_exported_under_its_names() {
    let metrics = metrics();
    let coverage = |cycles| Coverage { never_evaluated: 3, cycles_completed_total: cycles, ..Coverage::default() };
    metrics.ticked(&coverage(1), 2, 9_000);
    metrics.ticked(&coverage(4), 2, 9_000);
    let found = read(&metrics, 9_000);
    for (name, value) in coverage(4).metrics() {
        assert_eq!(found[&(name.to_string(), BTreeMap::new())], value as f64, "{name}");
    }
}

/// Everything the process has ever to tell, once.
fn everything() -> BTreeMap<Series, f64> {
    let metrics = metrics();
    metrics.owned(&names(&["a"]));
    let remap = Some(RemapFacts { rewrites: 2, oldest_at_ms: Some(0), indexes: Vec::new() });
    let measured = TableFacts { rows: Some(1), fragments: Some(Vec::new()), remap, ..facts("a") };
    metrics.table("a", &measured, 1_000);
    metrics.evaluated("done", Some(Duration::from_millis(30)));
    metrics.listed(0, 1_000);
    metrics.ticked(&Coverage::default(), 0, 1_000);
    metrics.jobs((0, 0), 1);
    metrics.pod(&Pod::new(Pressure::new(Bounds::default())));
    metrics.policy(&Decider::default());
    metrics.answered("/healthz", 200, Duration::from_millis(1));
    let folded = FoldReport { rows_inserted: 3, bytes_written: 90, ..FoldReport::default() };
    let end = JobEnd::Folded(folded);
    metrics.job(&JobReport::new("memwal_compaction", Vec::new(), 1_500, end));
    read(&metrics, 1_000)
}

#[test]
fn jobs_are_counted_by_type_and_outcome_with_seconds_rows_and_bytes() {
    let found = everything();
    let of = |name: &str, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        found.get(&(name.to_string(), labels)).copied()
    };
    let kind = ("type", "memwal_compaction");
    assert_eq!(of("caretaker_jobs_total", &[kind, ("outcome", "done")]), Some(1.0));
    assert_eq!(of("caretaker_job_seconds_sum", &[kind]), Some(1.5));
    assert_eq!(of("caretaker_job_seconds_bucket", &[kind, ("le", "1")]), Some(0.0));
    assert_eq!(of("caretaker_job_rows_total", &[kind]), Some(3.0));
    assert_eq!(of("caretaker_job_bytes_total", &[kind]), Some(90.0));
}

#[test]
fn the_dashboard_and_the_alerts_ask_only_for_metrics_that_there_are() {
    let exported: BTreeSet<String> = everything().into_keys().map(|(name, _)| name).collect();
    let dashboard = include_str!("../../../ops/dashboard.json");
    serde_json::from_str::<serde_json::Value>(dashboard).expect("the dashboard is JSON");
    for (file, text, least) in [("dashboard", dashboard, 15), ("alerts", include_str!("../../../ops/alerts.yml"), 8)] {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let asked: BTreeSet<&str> =
            words.filter(|word| word.starts_with("caretaker_") || word.starts_with("lance_agent_")).collect();
        let missing: Vec<_> = asked.iter().filter(|name| !exported.contains(**name)).collect();
        assert!(missing.is_empty(), "{file}: {missing:?}");
        assert!(asked.len() >= least, "{file} asks for {asked:?} only");
    }
}
