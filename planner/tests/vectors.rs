//! The picks of Apache Paimon against its own tests, and against cases at the edges of its rules.
#![allow(clippy::unwrap_used)]

use planner::vectors::{self, Why};
use planner::wire;
use serde_json::{Value, json};

const UPSTREAM: &str = include_str!("data/paimon/upstream.json");
const CONSTRUCTED: &str = include_str!("data/paimon/constructed.json");

#[test]
fn every_case_of_the_peers_own_tests_agrees() {
    let report = vectors::run(UPSTREAM).unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(report.cases > 150 && report.checks > report.cases, "{report}");
}

#[test]
fn every_case_at_the_edges_agrees() {
    let report = vectors::run(CONSTRUCTED).unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(report.cases > 50 && report.checks > report.cases, "{report}");
}
