//! Which row goes to which shard: the same for every writer of a table, or a key would be in two of them.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_schema::DataType;
use arrow_select::take::take_record_batch;
use lance::dataset::mem_wal::evaluate_sharding_spec;
use lance_core::datatypes::Schema;
use lance_index::mem_wal::MemWalIndexDetails;
use uuid::Uuid;

use crate::error::{Doing, Error, Result};

/// The namespace of shard ids that the open LanceDB client derives them in.
const NAMESPACE: Uuid = Uuid::from_u128(0x4c53_4d57_5249_5445_5f53_4841_5244_3031);
/// Shards that one request may write to: each is a claim.
const SHARDS_MAX: usize = 1_024;

/// The rows of each shard, in the order they were given.
///
/// # Errors
/// `Invalid` for a table that is not sharded by a spec of Lance, and for rows without the value that names
/// their shard.
pub(super) fn route(
    details: &MemWalIndexDetails,
    schema: &Schema,
    batches: Vec<RecordBatch>,
) -> Result<BTreeMap<Uuid, Vec<RecordBatch>>> {
    let spec = details.sharding_specs.first();
    let field = spec.and_then(|spec| spec.fields.first());
    let (Some(spec), Some(field)) = (spec, field) else {
        return Err(Error::Invalid("the table is sharded by hand: rows can't be sent to their shards".into()));
    };
    let mut shards: BTreeMap<Uuid, Vec<RecordBatch>> = BTreeMap::new();
    if field.transform.as_deref() == Some("unsharded") {
        if !batches.is_empty() {
            shards.insert(id(b"unsharded"), batches);
        }
        return Ok(shards);
    }
    for batch in batches {
        let values = evaluate_sharding_spec(&batch, spec, schema).doing(|| "sending rows to their shards".into())?;
        let name = name(field.transform.as_deref(), values.column(0).as_ref())?;
        let mut rows: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        for row in 0..batch.num_rows() {
            rows.entry(name(row)?).or_default().push(u32::try_from(row).unwrap_or(u32::MAX));
        }
        let whole = rows.len() == 1;
        for (name, rows) in rows {
            let part = if whole { batch.clone() } else { take_record_batch(&batch, &UInt32Array::from(rows))? };
            shards.entry(id(&name)).or_default().push(part);
        }
        if shards.len() > SHARDS_MAX {
            return Err(Error::Invalid(format!("the rows go to more than {SHARDS_MAX} shards; send fewer at a time")));
        }
    }
    Ok(shards)
}

fn id(name: &[u8]) -> Uuid {
    Uuid::new_v5(&NAMESPACE, name)
}

/// What the id of a row's shard is made of.
type Name<'a> = Box<dyn Fn(usize) -> Result<Vec<u8>> + 'a>;

fn name<'a>(transform: Option<&str>, values: &'a dyn Array) -> Result<Name<'a>> {
    if values.null_count() > 0 {
        return Err(Error::Invalid("the column that names the shard of a row is null".into()));
    }
    if transform == Some("bucket") {
        let Some(buckets) = values.as_primitive_opt::<Int32Type>() else {
            return Err(Error::Fatal(format!("buckets are {}", values.data_type())));
        };
        return Ok(Box::new(move |row| Ok(format!("bucket-{}", buckets.value(row)).into_bytes())));
    }
    let value = value(values)?;
    Ok(Box::new(move |row| {
        let mut name = b"identity-".to_vec();
        name.extend(value(row));
        Ok(name)
    }))
}

/// A value's bytes, as the open client encodes them.
fn value<'a>(values: &'a dyn Array) -> Result<Box<dyn Fn(usize) -> Vec<u8> + 'a>> {
    macro_rules! number {
        ($kind:ty) => {{
            let values = values.as_primitive::<$kind>();
            Box::new(move |row| values.value(row).to_le_bytes().to_vec())
        }};
    }
    Ok(match values.data_type() {
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Utf8 => Box::new(move |row| values.as_string::<i32>().value(row).as_bytes().to_vec()),
        DataType::LargeUtf8 => Box::new(move |row| values.as_string::<i64>().value(row).as_bytes().to_vec()),
        DataType::Boolean => Box::new(move |row| vec![u8::from(values.as_boolean().value(row))]),
        other => return Err(Error::Invalid(format!("a column of {other} can't name shards"))),
    })
}
