//! Rows of a client in the columns of a table: by name, in any order, in types that lose nothing.

use arrow_array::RecordBatch;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use futures::StreamExt;

use super::Refused;
use super::ipc::Incoming;

impl Incoming {
    /// The rows in a table's columns.
    ///
    /// # Errors
    /// A column is not the table's, or of a type that does not go into it.
    pub(super) fn fit(self, table: &Schema) -> Result<Self, Refused> {
        let Self { schema, batches, fault } = self;
        let fitted = fitted(&schema, table)?;
        let (into, noted) = (fitted.clone(), fault.clone());
        let batches = batches.map(move |batch| {
            fit(&batch?, &into).map_err(|e| noted.note(Refused::invalid(format!("a row does not fit the table: {e}"))))
        });
        Ok(Self { schema: fitted, batches: batches.boxed(), fault })
    }
}

/// The table's columns that are in the rows, in the table's order.
fn fitted(rows: &Schema, table: &Schema) -> Result<SchemaRef, Refused> {
    for (at, field) in rows.fields().iter().enumerate() {
        let name = field.name();
        let column = table.field_with_name(name).map_err(|_| {
            let names: Vec<&str> = table.fields().iter().map(|field| field.name().as_str()).collect();
            Refused::invalid(format!("the table has no column `{name}`; it has {}", names.join(", ")))
        })?;
        if rows.fields().iter().skip(at + 1).any(|other| other.name() == name) {
            return Err(Refused::invalid(format!("column `{name}` is there twice")));
        }
        if !goes(field.data_type(), column.data_type()) {
            let (is, wants) = (field.data_type(), column.data_type());
            return Err(Refused::invalid(format!(
                "column `{name}` is {wants} in the table, and {is} does not go into it"
            )));
        }
    }
    let fields = table.fields().iter().filter(|field| rows.field_with_name(field.name()).is_ok());
    Ok(Schema::new_with_metadata(fields.cloned().collect::<Vec<_>>(), table.metadata().clone()).into())
}

fn fit(batch: &RecordBatch, into: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let column = |field: &Field| {
        let column = batch.column_by_name(field.name());
        let column = column.ok_or_else(|| ArrowError::SchemaError(format!("no column `{}`", field.name())))?;
        if column.data_type() == field.data_type() {
            return Ok(column.clone());
        }
        cast_with_options(column, field.data_type(), &options)
    };
    let columns = into.fields().iter().map(|field| column(field)).collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(into.clone(), columns)
}

/// Whether values of a type go into a column of another. A value that does not is found when it comes.
fn goes(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    let text = |t: &T| matches!(t, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    let bytes = |t: &T| matches!(t, T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_));
    match (from, to) {
        _ if from == to => true,
        (T::Null, _) => true,
        (T::Dictionary(_, values), _) if !matches!(to, T::Dictionary(..)) => goes(values, to),
        (T::Struct(from), T::Struct(to)) => {
            from.len() == to.len()
                && from.iter().all(|part| {
                    to.iter().any(|other| other.name() == part.name() && goes(part.data_type(), other.data_type()))
                })
        }
        _ => match (items(from), items(to)) {
            (Some(from), Some(to)) => goes(from, to),
            (None, None) => {
                from.is_integer() && (to.is_integer() || to.is_floating())
                    || from.is_floating() && to.is_floating()
                    || text(from) && text(to)
                    || bytes(from) && bytes(to)
                    || matches!((from, to), (T::Timestamp(..), T::Timestamp(..)))
                    || matches!((from, to), (T::Date32 | T::Date64, T::Date32 | T::Date64))
                    || from.is_decimal() && to.is_decimal()
            }
            _ => false,
        },
    }
}

fn items(list: &DataType) -> Option<&DataType> {
    match list {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Some(item.data_type()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, Int32Array, Int64Array};

    use super::*;

    fn floats(kind: &DataType) -> Arc<Field> {
        Arc::new(Field::new("item", kind.clone(), true))
    }

    fn table() -> Schema {
        let vectors = DataType::FixedSizeList(floats(&DataType::Float32), 2);
        Schema::new(vec![
            Field::new("id", DataType::Int32, false),
            Field::new("text", DataType::Utf8, true),
            Field::new("vector", vectors, true),
        ])
    }

    #[test]
    fn columns_are_found_by_name_and_take_what_loses_nothing() {
        let lists = DataType::List(floats(&DataType::Float64));
        let rows = Schema::new(vec![Field::new("vector", lists, true), Field::new("id", DataType::Int64, true)]);
        let into = fitted(&rows, &table()).expect("it fits");
        assert_eq!(into.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["id", "vector"]);
        for (name, kind) in [("other", DataType::Int32), ("text", DataType::Int32), ("id", DataType::Float32)] {
            assert!(fitted(&Schema::new(vec![Field::new(name, kind, true)]), &table()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_value_that_does_not_go_in_is_an_error_and_no_null() {
        let one = |column: Arc<dyn Array>| {
            let rows = Schema::new(vec![Field::new("id", column.data_type().clone(), true)]);
            let into = fitted(&rows, &table()).expect("it fits");
            fit(&RecordBatch::try_new(Arc::new(rows), vec![column]).expect("a batch"), &into)
        };
        let fits = one(Arc::new(Int64Array::from(vec![7]))).expect("a batch");
        assert_eq!(fits.column(0).as_ref(), &Int32Array::from(vec![7]) as &dyn Array);
        assert!(one(Arc::new(Int64Array::from(vec![i64::MAX]))).is_err());
        assert!(one(Arc::new(Int64Array::from(vec![None]))).is_err());
        let rows = Schema::new(vec![Field::new("id", DataType::Utf8, true)]);
        assert!(fitted(&rows, &table()).is_err_and(|refused| refused.why.contains("Utf8")));
    }
}
