//! The keys of one pass: which row of which SSTable is the newest of its key.
//!
//! A key is compared as bytes: integers by value, everything else in arrow's row format, so that
//! two strings that only look alike stay two keys. Nothing is decided by a hash alone.

use std::hash::BuildHasher;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::DataType;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::error::{Error, Result};

/// Turns the key columns of a batch into comparable keys.
pub(super) struct Encoder {
    columns: Vec<String>,
    rows: Option<RowConverter>,
    /// One for the whole pass: a key must fall into the same slice whenever it is looked at.
    hasher: DefaultHashBuilder,
}

/// The keys of one batch.
pub(super) enum Keys {
    Ints(Vec<u64>),
    Rows(Rows),
}

impl Encoder {
    /// # Errors
    /// `Invalid` for a key type whose equality is not the equality of its bytes.
    pub(super) fn new(columns: &[(String, DataType)]) -> Result<Self> {
        for (name, data_type) in columns {
            if !is_key_type(data_type) {
                return Err(Error::Invalid(format!(
                    "primary key column `{name}` is {data_type}, which can't be a key: use an integer, a string, \
                     binary, a date, a timestamp, a decimal or a boolean"
                )));
            }
        }
        let rows = match columns {
            [(_, data_type)] if data_type.is_integer() => None,
            _ => Some(RowConverter::new(columns.iter().map(|(_, t)| SortField::new(t.clone())).collect())?),
        };
        Ok(Self {
            columns: columns.iter().map(|(name, _)| name.clone()).collect(),
            rows,
            hasher: DefaultHashBuilder::default(),
        })
    }

    /// Bytes one key takes in a [`KeySet`] beside the set's own overhead, if that is fixed.
    pub(super) fn is_fixed(&self) -> bool {
        self.rows.is_none()
    }

    /// # Errors
    /// `Invalid` for a null in a key column (R2.8).
    pub(super) fn encode(&self, batch: &RecordBatch) -> Result<Keys> {
        let columns = self
            .columns
            .iter()
            .map(|name| {
                let column = batch
                    .column_by_name(name)
                    .ok_or_else(|| Error::Invalid(format!("primary key column `{name}` is missing")))?;
                if column.null_count() > 0 {
                    return Err(Error::Invalid(format!(
                        "primary key column `{name}` holds {} null(s): a row without a key can be neither folded nor \
                         dropped; nothing was folded",
                        column.null_count()
                    )));
                }
                Ok(column.clone())
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        match &self.rows {
            None => Ok(Keys::Ints(ints(&columns[0])?)),
            Some(converter) => Ok(Keys::Rows(converter.convert_columns(&columns)?)),
        }
    }
}

fn is_key_type(data_type: &DataType) -> bool {
    use DataType::{
        Binary, Boolean, Date32, Date64, Decimal128, FixedSizeBinary, LargeBinary, LargeUtf8, Timestamp, Utf8,
    };
    data_type.is_integer()
        || matches!(
            data_type,
            Utf8 | LargeUtf8
                | Binary
                | LargeBinary
                | FixedSizeBinary(_)
                | Date32
                | Date64
                | Boolean
                | Timestamp(_, _)
                | Decimal128(_, _)
        )
}

fn ints(column: &ArrayRef) -> Result<Vec<u64>> {
    macro_rules! cast {
        ($t:ty) => {
            column.as_primitive::<$t>().values().iter().map(|v| *v as u64).collect()
        };
    }
    Ok(match column.data_type() {
        DataType::Int8 => cast!(Int8Type),
        DataType::Int16 => cast!(Int16Type),
        DataType::Int32 => cast!(Int32Type),
        DataType::Int64 => cast!(Int64Type),
        DataType::UInt8 => cast!(UInt8Type),
        DataType::UInt16 => cast!(UInt16Type),
        DataType::UInt32 => cast!(UInt32Type),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().values().to_vec(),
        other => return Err(Error::Invalid(format!("a key column is {other} where an integer was expected"))),
    })
}

/// Which keys a scan looks at: those whose hash falls into `part` of `parts`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) part: u64,
    pub(super) parts: u64,
}

impl Slice {
    fn holds(self, hash: u64) -> bool {
        // The high half: the table's buckets come from the low one.
        self.parts == 1 || (hash >> 32) % self.parts == self.part
    }
}

/// What [`KeySet::offer`] made of a row.
pub(super) enum Offer {
    /// Not of this slice, or an older row of a key already seen.
    Passed,
    /// The newest of its key so far.
    Newest,
    /// As `Newest`; the row at this address of the same SSTable was it before.
    Replaces(u64),
}

const TOMBSTONE: u8 = 1;
const MATCHED: u8 = 2;

/// Every key of a slice of the prefix, newest row first come.
pub(super) struct KeySet {
    slice: Slice,
    hasher: DefaultHashBuilder,
    table: HashTable<u32>,
    keys: Store,
    address: Vec<u64>,
    state: Vec<u8>,
    bytes_max: usize,
    /// First slot of each source, in the order the sources came.
    starts: Vec<(u32, usize)>,
}

enum Store {
    Ints(Vec<u64>),
    Bytes { data: Vec<u8>, ends: Vec<usize> },
}

/// A key, borrowed from a batch.
#[derive(Clone, Copy)]
enum KeyRef<'a> {
    Int(u64),
    Bytes(&'a [u8]),
}

impl Keys {
    fn get(&self, row: usize) -> KeyRef<'_> {
        match self {
            Self::Ints(v) => KeyRef::Int(v[row]),
            Self::Rows(r) => KeyRef::Bytes(r.row(row).data()),
        }
    }
}

