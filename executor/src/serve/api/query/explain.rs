//! How a query is done, with and without doing it.

use axum::body::Body;
use datafusion::physical_plan::displayable;
use futures::FutureExt;
use lance_datafusion::exec::{LanceExecutionOptions, analyze_plan};
use serde::Deserialize;
use serde_json::json;

use super::super::call::{Call, json as body_of};
use super::super::{Answer, Refused, said};
use super::request::Query;
use super::scan::scanners;
use super::seen;
use super::union::{newer_plan, plain_plan};
use crate::pod::Fresh;
use crate::table::Table;

#[derive(Deserialize)]
struct Explain {
    #[serde(default)]
    verbose: bool,
    query: Query,
}

/// How much is told.
#[derive(Clone, Copy)]
enum Told {
    Plan {
        verbose: bool,
    },
    /// With what each step did.
    Done,
}

/// The plan of a query.
pub(super) async fn explain(call: Call, body: Body) -> Answer {
    let Explain { verbose, query } = body_of(body).await?;
    told(&call, &query, Told::Plan { verbose }).await
}

/// The plan of a query that was run.
pub(super) async fn analyze(call: Call, body: Body) -> Answer {
    let query: Query = body_of(body).await?;
    told(&call, &query, Told::Done).await
}

async fn told(call: &Call, query: &Query, how: Told) -> Answer {
    let mut table = call.table_at(query.version).await?;
    let mut plans = Vec::new();
    if query.version.is_none() && call.to_shards(&table, query.use_lsm).await? {
        let fresh = call.fresh(&table).await?;
        table = fresh.table.clone();
        if !fresh.is_empty() {
            plans.push(newer(&fresh, query, how).boxed().await?);
        }
    }
    // A plain read of newer rows is one plan with that of the base.
    if plans.is_empty() || query.is_search() {
        plans.extend(base(&table, query, how).boxed().await?);
    }
    Ok(seen(said(json!(plans.join("\n")))?, table.version()))
}

async fn base(table: &Table, query: &Query, how: Told) -> Result<Vec<String>, Refused> {
    let mut plans = Vec::new();
    for scanner in scanners(&table.dataset, query)? {
        plans.push(match how {
            Told::Plan { verbose } => scanner.explain_plan(verbose).boxed().await?,
            Told::Done => scanner.analyze_plan().boxed().await?,
        });
    }
    Ok(plans)
}

async fn newer(fresh: &Fresh, query: &Query, how: Told) -> Result<String, Refused> {
    let plan = match query.is_search() {
        true => newer_plan(fresh, query, fresh.table.primary_key()).await?,
        false => plain_plan(fresh, query).await?.1,
    };
    Ok(match how {
        Told::Plan { verbose } => displayable(plan.as_ref()).indent(verbose).to_string(),
        Told::Done => analyze_plan(plan, LanceExecutionOptions::default()).boxed().await?,
    })
}
