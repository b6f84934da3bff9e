//! Whose turn it is (R3.2).

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use super::Record;
use crate::policy::AgentPolicy;
use crate::time::age_ms;

/// The tables to evaluate now: who waits longest since its last success comes first, and notified
/// ones get half of the budget while the sweep has any that wait.
///
/// What is still being read takes its part of the budget, so that no more is ever read at once.
pub(super) fn admit(tables: &BTreeMap<String, Record>, policy: &AgentPolicy, now_ms: u64) -> Vec<String> {
    let (mut swept, mut notified, mut reading) = (Vec::new(), Vec::new(), 0usize);
    for (table, record) in tables {
        let waits = record.failing.as_ref().is_some_and(|failing| now_ms < failing.retry_at_ms);
        if record.reading.is_some() {
            reading += 1;
        } else if waits {
            // It backs off, whatever happens to it.
        } else if record.last_try_ms.is_none_or(|at| record.failing.is_some() || age_ms(now_ms, at) >= policy.sweep_ms)
        {
            swept.push((turn(record), table));
        } else if record.notified {
            notified.push((turn(record), table));
        }
    }
    let budget = usize::try_from(policy.budget.max(1)).unwrap_or(usize::MAX);
    let left = budget.saturating_sub(reading);
    swept.sort_unstable();
    notified.sort_unstable();
    let share = if swept.is_empty() { left } else { left.min(budget / 2) };
    notified.truncate(share);
    swept.truncate(left - notified.len());
    swept.into_iter().chain(notified).map(|(_, table)| table.clone()).collect()
}

/// Sorts before others that waited less long.
fn turn(record: &Record) -> (u64, u64) {
    (record.last_success_ms.unwrap_or(record.owned_at_ms), record.hash)
}

/// FNV-1a: the same on every machine, and no order that a name's owner would choose.
pub(super) fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
