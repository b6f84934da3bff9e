//! What a restart, a failure and another process do to the registry.

use std::path::Path;

use planner::facts::{FailedFacts, IndexFacts, TableFacts};

use super::*;
use crate::error::Error;
use crate::report::{JobEnd, JobReport};
use crate::run::cleanup::CleanupReport;

const T: &str = "/db/t.lance";

fn place(dir: &Path) -> Place {
    Place::Folder(dir.into())
}

fn job(job: &str, end: JobEnd) -> JobReport {
    JobReport::new(job, Vec::new(), 5, end)
}

fn cleaned(start_version: u64, end_version: u64) -> JobReport {
    job("cleanup", JobEnd::Cleaned(CleanupReport { start_version, end_version, ..CleanupReport::default() }))
}

fn failed(kind: &str) -> JobReport {
    job(kind, JobEnd::Failed { kind: "retry", why: "storage".into() })
}

fn superseded(kind: &str) -> JobReport {
    job(kind, JobEnd::Superseded { why: "another".into() })
}

fn lagging(indexes: &[(&str, u64)]) -> TableFacts {
    let index = |(name, rows): &(&str, u64)| IndexFacts {
        name: (*name).into(),
        unindexed_rows: Some(*rows),
        ..IndexFacts::default()
    };
    TableFacts { indexes: indexes.iter().map(index).collect(), ..TableFacts::default() }
}

async fn completed(registry: &Registry, uri: &str, now_ms: u64) -> TableFacts {
    let mut facts = lagging(&[("i", 3)]);
    registry.complete(uri, &mut facts, now_ms).await.expect("it can be read");
    facts
}

fn marks(facts: &TableFacts) -> (Option<(u64, u64, u64)>, Option<u64>) {
    let cleanup = facts.cleanup.as_ref().expect("it was read");
    let success = cleanup.last_success.map(|s| (s.start_version, s.finished_at_ms, s.recorded_version));
    (success, cleanup.last_failure_at_ms)
}

#[tokio::test]
async fn the_registry_outlives_a_restart_and_is_the_tables_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let registry = Registry::open(&place(dir.path())).await.expect("a new file");
    completed(&registry, T, 1_000).await;
    registry.record(T, &cleaned(100, 103), 2_000).await.expect("written");
    for at in [3_000, 4_000] {
        registry.record(T, &failed("compact"), at).await.expect("written");
    }
    drop(registry);
    let again = Registry::open(&place(dir.path())).await.expect("the same file");
    let facts = completed(&again, T, 9_000).await;
    assert_eq!(marks(&facts), (Some((100, 2_000, 103)), None));
    assert_eq!(facts.failed, [FailedFacts { kind: "compact".into(), times: 2, last_at_ms: 4_000 }]);
    assert_eq!(facts.indexes[0].unindexed_since_ms, Some(1_000));
    let results = again.results(T, 10).await.expect("read");
    let told: Vec<_> = results.iter().map(|r| (r.job.as_str(), r.outcome.as_str(), r.ended_at_ms)).collect();
    assert_eq!(told, [("compact", "failed", 4_000), ("compact", "failed", 3_000), ("cleanup", "done", 2_000)]);
    let other = completed(&again, "/db/other.lance", 9_000).await;
    assert_eq!((marks(&other), other.failed.len()), ((None, None), 0));
}

#[tokio::test]
async fn pln_03_a_run_that_failed_or_lost_a_race_moves_no_mark_of_the_last_success() {
    let registry = Registry::default();
    registry.record(T, &cleaned(100, 100), 1_000).await.expect("written");
    registry.record(T, &failed("cleanup"), 2_000).await.expect("written");
    registry.record(T, &superseded("cleanup"), 3_000).await.expect("written");
    let facts = completed(&registry, T, 4_000).await;
    assert_eq!(marks(&facts), (Some((100, 1_000, 100)), Some(2_000)));
    assert_eq!(facts.failed.iter().map(|f| f.times).collect::<Vec<_>>(), [1], "a lost race is no failure");
    registry.record(T, &cleaned(150, 151), 5_000).await.expect("written");
    let facts = completed(&registry, T, 6_000).await;
    assert_eq!((marks(&facts), facts.failed.len()), ((Some((150, 5_000, 151)), Some(2_000)), 0));
}

