//! Rows as a table's schema has them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeListArray, ListArray, MapArray, RecordBatch, StructArray, make_array,
    new_null_array,
};
use arrow_buffer::NullBuffer;
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};

use crate::error::{Error, Result};

/// The columns of `batch` in the order of `schema`, by name. A column that is missing is null where it may be;
/// a value that does not fit its column is refused, not bent. What is in a null is null too.
///
/// # Errors
/// `Invalid` names the column.
pub fn align(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let given = batch.schema();
    if given == *schema {
        return emptied(batch);
    }
    if let Some(unknown) = given.fields().iter().find(|field| schema.field_with_name(field.name()).is_err()) {
        return Err(Error::Invalid(format!("the table has no column `{}`", unknown.name())));
    }
    let columns = schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
        Some(column) => fitted(column, field),
        None if field.is_nullable() => Ok(new_null_array(field.data_type(), batch.num_rows())),
        None => Err(Error::Invalid(format!("column `{}` is missing, and may not be null", field.name()))),
    });
    emptied(&RecordBatch::try_new(schema.clone(), columns.collect::<Result<_>>()?)?)
}

/// Rows whose nulls are null down to their last part. A client may leave anything below a null, and what reads a part
/// of a row in memory does not look above it.
fn emptied(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(|column| below(column, None));
    Ok(RecordBatch::try_new(batch.schema(), columns.collect::<Result<_, _>>()?)?)
}

/// A column with the nulls of what it is a part of.
fn below(column: &ArrayRef, above: Option<&NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let nulls = NullBuffer::union(above, column.nulls());
    Ok(match column.data_type() {
        // A list's items have nulls of their own: none can be asked for below a null.
        DataType::List(item) => {
            let list = column.as_list::<i32>();
            Arc::new(ListArray::try_new(item.clone(), list.offsets().clone(), below(list.values(), None)?, nulls)?)
        }
        DataType::LargeList(item) => {
            let list = column.as_list::<i64>();
            Arc::new(LargeListArray::try_new(item.clone(), list.offsets().clone(), below(list.values(), None)?, nulls)?)
        }
        DataType::FixedSizeList(item, size) if item.data_type().is_nested() => {
            let values = below(column.as_fixed_size_list().values(), None)?;
            Arc::new(FixedSizeListArray::try_new_with_length(item.clone(), *size, values, nulls, column.len())?)
        }
        DataType::Map(entry, sorted) => {
            let map = column.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let entries = below(&entries, None)?.as_struct().clone();
            Arc::new(MapArray::try_new(entry.clone(), map.offsets().clone(), entries, nulls, *sorted)?)
        }
        DataType::Struct(fields) => {
            let parts = column.as_struct().columns().iter().map(|part| below(part, nulls.as_ref()));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), parts, nulls, column.len())?)
        }
        DataType::Null | DataType::Union(..) | DataType::RunEndEncoded(..) => column.clone(),
        _ if above.is_none() => column.clone(),
        _ => make_array(column.to_data().into_builder().nulls(nulls).build()?),
    })
}

fn fitted(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let name = field.name();
    let column = if column.data_type() == field.data_type() {
        column.clone()
    } else if can_cast_types(column.data_type(), field.data_type()) {
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let cast = cast_with_options(column, field.data_type(), &strict);
        cast.map_err(|e| Error::Invalid(format!("column `{name}` is {}: {e}", field.data_type())))?
    } else {
        let (is, not) = (field.data_type(), column.data_type());
        return Err(Error::Invalid(format!("column `{name}` is {is}, not {not}")));
    };
    if !field.is_nullable() && column.null_count() > 0 {
        return Err(Error::Invalid(format!("column `{name}` may not be null")));
    }
    Ok(column)
}

/// Refuses rows without a key.
///
/// # Errors
/// `Invalid` names the column.
pub(super) fn keyed(batches: &[RecordBatch], key: &[String]) -> Result<()> {
    let keyless = |name: &&String| {
        batches.iter().any(|batch| batch.column_by_name(name).is_some_and(|column| column.null_count() > 0))
    };
    match key.iter().find(keyless) {
        Some(name) => Err(Error::Invalid(format!("the key `{name}` of a row is null"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int32Array, Int64Array, StringArray};
    use arrow_schema::Schema;

    use super::*;

    fn table() -> SchemaRef {
        let id = Field::new("id", DataType::Int64, false);
        Arc::new(Schema::new(vec![id, Field::new("text", DataType::Utf8, true)]))
    }

    fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).expect("a batch")
    }

    #[test]
    fn columns_are_found_by_name_widened_and_filled_with_null() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        let id: ArrayRef = Arc::new(Int32Array::from(vec![7]));
        let both = align(&rows(vec![("text", text), ("id", id.clone())]), &table()).expect("fits");
        assert_eq!(both.column(0).as_ref(), &Int64Array::from(vec![7]) as &dyn Array);
        let alone = align(&rows(vec![("id", id)]), &table()).expect("fits");
        assert_eq!(alone.column(1).null_count(), 1);
    }

    #[test]
    fn what_is_in_a_null_is_null() {
        let parts = arrow_schema::Fields::from(vec![Field::new("x", DataType::Int32, true)]);
        let nulls = NullBuffer::from(vec![true, false]);
        let x: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let inner: ArrayRef = Arc::new(StructArray::new(parts.clone(), vec![x], None));
        let wide = arrow_schema::Fields::from(vec![Field::new("s", DataType::Struct(parts.clone()), true)]);
        let outer: ArrayRef = Arc::new(StructArray::new(wide, vec![inner.clone()], Some(nulls.clone())));
        let hidden: ArrayRef =
            Arc::new(StructArray::new(parts.clone(), inner.as_struct().columns().into(), Some(nulls)));
        let item = Arc::new(Field::new("item", DataType::Struct(parts), true));
        let offsets = arrow_buffer::OffsetBuffer::from_lengths([1, 1]);
        let list: ArrayRef = Arc::new(ListArray::new(item, offsets, hidden, None));
        let batch = rows(vec![("outer", outer), ("list", list)]);
        let batch = align(&batch, &batch.schema()).expect("fits");
        let inner = batch.column(0).as_struct().column(0).as_struct();
        assert_eq!((inner.is_null(1), inner.column(0).is_null(1), inner.column(0).is_null(0)), (true, true, false));
        let items = batch.column(1).as_list::<i32>().values().as_struct();
        assert_eq!((items.column(0).is_null(1), items.column(0).is_null(0)), (true, false));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let of = |columns| align(&rows(columns), &table()).expect_err("refused").to_string();
        let id: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        assert!(of(vec![("id", id)]).contains("`id` may not be null"));
        let id: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        assert!(of(vec![("id", id.clone())]).contains("`id` is Int64"));
        assert!(of(vec![("other", id.clone())]).contains("no column `other`"));
        assert!(of(vec![("text", id)]).contains("`id` is missing"));
    }
}
