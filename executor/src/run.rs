//! The only way out: work that changes a table.

pub(crate) mod build;
pub mod cleanup;
pub(crate) mod collect;
pub mod compact;
pub mod fold;
pub(crate) mod index;
pub(crate) mod remap;
pub(crate) mod retire;

pub(crate) mod files;
mod progress;
pub(crate) mod scan;
pub(crate) mod task;

pub use progress::Progress;

/// What a commit says of the job that made it, so that a later attempt finds it (report JOB-10).
pub(crate) fn properties(table: &crate::table::Table, kind: &str) -> Vec<(String, String)> {
    let job = table.fence.job().map(|job| (JOB_ID.to_string(), job.to_string()));
    [("caretaker.job".to_string(), kind.to_string())].into_iter().chain(job).collect()
}

/// The property with the ids of the jobs that made a commit.
pub(crate) const JOB_ID: &str = "caretaker.job_id";