#[tokio::test]
async fn an_index_lacks_rows_since_it_was_first_seen_to() {
    let registry = Registry::default();
    let since = async |indexes: &[(&str, u64)], now_ms| {
        let mut facts = lagging(indexes);
        registry.complete(T, &mut facts, now_ms).await.expect("read");
        facts.indexes.into_iter().map(|index| index.unindexed_since_ms).collect::<Vec<_>>()
    };
    assert_eq!(since(&[("a", 1), ("b", 0)], 10).await, [Some(10), None]);
    assert_eq!(since(&[("a", 9), ("b", 2)], 20).await, [Some(10), Some(20)]);
    assert_eq!(since(&[("b", 2)], 30).await, [Some(20)]);
    assert_eq!(since(&[("a", 1), ("b", 0)], 40).await, [Some(40), None], "it was dropped, and made anew");
    assert_eq!(since(&[("b", 1)], 50).await, [Some(50)]);
}

#[tokio::test]
async fn the_last_success_is_of_any_kind_and_no_failure_or_lost_race() {
    let registry = Registry::default();
    assert_eq!(registry.last_success(T).await.expect("read"), None);
    for (n, ended) in [cleaned(1, 2), failed("compact"), superseded("memwal_compaction")].iter().enumerate() {
        registry.record(T, ended, 1_000 + n as u64).await.expect("written");
    }
    let last = LastSuccess { job: "cleanup".into(), ended_at_ms: 1_000 };
    assert_eq!(registry.last_success(T).await.expect("read"), Some(last));
    assert_eq!(registry.last_success("/other").await.expect("read"), None);
}

#[tokio::test]
async fn two_processes_may_write_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let (one, two) = (
        Registry::open(&place(dir.path())).await.expect("new"),
        Registry::open(&place(dir.path())).await.expect("open"),
    );
    let write = async |registry: &Registry, uri: &str| {
        for n in 0..50 {
            registry.record(uri, &failed("compact"), n).await.expect("the other waits");
        }
    };
    tokio::join!(write(&one, T), write(&two, T));
    assert_eq!(completed(&one, T, 99).await.failed[0].times, 100);
}

#[tokio::test]
async fn a_look_changes_nothing_and_needs_no_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let looked = Registry::look(&place(&dir.path().join("none"))).await.expect("an empty one");
    assert_eq!(completed(&looked, T, 7).await.indexes[0].unindexed_since_ms, Some(7));
    assert!(!dir.path().join("none").exists());
    let written = Registry::open(&place(dir.path())).await.expect("new");
    written.record(T, &cleaned(1, 1), 5).await.expect("written");
    let looked = Registry::look(&place(dir.path())).await.expect("there is one");
    let facts = completed(&looked, T, 7).await;
    assert_eq!((marks(&facts).0, facts.indexes[0].unindexed_since_ms), (Some((1, 5, 1)), Some(7)));
    assert_eq!(completed(&written, T, 9).await.indexes[0].unindexed_since_ms, Some(9), "the look noted nothing");
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let registry = Registry::open(&place(dir.path())).await.expect("new");
    sqlx::raw_sql("PRAGMA user_version = 99").execute(&registry.store.pool()).await.expect("set");
    drop(registry);
    for refused in [Registry::open(&place(dir.path())).await, Registry::look(&place(dir.path())).await] {
        let why = refused.expect_err("newer").to_string();
        assert!(why.contains("caretaker.sqlite") && why.contains("schema 99") && why.contains("--state-dir"), "{why}");
    }
}

#[tokio::test]
async fn a_file_that_is_damaged_or_can_not_be_written_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("caretaker.sqlite"), "no database at all, but long enough".repeat(40))
        .expect("file");
    for refused in [Registry::open(&place(dir.path())).await, Registry::look(&place(dir.path())).await] {
        let error = refused.expect_err("damaged");
        assert!(
            matches!(&error, Error::Invalid(why) if why.contains("damaged") && why.contains("move it away")),
            "{error}"
        );
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("file");
    let error = Registry::open(&place(&file)).await.expect_err("no folder");
    assert!(matches!(&error, Error::Invalid(why) if why.contains("--state-dir")), "{error}");
    let taken = dir.path().join("taken");
    std::fs::create_dir_all(taken.join("caretaker.sqlite")).expect("folder");
    let error = Registry::open(&place(&taken)).await.expect_err("a folder in its place");
    assert!(matches!(&error, Error::Invalid(why) if why.contains("can't be opened")), "{error}");
}
