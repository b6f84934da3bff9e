//! Values as Paimon writes them.

use alloc::{format, string::String, vec::Vec};
use core::num::NonZeroU32;

use super::INT_MAX;

/// Suffixes of bytes; each is 1024 of the one before it.
const BYTES: [&[&str]; 5] =
    [&["b", "bytes", ""], &["k", "kb", "kib"], &["m", "mb", "mib"], &["g", "gb", "gib"], &["t", "tb", "tib"]];

/// Suffixes of time and how many milliseconds each is.
const MILLIS: [(&[&str], u64); 5] = [
    (&["ms", "milli", "millis", "millisecond", "milliseconds", ""], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1_000),
    (&["m", "min", "minute", "minutes"], 60_000),
    (&["h", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], 86_400_000),
];

/// A whole number from 1 to [`INT_MAX`].
pub(super) fn count(text: &str) -> Result<NonZeroU32, String> {
    let number = NonZeroU32::try_from(whole(text, 1)?);
    number.map_err(|_| format!("`{text}` is no number of things"))
}

/// A whole number from `min` to [`INT_MAX`].
pub(super) fn whole(text: &str, min: u32) -> Result<u32, String> {
    let number: Option<u32> = digits(text).and_then(|text| text.parse().ok());
    number
        .filter(|number| (min..=INT_MAX).contains(number))
        .ok_or_else(|| format!("`{text}` is out of range or not a whole number; write one from {min} to {INT_MAX}"))
}

/// An hour; -1 is none.
pub(super) fn hour(text: &str) -> Result<Option<u8>, String> {
    if text == "-1" {
        return Ok(None);
    }
    let hour = digits(text).and_then(|text| text.parse().ok()).filter(|hour| *hour < 24);
    hour.map(Some).ok_or_else(|| format!("`{text}` is not an hour; write one from 0 to 23, or -1 for none"))
}

/// Bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let shift = |suffix: &str| BYTES.iter().position(|names| names.contains(&suffix)).map(|at| 1 << (10 * at));
    scaled(text, shift, "bytes, or a number with kb, mb, gb or tb")
}

/// Bytes, some at least.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let size = bytes(text)?;
    if size == 0 { Err(format!("`{text}` is no size of a file")) } else { Ok(size) }
}

/// Milliseconds.
pub(super) fn millis(text: &str) -> Result<u64, String> {
    let scale = |suffix: &str| MILLIS.iter().find(|(names, _)| names.contains(&suffix)).map(|(_, scale)| *scale);
    scaled(text, scale, "milliseconds, or a number with ms, s, min, h or d")
}

/// `true` or `false`, in any case.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    word(text, &[("true", true), ("false", false)])
}

/// One of some words, in any case.
pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("`{text}` is none of {}", known.join(", "))
    })
}

/// A share of one: a decimal number from 0 to 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let share: Option<f64> = if plain { text.parse().ok() } else { None };
    share.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| format!("`{text}` is no number from 0 to 1"))
}

/// A number and what its suffix makes of it, in any case and with a space between them.
fn scaled(text: &str, scale: impl Fn(&str) -> Option<u64>, what: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let refused = || format!("`{text}` is too large or malformed; write a whole number of {what}");
    let scale = scale(suffix.trim_start().to_ascii_lowercase().as_str()).ok_or_else(refused)?;
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).ok_or_else(refused)
}

/// Nothing but digits: no sign, no space.
fn digits(text: &str) -> Option<&str> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text)
}
