//! Triggers of the fold that SSTables as large as the listed ones always reach, or never.

use alloc::{format, vec::Vec};

use crate::draw::bytes;
use crate::facts::TableFacts;
use crate::policy::{Policy, Remarks};

use super::many;

pub(super) fn triggers(remarks: &mut Remarks<'_>, facts: &TableFacts) {
    let listed = facts.shards.iter().flat_map(|shard| &shard.sstables);
    let Some(mut sizes) = listed.map(|sstable| sstable.bytes).collect::<Option<Vec<u64>>>() else { return };
    sizes.sort_unstable();
    let (Some(&smallest), Some(&largest)) = (sizes.first(), sizes.last()) else { return };
    let (policy, default) = (remarks.policy, Policy::default());
    let listed = many(sizes.len() as u64, "listed SSTable has", "listed SSTables have");
    let always = policy.trigger_count > 1 && policy.trigger_bytes <= smallest;
    remarks.note(always, "wal_compact_trigger_bytes", |r| {
        format!(
            "the {listed} {} or more, so each makes a fold due by {}: a count of {} never decides",
            bytes(smallest),
            r.text("wal_compact_trigger_bytes"),
            policy.trigger_count
        )
    });
    let all = policy.trigger_count.saturating_mul(largest);
    let never = all < policy.trigger_bytes && policy.trigger_bytes != default.trigger_bytes;
    remarks.note(never, "wal_compact_trigger_bytes", |r| {
        format!(
            "the {listed} {} or less, and {} of them make a fold due: that is {} at most, and {} are never reached",
            bytes(largest),
            policy.trigger_count,
            bytes(all),
            r.text("wal_compact_trigger_bytes")
        )
    });
    let fewer = policy.trigger_count.saturating_sub(1).saturating_mul(smallest);
    let by_bytes = !always && fewer >= policy.trigger_bytes && policy.trigger_count != default.trigger_count;
    remarks.note(by_bytes, "wal_compact_trigger_count", |r| {
        format!(
            "the {listed} {} or more, so fewer than {} make a fold due by {}: the count never decides",
            bytes(smallest),
            policy.trigger_count,
            r.text("wal_compact_trigger_bytes")
        )
    });
    let two = sizes.get(1).map(|second| second.saturating_add(smallest));
    remarks.note(two.is_some_and(|two| two > policy.pass_bytes), "compact_pass_target_bytes", |r| {
        format!(
            "the smallest two of the {} have {}, more than {}: every pass takes a single one",
            many(sizes.len() as u64, "listed SSTable", "listed SSTables"),
            bytes(two.unwrap_or(0)),
            r.text("compact_pass_target_bytes")
        )
    });
}
