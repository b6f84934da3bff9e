//! Statements against the registry.

use std::time::Duration;

use arrow_array::RecordBatch;
use axum::http::StatusCode;
use futures::StreamExt;
use futures::stream::{BoxStream, once, try_unfold};

use crate::error::{Error, Result};
use crate::registry::{Answer, Filter, PAGE_MAX, Registry};
use crate::serve::api::{Refused, code};
use crate::serve::door::REQUEST;
use crate::sql::{Statement, rows};

type Found = BoxStream<'static, std::result::Result<RecordBatch, Refused>>;

/// Runs a statement. Jobs come page by page, as fast as they are taken.
pub(super) async fn run(registry: &Registry, statement: &Statement) -> std::result::Result<Found, Refused> {
    let unknown = |id: &str| Refused::new(StatusCode::NOT_FOUND, code::NOT_FOUND, format!("there is no job `{id}`"));
    let (id, answer, done) = match statement {
        Statement::Jobs { table, parent, limit } => {
            let filter = Filter { table: table.clone(), parent: parent.clone(), ..Filter::default() };
            return Ok(pages(registry.clone(), statement.clone(), filter, *limit));
        }
        Statement::Events { id, limit } => {
            let events = registry.events(id, 0, *limit).await?;
            if events.is_empty() && registry.job(id).await?.is_none() {
                return Err(unknown(id));
            }
            return Ok(whole(rows::batch(statement, &events)?));
        }
        Statement::Describe(id) => {
            let row = match registry.job(id).await? {
                Some(job) => rows::batch(statement, &[job])?,
                None => rows::batch(statement, &[registry.archived(id).await?.ok_or_else(|| unknown(id))?])?,
            };
            return Ok(whole(row));
        }
        Statement::Cancel(id) => (id, registry.cancel(id).await?, "cancelled"),
        Statement::Pause(id) => (id, registry.pause(id).await?, "paused"),
        Statement::Resume(id) => (id, registry.resume(id).await?, "resumed"),
    };
    if answer == Answer::Unknown {
        return Err(unknown(id));
    }
    Ok(whole(rows::batch(statement, &[rows::told(id, answer, done)])?))
}

fn whole(batch: RecordBatch) -> Found {
    once(async { Ok(batch) }).boxed()
}

fn pages(registry: Registry, statement: Statement, filter: Filter, limit: u64) -> Found {
    try_unfold((registry, statement, filter, limit), |(registry, statement, mut filter, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        filter.limit = left.min(PAGE_MAX);
        let page = within(REQUEST, registry.jobs(&filter)).await?;
        let batch = rows::batch(&statement, &page)?;
        let left = if (page.len() as u64) < filter.limit { 0 } else { left - page.len() as u64 };
        filter.before = page.last().map(|job| job.id.clone());
        Ok(Some((batch, (registry, statement, filter, left))))
    })
    .boxed()
}

async fn within<T>(time: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::Away(format!("the registry took longer than {} s", time.as_secs()));
    tokio::time::timeout(time, work).await.map_err(late)?
}
