//! A digest of rows that does not depend on their order, nor on the batches they come in.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, StructArray};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, Field};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lance_core::datatypes::BlobHandling;
use lance_table::format::Fragment;

use crate::error::{Doing, Error, Result};
use crate::run::files::data_bytes;
use crate::run::scan::ScanLimits;

/// A scan for a comparison is a guest: it holds little.
pub(crate) const LIMITS: ScanLimits = ScanLimits { batch_bytes: 4 << 20, io_bytes: 32 << 20 };

/// How many rows, and the sum of their hashes: equal for equal multisets of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) rows: u64,
    sum: u128,
}

impl Digest {
    pub(crate) fn add(&mut self, row: u128) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(row);
    }
}

/// Hashes rows by their values.
#[derive(Default)]
pub(crate) struct RowHasher {
    converter: Option<(Vec<DataType>, RowConverter)>,
}

impl RowHasher {
    /// One hash a row.
    ///
    /// # Errors
    /// `Invalid`: a column's type has no order-preserving form in Arrow, such as a union.
    pub(crate) fn hashes(&mut self, columns: &[ArrayRef]) -> Result<Vec<u128>> {
        let columns = columns.iter().map(comparable).collect::<Result<Vec<_>>>()?;
        let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
        let converter = match &self.converter {
            Some((known, converter)) if *known == types => converter,
            _ => {
                let fields = types.iter().cloned().map(SortField::new).collect();
                let converter = RowConverter::new(fields)
                    .map_err(|e| Error::Invalid(format!("these rows can't be compared: {e}")))?;
                &self.converter.insert((types, converter)).1
            }
        };
        let rows = converter.convert_columns(&columns)?;
        Ok(rows.iter().map(|row| hash(row.as_ref())).collect())
    }
}

fn hash(row: &[u8]) -> u128 {
    let mut hasher = DefaultHasher::new();
    hasher.write(row);
    let low = hasher.finish();
    hasher.write_u8(1);
    u128::from(hasher.finish()) << 64 | u128::from(low)
}

/// A map as the list of entries that it is; anything else as it stands.
fn comparable(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Map(_, _) => {
            let map = array.as_map();
            let entries = comparable(&(Arc::new(map.entries().clone()) as ArrayRef))?;
            let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
            Arc::new(ListArray::try_new(field, map.offsets().clone(), entries, map.nulls().cloned())?)
        }
        DataType::Struct(fields) if fields.iter().any(|f| matches!(f.data_type(), DataType::Map(_, _))) => {
            let group = array.as_struct();
            let columns = group.columns().iter().map(comparable).collect::<Result<Vec<_>>>()?;
            let fields = fields.iter().zip(&columns);
            let fields = fields.map(|(f, c)| f.as_ref().clone().with_data_type(c.data_type().clone())).collect();
            Arc::new(StructArray::try_new(fields, columns, group.nulls().cloned())?)
        }
        _ => array.clone(),
    })
}

/// Reads `fragments` of a table: `columns` of it, or all.
pub(crate) fn scan(
    dataset: &Arc<Dataset>,
    fragments: Vec<Fragment>,
    columns: Option<Vec<String>>,
) -> BoxStream<'static, Result<arrow_array::RecordBatch>> {
    let dataset = dataset.clone();
    let bytes: u64 = fragments.iter().map(data_bytes).sum();
    let rows: u64 = fragments.iter().filter_map(|f| f.physical_rows).map(|rows| rows as u64).sum();
    let row_bytes = if columns.is_some() { 64 } else { bytes.div_ceil(rows.max(1)) };
    let open = async move {
        let mut scanner = dataset.scan();
        scanner.blob_handling(BlobHandling::AllBinary).with_fragments(fragments);
        if let Some(columns) = columns {
            scanner.project(&columns)?;
        }
        LIMITS.apply(&mut scanner, row_bytes);
        Ok::<_, Error>(scanner.try_into_stream().await?.map_err(Error::from))
    };
    futures::stream::once(open).try_flatten().map(|batch| batch.doing(|| "reading rows to compare".into())).boxed()
}

/// The digest of whole fragments.
pub(crate) async fn of(dataset: &Arc<Dataset>, fragments: Vec<Fragment>) -> Result<Digest> {
    let (mut digest, mut hasher) = (Digest::default(), RowHasher::default());
    let mut batches = scan(dataset, fragments, None);
    while let Some(batch) = batches.try_next().await? {
        hasher.hashes(batch.columns())?.into_iter().for_each(|row| digest.add(row));
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use arrow_array::{DictionaryArray, Int64Array, StringArray, types::Int32Type};

    use super::*;

    fn digest(batches: &[Vec<ArrayRef>]) -> Digest {
        let (mut digest, mut hasher) = (Digest::default(), RowHasher::default());
        for columns in batches {
            hasher.hashes(columns).unwrap().into_iter().for_each(|row| digest.add(row));
        }
        digest
    }

    fn rows(rows: &[(Option<i64>, &str)]) -> Vec<ArrayRef> {
        let ids: Int64Array = rows.iter().map(|(id, _)| *id).collect();
        let texts: StringArray = rows.iter().map(|(_, text)| Some(*text)).collect();
        vec![Arc::new(ids), Arc::new(texts)]
    }

    #[test]
    fn order_and_batches_do_not_matter_and_everything_else_does() {
        let all = [(Some(1), "a"), (None, "b"), (Some(1), "a"), (Some(2), "")];
        let one = digest(&[rows(&all)]);
        let shuffled = digest(&[rows(&[all[3], all[0]]), rows(&[]), rows(&[all[2], all[1]])]);
        assert_eq!(one, shuffled);
        let others: [&[(Option<i64>, &str)]; 5] = [
            &all[..3],
            &[all[0], all[1], all[3], all[3]],
            &[(Some(1), "a"), (Some(0), "b"), (Some(1), "a"), (Some(2), "")],
            &[(Some(1), "b"), (None, "a"), (Some(1), "a"), (Some(2), "")],
            &[(Some(1), ""), (None, "b"), (Some(1), "a"), (Some(2), "a")],
        ];
        for other in others {
            assert_ne!(one, digest(&[rows(other)]), "{other:?}");
        }
    }

    #[test]
    fn a_dictionary_is_its_values() {
        let words = ["x", "y", "x"];
        let plain: ArrayRef = Arc::new(StringArray::from(words.to_vec()));
        let dictionary: DictionaryArray<Int32Type> = words.into_iter().collect();
        assert_eq!(digest(&[vec![plain]]), digest(&[vec![Arc::new(dictionary)]]));
    }
}
