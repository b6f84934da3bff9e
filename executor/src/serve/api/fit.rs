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
