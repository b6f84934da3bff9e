//! `add_columns`, `alter_columns`, `drop_columns` and `update_field_metadata` of a table.

use std::collections::BTreeMap;

use arrow_schema::DataType;
use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use futures::FutureExt;
use lance::Dataset;
use lance::arrow::json::JsonDataType;
use lance::dataset::{ColumnAlteration, NewColumnTransform};
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Call, json as body_of};
use super::ipc::Incoming;
use super::shards::sharded_by;
use super::{Answer, Api, Refused, expression, posted, said};
use crate::error::Error;

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let routes = posted(Router::new(), "/v1/table/{id}/add_columns", add);
    let routes = posted(routes, "/v1/table/{id}/alter_columns", alter);
    let routes = posted(routes, "/v1/table/{id}/drop_columns", remove);
    posted(routes, "/v1/table/{id}/update_field_metadata", note)
}

/// The table, to be changed.
async fn opened(call: &Call) -> Result<Dataset, Refused> {
    Ok((*call.table().await?.dataset).clone())
}

fn changed(call: &Call, dataset: &Dataset) -> Answer {
    call.api.wrote(&call.id);
    said(json!({ "version": dataset.manifest().version }))
}

#[derive(Deserialize)]
struct Add {
    new_columns: Vec<NewColumn>,
}

#[derive(Deserialize)]
struct NewColumn {
    name: String,
    #[serde(default, deserialize_with = "expression::maybe")]
    expression: Option<String>,
}

async fn add(call: Call, body: Body) -> Answer {
    let kind = call.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let new = if kind.contains("arrow") {
        NewColumnTransform::AllNulls(Incoming::open(body).await?.schema)
    } else {
        let Add { new_columns } = body_of(body).await?;
        let expression = |column: NewColumn| match column.expression {
            Some(expression) => Ok((column.name, expression)),
            None => Err(Refused::invalid(format!("say by an `expression` what is in column `{}`", column.name))),
        };
        NewColumnTransform::SqlExpressions(new_columns.into_iter().map(expression).collect::<Result<_, _>>()?)
    };
    let mut dataset = opened(&call).await?;
    dataset.add_columns(new, None, None).boxed().await?;
    changed(&call, &dataset)
}

#[derive(Deserialize)]
struct Alter {
    alterations: Vec<Alteration>,
}

#[derive(Deserialize)]
struct Alteration {
    path: String,
    rename: Option<String>,
    nullable: Option<bool>,
    data_type: Option<Value>,
}

async fn alter(call: Call, body: Body) -> Answer {
    let Alter { alterations } = body_of(body).await?;
    let alterations = alterations.into_iter().map(alteration).collect::<Result<Vec<_>, _>>()?;
    let mut dataset = opened(&call).await?;
    dataset.alter_columns(&alterations).boxed().await?;
    changed(&call, &dataset)
}

fn alteration(asked: Alteration) -> Result<ColumnAlteration, Refused> {
    let Alteration { path, rename, nullable, data_type } = asked;
    let data_type = data_type.map(|word| {
        // Also the bare name of a type that has no parts.
        let whole = if word.is_string() { json!({ "type": word }) } else { word };
        let odd = |e: &dyn std::fmt::Display| Refused::invalid(format!("`{path}`: `{whole}` is no type: {e}"));
        let read: JsonDataType = serde_json::from_value(whole.clone()).map_err(|e| odd(&e))?;
        DataType::try_from(&read).map_err(|e| odd(&Error::from(e)))
    });
    Ok(ColumnAlteration { rename, nullable, data_type: data_type.transpose()?, path })
}

#[derive(Deserialize)]
struct Remove {
    columns: Vec<String>,
}

async fn remove(call: Call, body: Body) -> Answer {
    let Remove { columns } = body_of(body).await?;
    let table = call.table().await?;
    let mut named = table.primary_key();
    named.extend(sharded_by(&table).await?);
    // Lance itself refuses to rename or cast them.
    if table.mem_wal().await?.is_some()
        && let Some(column) = columns.iter().find(|column| named.contains(column))
    {
        return Err(Refused::invalid(format!(
            "`{column}` names the rows of a table with LSM writes, or their shard; unset its write spec before it goes"
        )));
    }
    let mut dataset = opened(&call).await?;
    dataset.drop_columns(&columns.iter().map(String::as_str).collect::<Vec<_>>()).boxed().await?;
    changed(&call, &dataset)
}

#[derive(Deserialize)]
struct Notes {
    updates: Vec<Note>,
}

#[derive(Deserialize)]
struct Note {
    path: String,
    /// What is none is taken away.
    metadata: BTreeMap<String, Option<String>>,
    #[serde(default)]
    replace: bool,
}

/// Also how the client installs a primary key.
async fn note(call: Call, body: Body) -> Answer {
    let Notes { updates } = body_of(body).await?;
    let mut dataset = opened(&call).await?;
    let mut building = dataset.update_field_metadata();
    for Note { path, metadata, replace } in &updates {
        let entries = metadata.iter().map(|(key, value)| (key.clone(), value.clone()));
        building = match replace {
            true => building.replace(path.as_str(), entries)?,
            false => building.update(path.as_str(), entries)?,
        };
    }
    building.await?;
    changed(&call, &dataset)
}
