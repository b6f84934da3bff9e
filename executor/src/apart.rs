//! Work in a task of its own: a panic is one table's failure, not the process's.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use planner::plan::Trigger;

use crate::catalog::TableRef;
use crate::error::{Error, Result};
use crate::read::Depth;
use crate::report::TableReport;
use crate::run::Progress;
use crate::tend::Tender;

/// Tends one table in a task of its own.
pub async fn tend_apart(
    tender: &Arc<Tender>,
    table: TableRef,
    trigger: Trigger,
    depth: Depth,
    progress: Arc<Progress>,
) -> TableReport {
    let (tender, name) = (tender.clone(), table.name.clone());
    let started = Instant::now();
    let task = tokio::spawn(async move { tender.tend(&table, trigger, depth, &progress).await });
    task.await.unwrap_or_else(|died| TableReport {
        table: name,
        error: Some(format!("the pass died: {died}; the next one finishes its work")),
        millis: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        ..TableReport::default()
    })
}

/// `work`, with a panic in it as an error.
pub(crate) async fn caught<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(ToString::to_string);
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::Fatal(format!("{what} died: {said}")))
    })
}
