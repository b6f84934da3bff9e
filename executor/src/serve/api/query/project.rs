//! The columns of an answer, computed from those that were read.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::{Field, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use datafusion::physical_plan::PhysicalExpr;
use lance::io::exec::Planner;

use super::super::Refused;
use super::super::expression::bounded;
use super::request::Columns;

/// Columns of an answer, each with the expression of its value.
pub(in super::super) struct Projection {
    /// The columns that are read for it.
    pub(in super::super) needs: Vec<String>,
    /// What comes out.
    pub(in super::super) schema: SchemaRef,
    values: Vec<Arc<dyn PhysicalExpr>>,
    table: SchemaRef,
    /// A column that is not the table's and comes last.
    extra: Option<String>,
}

/// Rows that an expression is true of.
pub(in super::super) struct Predicate {
    pub(super) needs: Vec<String>,
    value: Arc<dyn PhysicalExpr>,
    table: SchemaRef,
}

impl Projection {
    /// The columns of a query on a table; all of the table's where it names none. `extra` comes last.
    ///
    /// # Errors
    /// An expression that is none, or a column that the table does not have.
    pub(in super::super) fn of(
        table: &Schema,
        columns: Option<&Columns>,
        extra: Option<Field>,
    ) -> Result<Self, Refused> {
        let all = || table.fields().iter().map(|field| (field.name().clone(), String::new())).collect();
        let mut columns: Vec<(String, String)> = columns.map_or_else(all, |columns| columns.0.clone());
        if let Some(extra) = &extra {
            columns.retain(|(name, _)| name != extra.name());
        }
        let table = Arc::new(table.clone());
        let planner = Planner::new(table.clone());
        let (mut needs, mut fields, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (name, expression) in columns {
            // A name is no expression: it may have letters that one can't have.
            let expr = match expression.is_empty() {
                true if table.field_with_name(&name).is_ok() => datafusion::prelude::ident(&name),
                nameless => {
                    let text = if nameless { &name } else { &expression };
                    bounded(text).map_err(Refused::invalid)?;
                    planner.parse_expr(text)?
                }
            };
            // Numbers of two widths, say, are brought to one.
            let expr = planner.optimize_expr(expr)?;
            needs.extend(Planner::column_names_in_expr(&expr));
            let value = planner.create_physical_expr(&expr)?;
            let kind = value.data_type(&table).map_err(lance_core::Error::from)?;
            let nullable = value.nullable(&table).unwrap_or(true);
            let field = table.field_with_name(&name).ok().filter(|field| *field.data_type() == kind).cloned();
            fields.push(field.unwrap_or_else(|| Field::new(&name, kind, nullable)));
            values.push(value);
        }
        let extra_name = extra.as_ref().map(|field| field.name().clone());
        fields.extend(extra);
        let schema = Arc::new(Schema::new(fields));
        Ok(Self { needs, schema, values, table, extra: extra_name })
    }

    /// Computes them.
    ///
    /// # Errors
    /// A value that can't be computed.
    pub(in super::super) fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, Refused> {
        let rows = widened(batch, &self.table)?;
        let mut columns = Vec::with_capacity(self.values.len() + 1);
        for value in &self.values {
            let value = value.evaluate(&rows).map_err(lance_core::Error::from)?;
            columns.push(value.into_array(rows.num_rows()).map_err(lance_core::Error::from)?);
        }
        if let Some(extra) = &self.extra {
            columns.extend(batch.column_by_name(extra).cloned());
        }
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

/// A condition on a table's rows.
///
/// # Errors
/// It is none.
pub(in super::super) fn predicate(table: &Schema, condition: &str) -> Result<Predicate, Refused> {
    bounded(condition).map_err(Refused::invalid)?;
    let table = Arc::new(table.clone());
    let planner = Planner::new(table.clone());
    let expr = planner.optimize_expr(planner.parse_filter(condition)?)?;
    let needs = Planner::column_names_in_expr(&expr);
    Ok(Predicate { needs, value: planner.create_physical_expr(&expr)?, table })
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
