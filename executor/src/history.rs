//! What became of a table's jobs, as far as later decisions need it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use planner::facts::{CleanupFacts, CleanupSuccess, FailedFacts, TableFacts};

use crate::report::{JobEnd, JobReport};

/// Of every table, by its address.
#[derive(Debug, Default)]
pub struct History {
    tables: Mutex<HashMap<String, TableHistory>>,
}

#[derive(Clone, Debug, Default)]
struct TableHistory {
    last_cleanup: Option<CleanupSuccess>,
    last_cleanup_failure_at_ms: Option<u64>,
    failed: BTreeMap<String, FailedFacts>,
    /// Since when an index has lacked rows, as far as evaluations have seen.
    unindexed_since_ms: BTreeMap<String, u64>,
}

impl History {
    /// Adds to `facts` what is known from before.
    pub fn complete(&self, uri: &str, facts: &mut TableFacts, now_ms: u64) {
        let mut tables = self.tables.lock().unwrap_or_else(|e| e.into_inner());
        let known = tables.entry(uri.to_string()).or_default();
        known.unindexed_since_ms.retain(|name, _| facts.indexes.iter().any(|index| index.name == *name));
        for index in &mut facts.indexes {
            if index.unindexed_rows == Some(0) {
                known.unindexed_since_ms.remove(&index.name);
            } else {
                index.unindexed_since_ms = Some(*known.unindexed_since_ms.entry(index.name.clone()).or_insert(now_ms));
            }
        }
        facts.cleanup = Some(CleanupFacts {
            opted_out: false,
            last_success: known.last_cleanup,
            last_failure_at_ms: known.last_cleanup_failure_at_ms,
        });
        facts.failed = known.failed.values().cloned().collect();
    }

    /// Remembers a job's end. A race that was lost is neither a failure nor a success.
    pub fn record(&self, uri: &str, job: &JobReport, now_ms: u64) {
        let mut tables = self.tables.lock().unwrap_or_else(|e| e.into_inner());
        let known = tables.entry(uri.to_string()).or_default();
        match &job.end {
            JobEnd::Superseded { .. } | JobEnd::Busy { .. } => {}
            JobEnd::Failed { .. } => {
                if job.job == "cleanup" {
                    known.last_cleanup_failure_at_ms = Some(now_ms);
                }
                let failed = known.failed.entry(job.job.clone()).or_insert_with(|| FailedFacts {
                    kind: job.job.clone(),
                    times: 0,
                    last_at_ms: now_ms,
                });
                failed.times += 1;
                failed.last_at_ms = now_ms;
            }
            done => {
                known.failed.remove(&job.job);
                if let JobEnd::Cleaned(report) = done {
                    known.last_cleanup = Some(CleanupSuccess {
                        start_version: report.start_version,
                        finished_at_ms: now_ms,
                        recorded_version: report.start_version,
                    });
                }
            }
        }
    }
}
