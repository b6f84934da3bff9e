//! What a table's own config says about its policy.

use alloc::{borrow::Cow, collections::BTreeMap, format, string::String, vec::Vec};

use super::text::unknown;
use super::{KNOBS, Knob, Policy, Refused};
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

/// Knobs of a process, which no table can choose.
const PROCESS_WIDE: [&str; 3] =
    ["wal_compaction_interval_secs", "wal_compact_concurrency", "compact_pass_memory_bytes"];

/// Keys of a table beside the knobs.
const SWITCHES: [&str; 3] = ["paused", "cleanup.enabled", "fold.dropped_columns"];

fn is_process_wide(key: &str) -> bool {
    PROCESS_WIDE.contains(&key) || key.starts_with("agent_")
}

/// What may stand behind `caretaker.` in a table's config.
fn of_a_table() -> impl Iterator<Item = &'static str> + Clone {
    SWITCHES.into_iter().chain(KNOBS.iter().map(|knob| knob.key).filter(|key| !is_process_wide(key)))
}

/// A table's policy, and what its config says that can't be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePolicy<'a> {
    /// The deployment's policy with the table's own choices on top.
    pub policy: Cow<'a, Policy>,
    /// Keys that were left out of it, and why. Never fatal: the rest holds.
    pub complaints: Vec<Refused>,
}

impl Policy {
    /// This policy as a table's config changes it: `caretaker.<knob>`, `caretaker.paused`,
    /// `caretaker.cleanup.enabled`, and Lance's own keys (README, "A table's own policy").
    pub fn for_table(&self, config: &BTreeMap<String, String>) -> TablePolicy<'_> {
        let mut changed = TablePolicy { policy: Cow::Borrowed(self), complaints: Vec::new() };
        for (key, value) in config {
            let set = if let Some(own) = key.strip_prefix("caretaker.") {
                caretaker(&mut changed.policy, own, value)
            } else if let Some(field) = key.strip_prefix("lance.compaction.") {
                compaction(&mut changed.policy, field, value)
            } else if let Some(field) = key.strip_prefix("lance.auto_cleanup.") {
                cleanup(&mut changed.policy, field, value)
            } else {
                Ok(())
            };
            changed.complaints.extend(set.err().map(|why| Refused { key: key.clone(), why }));
        }
        // A deployment that cleans nothing, or nothing younger than an age, is never overruled.
        let floor = self.cleanup.min_age_ms;
        let age = changed.policy.cleanup.min_age_ms;
        if floor == 0 && age > 0 || age < floor {
            changed.policy.to_mut().cleanup.min_age_ms = floor;
        }
        changed
    }
}

fn caretaker(policy: &mut Cow<'_, Policy>, key: &str, value: &str) -> Result<(), String> {
    match key {
        // Looked at by the gate and by the decision.
        "paused" => boolean(value).map(drop).map_err(|why| format!("{why}: the table stays paused")),
        "cleanup.enabled" => boolean(value).map(drop).map_err(|why| format!("{why}: the table is not cleaned up")),
        // Read by the fold itself, beside the SSTables it is about.
        "fold.dropped_columns" => match value {
            "leave" | "refuse" => Ok(()),
            other => Err(format!("`{other}` is neither `leave` nor `refuse`: the fold refuses")),
        },
        _ if Knob::named(key).is_some() && is_process_wide(key) => {
            Err("is a setting of the whole process, not of a table".into())
        }
        _ if Knob::named(key).is_none() => Err(unknown(key, of_a_table()).why),
        _ => policy.to_mut().set(key, value).map_err(|refused| refused.why),
    }
}

/// Lance's compaction options that decide what is rewritten. The others are left to Lance.
fn compaction(policy: &mut Cow<'_, Policy>, field: &str, value: &str) -> Result<(), String> {
    match field {
        "target_rows_per_fragment" => set(policy, "compaction_target_rows", number(value)?),
        "max_source_fragments" => set(policy, "compaction_fragments_max", number(value)?),
        "max_source_bytes" => set(policy, "compaction_job_bytes", number(value)?),
        "max_bytes_per_file" => {
            // A task becomes fragments of less than twice the row target: a file that is cut for its
            // bytes would be a candidate again at once.
            let fits = (number(value)? / 2).min(policy.compaction.target_bytes);
            set(policy, "compaction_target_bytes", fits)
        }
        "materialize_deletions" => match boolean(value)? {
            true => Ok(()),
            false => set(policy, "compaction_deleted_permille", 1000),
        },
        "materialize_deletions_threshold" => {
            let share: f32 = value.parse().map_err(|_| format!("`{value}` is not a number from 0.0 to 1.0"))?;
            if share.is_nan() {
                return Err(format!("`{value}` is not a number from 0.0 to 1.0"));
            }
            // Lance takes any number: 0 or less means every deletion, 1 or more means never.
            let permille = (share.clamp(0.0, 1.0) * 1000.0 + 0.5) as u64;
            // `materialize_deletions = false` stands before this key, and wins.
            let never = policy.compaction.deleted_permille == 1000;
            if never { Ok(()) } else { set(policy, "compaction_deleted_permille", permille) }
        }
        "defer_index_remap" => set(policy, "compaction_defer_remap", u64::from(boolean(value)?)),
        _ => Ok(()),
    }
}

/// The options of Lance's cleanup hook. The others are left to Lance.
fn cleanup(policy: &mut Cow<'_, Policy>, field: &str, value: &str) -> Result<(), String> {
    match field {
        "interval" => set(policy, "cleanup_version_interval", number(value)?),
        "retain_versions" => set(policy, "cleanup_retain_versions", number(value)?),
        "delete_rate_limit" => set(policy, "cleanup_delete_rate_max", number(value)?),
        "older_than" => {
            let older_than = span_ms(value).ok_or_else(|| format!("`{value}` is not a time span such as `14days`"))?;
            let age = older_than.max(policy.cleanup.min_age_ms);
            policy.to_mut().cleanup.min_age_ms = age;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn set(policy: &mut Cow<'_, Policy>, key: &str, value: u64) -> Result<(), String> {
    policy.to_mut().set(key, &format!("{value}")).map_err(|refused| refused.why)
}

fn number(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("`{value}` is not a whole number"))
}

fn boolean(value: &str) -> Result<bool, String> {
    match value {
        _ if value.eq_ignore_ascii_case("true") => Ok(true),
        _ if value.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(format!("`{value}` is neither `true` nor `false`")),
    }
}

/// A time span as Lance writes it: `14days`, `1h 30m`.
fn span_ms(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text.trim(), None);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: u64 = rest[..digits].parse().ok()?;
        let word = &rest[digits..];
        let end = word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len());
        let unit = match &word[..end] {
            "ms" | "msec" | "millis" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => SECOND_MS,
            "m" | "min" | "mins" | "minute" | "minutes" => MINUTE_MS,
            "h" | "hr" | "hrs" | "hour" | "hours" => HOUR_MS,
            "d" | "day" | "days" => DAY_MS,
            "w" | "week" | "weeks" => 7 * DAY_MS,
            // A twelfth of a year, and a year, as Lance's parser has them.
            "M" | "month" | "months" => 2_630_016 * SECOND_MS,
            "y" | "year" | "years" => 31_557_600 * SECOND_MS,
            _ => return None,
        };
        sum = Some(count.checked_mul(unit)?.checked_add(sum.unwrap_or(0))?);
        rest = word[end..].trim_start();
    }
    sum
}
