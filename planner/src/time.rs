//! Milliseconds, and nothing that asks a clock.

/// Milliseconds of a second.
pub const SECOND_MS: u64 = 1_000;
/// Milliseconds of a minute.
pub const MINUTE_MS: u64 = 60 * SECOND_MS;
/// Milliseconds of an hour.
pub const HOUR_MS: u64 = 60 * MINUTE_MS;
/// Milliseconds of a day.
pub const DAY_MS: u64 = 24 * HOUR_MS;

/// Age at `now_ms` of what happened at `then_ms`; 0 when a clock went backwards.
pub const fn age_ms(now_ms: u64, then_ms: u64) -> u64 {
    now_ms.saturating_sub(then_ms)
}
