//! Rows as a table's schema has them.

use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{Field, SchemaRef};

use crate::error::{Error, Result};

/// The columns of `batch` in the order of `schema`, by name. A column that is missing is null where it may be;
/// a value that does not fit its column is refused, not bent.
///
/// # Errors
/// `Invalid` names the column.
pub fn align(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let given = batch.schema();
    if given == *schema {
        return Ok(batch.clone());
    }
    if let Some(unknown) = given.fields().iter().find(|field| schema.field_with_name(field.name()).is_err()) {
        return Err(Error::Invalid(format!("the table has no column `{}`", unknown.name())));
    }
    let columns = schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
        Some(column) => fitted(column, field),
        None if field.is_nullable() => Ok(new_null_array(field.data_type(), batch.num_rows())),
        None => Err(Error::Invalid(format!("column `{}` is missing, and may not be null", field.name()))),
    });
    Ok(RecordBatch::try_new(schema.clone(), columns.collect::<Result<_>>()?)?)
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
    use std::sync::Arc;

    use arrow_array::{Int32Array, Int64Array, StringArray};
    use arrow_schema::{DataType, Schema};

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
