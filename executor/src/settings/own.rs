//! Settings of the executor itself.

use tracing_subscriber::EnvFilter;

use super::{LogFormat, Settings};

/// A setting that is no policy knob.
pub struct Own {
    pub(super) key: &'static str,
    pub(super) env: &'static str,
    pub(super) value_name: &'static str,
    pub(super) help: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> std::result::Result<(), &'static str>,
    pub(super) text: fn(&Settings) -> String,
}

/// Suffixes of a time and how many seconds each is, the largest first.
const SECONDS: &[(&str, u64)] = &[("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Settings of the executor itself, in the order the reference lists them.
pub const OWN: &[Own] = &[
    Own {
        key: "sweep_interval_secs",
        env: "CARETAKER_SWEEP_INTERVAL_SECS",
        value_name: "SECONDS",
        help: "`serve` walks the folders of every table at most this often, to collect files (R3.1). 1s to 365d.",
        set: |s, text| {
            s.sweep_secs = number(text, SECONDS, 365 * 86_400)
                .ok_or("write a whole number of seconds, or one with s, m, h or d, from 1s to 365d")?;
            Ok(())
        },
        text: |s| {
            let largest = SECONDS.iter().find(|(_, size)| s.sweep_secs.is_multiple_of(*size));
            largest.map_or_else(String::new, |(unit, size)| format!("{}{unit}", s.sweep_secs / size))
        },
    },
    Own {
        key: "tables_at_once",
        env: "CARETAKER_TABLES_AT_ONCE",
        value_name: "COUNT",
        help: "Tables read and tended at the same time. 1 to 1024.",
        set: |s, text| {
            let count = number(text, &[], 1024).and_then(|n| usize::try_from(n).ok());
            s.tables_at_once = count.ok_or("write a whole number from 1 to 1024")?;
            Ok(())
        },
        text: |s| s.tables_at_once.to_string(),
    },
    Own {
        key: "log_level",
        env: "RUST_LOG",
        value_name: "LEVEL",
        help: "What is logged: off, error, warn, info, debug, trace, or directives (`warn,executor=debug`). Default: \
               errors, and warnings of Caretaker itself; for `serve` warnings, and info of Caretaker itself.",
        set: |s, text| {
            let whole = !text.is_empty() && !text.contains(char::is_whitespace);
            if !whole || EnvFilter::try_new(text).is_err() {
                return Err("write off, error, warn, info, debug, trace, or directives such as `warn,executor=debug`");
            }
            s.log_level = Some(text.to_string());
            Ok(())
        },
        text: |s| s.log_level.clone().unwrap_or_else(|| "by command".into()),
    },
    Own {
        key: "log_format",
        env: "CARETAKER_LOG_FORMAT",
        value_name: "FORMAT",
        help: "How log lines look: text, or json (one object a line).",
        set: |s, text| {
            s.log_format = match text {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err("write text or json"),
            };
            Ok(())
        },
        text: |s| if s.log_format == LogFormat::Json { "json".into() } else { "text".into() },
    },
];

/// A whole number from 1 to `max`, with one of `units` or none.
fn number(text: &str, units: &[(&str, u64)], max: u64) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        suffix => units.iter().find(|(name, _)| *name == suffix)?.1,
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = plain.then(|| digits.parse().ok())??;
    number.checked_mul(unit).filter(|n| (1..=max).contains(n))
}
