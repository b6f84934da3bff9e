//! Numbers and comparisons as people read them.

use planner::draw::{bytes, duration, generations, reason};
use planner::plan::{Measure, Reason};

fn drawn(measure: Measure, observed: Option<u64>, threshold: u64) -> String {
    reason(&Reason { measure, observed, threshold: Some(threshold), subject: None })
}

#[test]
fn bytes_are_rounded_down_in_binary_units() {
    let examples = [
        (0, "0"),
        (1023, "1023"),
        (1024, "1K"),
        (1536, "1.5K"),
        (16 << 20, "16M"),
        ((1 << 30) - 1, "1023M"),
        (11 << 29, "5.5G"),
        (u64::MAX, "15E"),
    ];
    for (number, text) in examples {
        assert_eq!(bytes(number), text);
    }
}

#[test]
fn time_spans_show_their_two_largest_units() {
    let examples = [
        (0, "0s"),
        (250, "250ms"),
        (59_999, "59s"),
        (60_000, "1m"),
        (3_723_000, "1h2m"),
        (604_799_999, "6d23h"),
        (86_459_000, "1d"),
        (u64::MAX, "213503982334d14h"),
    ];
    for (ms, text) in examples {
        assert_eq!(duration(ms), text);
    }
}

#[test]
fn generations_are_shown_as_ranges() {
    assert_eq!(generations([]), "");
    assert_eq!(generations([5, 6, 7, 8]), "5..8");
    assert_eq!(generations([1, 3, 4, 9]), "1,3..4,9");
    assert_eq!(generations([u64::MAX - 1, u64::MAX]), "18446744073709551614..18446744073709551615");
    assert_eq!(generations((0..20).map(|n| n * 2)), "0,2,4,6,8,10,12,14,… 12 more");
}

#[test]
fn a_comparison_shows_both_numbers_even_where_rounding_hides_the_difference() {
    assert_eq!(drawn(Measure::SsTables, Some(4), 4), "count 4 >= 4");
    assert_eq!(drawn(Measure::SsTableBytes, Some(64 << 20), 1 << 30), "bytes 64M < 1G");
    assert_eq!(drawn(Measure::SsTableBytes, None, 1 << 30), "bytes unmeasured, 1G needed");
    assert_eq!(drawn(Measure::SsTableBytes, Some((10 << 30) + 1), 10 << 30), "bytes 10737418241 >= 10737418240");
    assert_eq!(drawn(Measure::SsTableAgeMs, Some(604_799_999), 604_800_000), "age 6d23h < 7d");
    assert_eq!(drawn(Measure::GarbageAgeMs, Some(86_400_001), 86_400_000), "unlisted age 86400001ms >= 86400000ms");
}
