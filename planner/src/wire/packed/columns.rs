//! Fragments in columns: a table may have a million, most of whose numbers are alike.

use alloc::vec::Vec;

use super::{Input, Out, Packed};
use crate::facts::FragmentFacts;

/// Bytes read at once, whatever a column's width, so that reading has no branch.
const READ: usize = 8;

/// Most fragments of a table: numbers that are all alike take no bytes, so the length is bounded by itself.
const LENGTH_MAX: u64 = 4 << 20;

/// What a column keeps of a number: what lies above the least one, in 0, 1, 2, 4 or 8 bytes.
fn put_column(out: &mut Out, numbers: impl Iterator<Item = u64> + Clone) {
    let (least, most) = numbers.clone().fold((u64::MAX, 0), |(least, most), n| (n.min(least), n.max(most)));
    let least = least.min(most);
    let width = match most - least {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    out.bytes.push(width);
    least.put(out);
    match width {
        0 => {}
        1 => out.bytes.extend(numbers.map(|n| (n - least) as u8)),
        2 => numbers.for_each(|n| out.bytes.extend_from_slice(&((n - least) as u16).to_le_bytes())),
        4 => numbers.for_each(|n| out.bytes.extend_from_slice(&((n - least) as u32).to_le_bytes())),
        _ => numbers.for_each(|n| out.bytes.extend_from_slice(&(n - least).to_le_bytes())),
    }
    out.bytes.extend_from_slice(&[0; READ]);
}

struct Column<'a> {
    bytes: &'a [u8],
    width: usize,
    least: u64,
    mask: u64,
}

impl<'a> Column<'a> {
    fn get(input: &mut Input<'a>, length: u64) -> Option<Self> {
        let (width, mask) = match input.byte()? {
            0 => (0, 0),
            1 => (1, 0xff),
            2 => (2, 0xffff),
            4 => (4, 0xffff_ffff),
            8 => (8, u64::MAX),
            _ => return None,
        };
        let least = u64::get(input)?;
        let bytes = input.take(length.checked_mul(width as u64)?.checked_add(READ as u64)?)?;
        Some(Self { bytes, width, least, mask })
    }

    #[inline]
    fn at(&self, nth: usize) -> Option<u64> {
        let from = nth * self.width;
        let bytes: [u8; READ] = self.bytes.get(from..from + READ)?.try_into().ok()?;
        Some((u64::from_le_bytes(bytes) & self.mask).wrapping_add(self.least))
    }
}

/// Two columns: whether a number is known, and the number.
fn put_optional(out: &mut Out, numbers: impl Iterator<Item = Option<u64>> + Clone) {
    put_column(out, numbers.clone().map(|n| u64::from(n.is_some())));
    let known = numbers.clone().flatten().next().unwrap_or(0);
    put_column(out, numbers.map(|n| n.unwrap_or(known)));
}

pub(super) fn put(fragments: &[FragmentFacts], out: &mut Out) {
    let all = fragments.iter();
    (fragments.len() as u64).put(out);
    // Ids that follow each other leave nothing to write.
    put_column(out, all.clone().enumerate().map(|(nth, f)| f.id.wrapping_sub(nth as u64)));
    put_column(out, all.clone().map(|f| f.rows));
    put_optional(out, all.clone().map(|f| f.deleted));
    put_optional(out, all.clone().map(|f| f.bytes));
    put_column(out, all.clone().map(|f| u64::from(f.coverage)));
    put_column(out, all.map(|f| u64::from(f.excluded)));
}

pub(super) fn get(input: &mut Input<'_>) -> Option<Vec<FragmentFacts>> {
    let length = u64::get(input).filter(|length| *length <= LENGTH_MAX)?;
    let mut column = || Column::get(input, length);
    let (ids, rows) = (column()?, column()?);
    let (deleted_known, deleted) = (column()?, column()?);
    let (bytes_known, bytes) = (column()?, column()?);
    let (coverage, excluded) = (column()?, column()?);
    let known = |flag: u64, number| if flag == 0 { None } else { Some(number) };
    let mut fragments = Vec::with_capacity(length as usize);
    for nth in 0..length as usize {
        fragments.push(FragmentFacts {
            id: ids.at(nth)?.wrapping_add(nth as u64),
            rows: rows.at(nth)?,
            deleted: known(deleted_known.at(nth)?, deleted.at(nth)?),
            bytes: known(bytes_known.at(nth)?, bytes.at(nth)?),
            coverage: u32::try_from(coverage.at(nth)?).ok()?,
            excluded: excluded.at(nth)? != 0,
        });
    }
    Some(fragments)
}
