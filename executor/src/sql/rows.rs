//! Answers to statements, as lines of JSON and as Arrow with the same names.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::Serialize;
use serde_json::{Value, json};

use super::Statement;
use crate::error::{Error, Result};
use crate::registry::Answer;

/// Columns, with whether it is a number. What is neither number nor text in JSON is shown as its text.
type Columns = [(&'static str, bool)];

/// Those of a job, what people look for first.
const JOB: &Columns = &[
    ("id", false),
    ("kind", false),
    ("table", false),
    ("state", false),
    ("outcome", false),
    ("stage", false),
    ("rows_done", true),
    ("rows_total", true),
    ("attempt", true),
    ("created_ms", true),
    ("started_ms", true),
    ("ended_ms", true),
    ("worker", false),
    ("ask", false),
    ("parent", false),
    ("shard", false),
    ("uri", false),
    ("priority", true),
    ("need_bytes", true),
    ("size_bytes", true),
    ("run_at_ms", true),
    ("heartbeat_ms", true),
    ("failure", false),
    ("spec", false),
    ("result", false),
    ("policy", false),
];

/// Those of something that happened to a job.
const EVENT: &Columns = &[
    ("id", true),
    ("job_id", false),
    ("at_ms", true),
    ("state", false),
    ("worker", false),
    ("message", false),
    ("rows_processed", true),
];

/// Those of what became of a change.
const TOLD: &Columns = &[("job_id", false), ("answer", false)];

/// What became of a change: `done` is the word for what was asked.
pub(crate) fn told(id: &str, answer: Answer, done: &str) -> Value {
    let word = match answer {
        Answer::Unknown => "unknown",
        Answer::Done => done,
        Answer::Asked => "asked",
        Answer::Ended(_) => "ended",
        Answer::Not(_) => "unchanged",
    };
    json!({ "job_id": id, "answer": word })
}

/// The columns of a statement's answer.
pub(crate) fn schema(statement: &Statement) -> SchemaRef {
    let kind = |number: bool| if number { DataType::Int64 } else { DataType::Utf8 };
    let fields = columns(statement).iter().map(|(name, number)| Field::new(*name, kind(*number), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows of a statement's answer.
///
/// # Errors
/// `Fatal` where one can't be written as JSON.
pub(crate) fn batch(statement: &Statement, rows: &[impl Serialize]) -> Result<RecordBatch> {
    let rows: Vec<Value> = rows
        .iter()
        .map(serde_json::to_value)
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?;
    let columns = columns(statement).iter().map(|(name, number)| -> ArrayRef {
        let values = rows.iter().map(|row| row.get(name).filter(|value| !value.is_null()));
        match number {
            true => Arc::new(values.map(|value| value.and_then(Value::as_i64)).collect::<Int64Array>()),
            false => Arc::new(values.map(|value| value.map(text)).collect::<StringArray>()),
        }
    });
    Ok(RecordBatch::try_new(schema(statement), columns.collect())?)
}

fn columns(statement: &Statement) -> &'static Columns {
    match statement {
        Statement::Jobs { .. } | Statement::Describe(_) => JOB,
        Statement::Events { .. } => EVENT,
        Statement::Cancel(_) | Statement::Pause(_) | Statement::Resume(_) => TOLD,
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    use super::*;

    #[test]
    fn a_row_has_what_its_line_has_and_no_rows_still_have_columns() {
        let one = Statement::Describe("0198-a".into());
        let line = json!({
            "id": "0198-a", "state": "failed", "priority": -4, "spec": { "job": "compact" }, "shard": null,
            "size_bytes": u64::MAX,
        });
        let row = batch(&one, &[line]).expect("a row");
        let at = |name: &str| row.column_by_name(name).expect("a column").clone();
        assert_eq!(at("spec").as_string::<i32>().value(0), r#"{"job":"compact"}"#);
        assert_eq!(at("state").as_string::<i32>().value(0), "failed");
        assert_eq!(at("priority").as_primitive::<Int64Type>().value(0), -4);
        // What no signed number holds is not shown as another one.
        assert!(at("size_bytes").is_null(0) && at("shard").is_null(0) && at("worker").is_null(0));
        let none: [Value; 0] = [];
        assert_eq!(batch(&one, &none).expect("no rows").schema(), schema(&one));
    }
}
