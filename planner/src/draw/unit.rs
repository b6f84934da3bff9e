use alloc::{format, string::String, vec::Vec};
use core::fmt::Write;

use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

/// Bytes for people, binary, rounded down: `300`, `16M`, `1.5G`.
pub fn bytes(bytes: u64) -> String {
    let sizes = [("E", 60), ("P", 50), ("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let Some((suffix, shift)) = sizes.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes}");
    };
    let (whole, rest) = (bytes >> shift, bytes & ((1 << shift) - 1));
    let tenth = (u128::from(rest) * 10) >> shift;
    if whole < 10 && tenth > 0 { format!("{whole}.{tenth}{suffix}") } else { format!("{whole}{suffix}") }
}

/// A time span for people, its two largest units, rounded down: `250ms`, `9m`, `6d23h`.
pub fn duration(ms: u64) -> String {
    let units = [("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS), ("s", SECOND_MS)];
    let Some(largest) = units.iter().position(|(_, size)| ms >= *size) else {
        return if ms == 0 { "0s".into() } else { format!("{ms}ms") };
    };
    let (suffix, size) = units[largest];
    let mut text = format!("{}{suffix}", ms / size);
    if let Some((suffix, smaller)) = units.get(largest + 1) {
        let rest = ms % size / smaller;
        if rest > 0 {
            text += &format!("{rest}{suffix}");
        }
    }
    text
}

/// Ascending generations as ranges: `5..8`, `1,3..4`; after eight ranges only how many more.
pub fn generations(ascending: impl IntoIterator<Item = u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for generation in ascending {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(generation) => *last = generation,
            _ => ranges.push((generation, generation)),
        }
    }
    let mut text = String::new();
    for (at, (first, last)) in ranges.iter().take(8).enumerate() {
        let comma = if at > 0 { "," } else { "" };
        // Writing to a String can't fail.
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}..{last}"),
        };
    }
    if ranges.len() > 8 {
        let _ = write!(text, ",… {} more", ranges.len() - 8);
    }
    text
}