impl Store {
    fn is(&self, slot: u32, key: KeyRef<'_>) -> bool {
        match (self, key) {
            (Self::Ints(v), KeyRef::Int(k)) => v[slot as usize] == k,
            (Self::Bytes { .. }, KeyRef::Bytes(k)) => self.bytes(slot) == k,
            _ => false,
        }
    }

    fn bytes(&self, slot: u32) -> &[u8] {
        match self {
            Self::Ints(_) => &[],
            Self::Bytes { data, ends } => {
                let start = if slot == 0 { 0 } else { ends[slot as usize - 1] };
                &data[start..ends[slot as usize]]
            }
        }
    }

    fn push(&mut self, key: KeyRef<'_>) {
        match (self, key) {
            (Self::Ints(v), KeyRef::Int(k)) => v.push(k),
            (Self::Bytes { data, ends }, KeyRef::Bytes(k)) => {
                data.extend_from_slice(k);
                ends.push(data.len());
            }
            _ => unreachable!("one encoder makes one kind of key"),
        }
    }

    fn allocated(&self) -> usize {
        match self {
            Self::Ints(v) => v.capacity() * 8,
            Self::Bytes { data, ends } => data.capacity() + ends.capacity() * 8,
        }
    }
}

/// The slice holds more keys than the memory allows: cut finer and start over.
#[derive(Debug)]
pub(super) struct Full;

impl KeySet {
    /// `bytes_max`: what the set may allocate.
    pub(super) fn new(encoder: &Encoder, slice: Slice, bytes_max: usize) -> Self {
        let keys = match encoder.is_fixed() {
            true => Store::Ints(Vec::new()),
            false => Store::Bytes { data: Vec::new(), ends: Vec::new() },
        };
        Self {
            slice,
            hasher: encoder.hasher.clone(),
            table: HashTable::new(),
            keys,
            address: Vec::new(),
            state: Vec::new(),
            bytes_max,
            starts: Vec::new(),
        }
    }

    /// Begins the rows of source `index`; returns its first slot.
    pub(super) fn begin(&mut self, index: usize) -> u32 {
        self.starts.push((self.len(), index));
        self.len()
    }

    /// The source a slot's row came from.
    pub(super) fn source(&self, slot: u32) -> usize {
        // A source without new keys shares its start with the next; the last begun there owns the slot.
        let after = self.starts.partition_point(|(start, _)| *start <= slot);
        self.starts[after - 1].1
    }

    pub(super) fn len(&self) -> u32 {
        self.state.len() as u32
    }

    fn hash(&self, key: KeyRef<'_>) -> u64 {
        match key {
            KeyRef::Int(k) => self.hasher.hash_one(k),
            KeyRef::Bytes(k) => self.hasher.hash_one(k),
        }
    }

    fn allocated(&self) -> usize {
        self.table.capacity() * 5 + self.keys.allocated() + self.address.capacity() * 8 + self.state.capacity()
    }

    /// Offers a row of the SSTable whose rows begin at slot `since`. SSTables come newest first;
    /// inside one, the row at the higher address is the newer.
    pub(super) fn offer(
        &mut self,
        keys: &Keys,
        row: usize,
        address: u64,
        tombstone: bool,
        since: u32,
    ) -> std::result::Result<Offer, Full> {
        let key = keys.get(row);
        let hash = self.hash(key);
        if !self.slice.holds(hash) {
            return Ok(Offer::Passed);
        }
        if let Some(&slot) = self.table.find(hash, |slot| self.keys.is(*slot, key)) {
            let at = slot as usize;
            if slot < since || self.address[at] > address {
                return Ok(Offer::Passed);
            }
            let before = std::mem::replace(&mut self.address[at], address);
            self.state[at] = u8::from(tombstone) * TOMBSTONE;
            return Ok(Offer::Replaces(before));
        }
        let slot = self.len();
        if slot == u32::MAX || (slot.is_multiple_of(1024) && self.allocated() > self.bytes_max) {
            return Err(Full);
        }
        self.keys.push(key);
        self.address.push(address);
        self.state.push(u8::from(tombstone) * TOMBSTONE);
        let (keys, hasher) = (&self.keys, &self.hasher);
        self.table.insert_unique(hash, slot, |slot| match keys {
            Store::Ints(v) => hasher.hash_one(v[*slot as usize]),
            Store::Bytes { .. } => hasher.hash_one(keys.bytes(*slot)),
        });
        Ok(Offer::Newest)
    }

    /// The slot of a base row's key, marked as matched; `None` if the pass does not touch the key.
    pub(super) fn match_base(&mut self, keys: &Keys, row: usize) -> Option<u32> {
        let key = keys.get(row);
        let hash = self.hash(key);
        if !self.slice.holds(hash) {
            return None;
        }
        let slot = *self.table.find(hash, |slot| self.keys.is(*slot, key))?;
        self.state[slot as usize] |= MATCHED;
        Some(slot)
    }

    pub(super) fn address(&self, slot: u32) -> u64 {
        self.address[slot as usize]
    }

    pub(super) fn is_tombstone(&self, slot: u32) -> bool {
        self.state[slot as usize] & TOMBSTONE != 0
    }

    /// How many keys end as (updated, inserted, tombstoned in vain or not).
    pub(super) fn outcome(&self) -> (u64, u64) {
        let count = |want: u8| self.state.iter().filter(|s| **s & (TOMBSTONE | MATCHED) == want).count() as u64;
        (count(MATCHED), count(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float_is_no_key_and_the_refusal_names_the_column() {
        for float in [DataType::Float32, DataType::Float64] {
            let refused = Encoder::new(&[("price".into(), float)]).err().map(|e| e.to_string());
            assert!(refused.is_some_and(|m| m.contains("`price`")));
        }
    }
}
