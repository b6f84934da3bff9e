//! Milliseconds, and nothing that asks a clock.

/// Milliseconds of a second.
pub const SECOND_MS: u64 = 1_000;
/// Milliseconds of an hour.
pub const HOUR_MS: u64 = 3_600_000;
/// Milliseconds of a day.
pub const DAY_MS: u64 = 24 * HOUR_MS;
