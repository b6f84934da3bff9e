//! The columns of an answer, computed from those that were read.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::prelude::Expr;
use lance::io::exec::Planner;
use lance_core::datatypes::escape_field_path_for_project;

use super::super::Refused;
use super::super::expression::bounded;
use super::request::Columns;

/// All columns, where a name or an expression stands.
const ALL: &str = "*";

/// Columns of an answer, each with the expression of its value.
pub(in super::super) struct Projection {
    /// The table's columns that are read for it.
    pub(in super::super) needs: Vec<String>,
    /// What comes out.
    pub(in super::super) schema: SchemaRef,
    values: Vec<Arc<dyn PhysicalExpr>>,
    table: SchemaRef,
}

/// Rows that an expression is true of.
pub(in super::super) struct Predicate {
    pub(super) needs: Vec<String>,
    value: Arc<dyn PhysicalExpr>,
    table: SchemaRef,
}

impl Projection {
    /// The columns of a query on a table; all of the table's where it names none. `extra` is what a search adds:
    /// expressions may use it, and it comes last where the query does not say where.
    ///
    /// # Errors
    /// An expression that is none, or a column that the table does not have.
    pub(in super::super) fn of(
        table: &Schema,
        columns: Option<&Columns>,
        extra: Option<&Field>,
    ) -> Result<Self, Refused> {
        let columns = named(table, columns, extra)?;
        let table = Arc::new(with(table, extra));
        let planner = Planner::new(table.clone());
        let (mut needs, mut fields, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (name, expression) in columns {
            // A name is no expression: it may have letters that one can't have.
            let text = if expression.is_empty() { escape_field_path_for_project(&name) } else { expression };
            bounded(&text).map_err(Refused::invalid)?;
            // Numbers of two widths, say, are brought to one.
            let expr = planner.optimize_expr(planner.parse_expr(&text)?)?;
            needs.extend(read_by(&expr, extra));
            let value = planner.create_physical_expr(&expr)?;
            let field = value.return_field(&table).map_err(lance_core::Error::from)?;
            fields.push(field.as_ref().clone().with_name(&name));
            values.push(value);
        }
        Ok(Self { needs, schema: Arc::new(Schema::new(fields)), values, table })
    }

    /// Computes them.
    ///
    /// # Errors
    /// A value that can't be computed.
    pub(in super::super) fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, Refused> {
        let rows = widened(batch, &self.table)?;
        let mut columns = Vec::with_capacity(self.values.len());
        for value in &self.values {
            let value = value.evaluate(&rows).map_err(lance_core::Error::from)?;
            columns.push(value.into_array(rows.num_rows()).map_err(lance_core::Error::from)?);
        }
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

/// The names of an answer's columns, each with the expression of its value, or none where it is the name's.
fn named(table: &Schema, columns: Option<&Columns>, extra: Option<&Field>) -> Result<Vec<(String, String)>, Refused> {
    let all = || table.fields().iter().map(|field| (field.name().clone(), String::new()));
    let mut named: Vec<(String, String)> = Vec::new();
    match columns {
        None => named.extend(all()),
        Some(Columns(columns)) => columns.iter().for_each(|(name, text)| {
            let every = text == ALL || name == ALL && text.is_empty();
            if every { named.extend(all()) } else { named.push((name.clone(), text.clone())) }
        }),
    }
    if let Some(extra) = extra.filter(|extra| !named.iter().any(|(name, _)| name == extra.name())) {
        named.push((extra.name().clone(), String::new()));
    }
    let mut seen = HashSet::new();
    match named.iter().find(|(name, _)| !seen.insert(name)) {
        Some((twice, _)) => Err(Refused::invalid(format!("column `{twice}` is named twice"))),
        None => Ok(named),
    }
}

/// The columns of a table that an expression reads, whole where it reads a part of one.
fn read_by(expr: &Expr, extra: Option<&Field>) -> Vec<String> {
    let names = expr.column_refs().into_iter().map(|column| column.name.clone());
    let mut names: Vec<String> = names.filter(|name| extra.is_none_or(|extra| extra.name() != name)).collect();
    names.sort();
    names
}

fn with(table: &Schema, extra: Option<&Field>) -> Schema {
    let extra = extra.filter(|extra| table.field_with_name(extra.name()).is_err());
    let fields = table.fields().iter().cloned().chain(extra.map(|extra| Arc::new(extra.clone())));
    Schema::new(fields.collect::<Vec<_>>())
}

/// A condition on a table's rows, read as scans of the base read it: DataFusion's own reader takes `"x"` for a
/// column, and `Name` for `name`.
///
/// # Errors
/// It is none.
pub(super) fn condition(table: &SchemaRef, text: &str) -> Result<(Expr, Arc<dyn PhysicalExpr>), Refused> {
    bounded(text).map_err(Refused::invalid)?;
    let planner = Planner::new(table.clone());
    let expr = planner.optimize_expr(planner.parse_filter(text)?)?;
    let value = planner.create_physical_expr(&expr)?;
    match value.data_type(table).map_err(lance_core::Error::from)? {
        DataType::Boolean => Ok((expr, value)),
        kind => Err(Refused::invalid(format!("the filter `{text}` gives {kind}, and not true or false"))),
    }
}

/// A condition on a table's rows, and on what a search adds to them.
///
/// # Errors
/// It is none.
pub(in super::super) fn predicate(table: &Schema, text: &str, extra: Option<&Field>) -> Result<Predicate, Refused> {
    let table = Arc::new(with(table, extra));
    let (expr, value) = condition(&table, text)?;
    Ok(Predicate { needs: read_by(&expr, extra), value, table })
}

impl Predicate {
    /// The rows that it is true of.
    ///
    /// # Errors
    /// It can't be computed.
    pub(in super::super) fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, Refused> {
        let rows = widened(batch, &self.table)?;
        let value = self.value.evaluate(&rows).map_err(lance_core::Error::from)?;
        let value = value.into_array(rows.num_rows()).map_err(lance_core::Error::from)?;
        Ok(filter_record_batch(batch, value.as_boolean())?)
    }
}

/// The columns of a table, those that were not read as nulls: expressions know columns by their place.
fn widened(batch: &RecordBatch, table: &SchemaRef) -> Result<RecordBatch, Refused> {
    let fields = table.fields().iter().map(|field| Field::new(field.name(), field.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let columns = table.fields().iter().map(|field| {
        let column = batch.column_by_name(field.name()).cloned();
        column.unwrap_or_else(|| arrow_array::new_null_array(field.data_type(), batch.num_rows()))
    });
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema, columns.collect(), &options)?)
}
