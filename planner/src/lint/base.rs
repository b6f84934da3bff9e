//! Sizes and shares of the base that the table's rows can't reach.

use alloc::format;

use crate::decision::compaction::can_defer;
use crate::draw::bytes;
use crate::facts::TableFacts;
use crate::pick::rewrite::Target;
use crate::policy::{Policy, Remarks};

use super::names;

/// How far a target must be for a remark: a rewrite leaves less than twice the row target.
const FAR: u64 = 2;

pub(super) fn compaction(remarks: &mut Remarks<'_>, facts: &TableFacts) {
    if let Some(fragments) = &facts.fragments {
        let target = Target::of(fragments, &remarks.policy.compaction);
        if target.bytes_of(u64::MAX) > 0 {
            targets(remarks, &target);
            job(remarks, &target, fragments.iter().map(|f| f.rows).fold(0, u64::saturating_add));
        }
    }
    deferral(remarks, facts);
}

/// The two targets against the measured bytes per row. Both left as they are, one of them bounds the other.
fn targets(remarks: &mut Remarks<'_>, target: &Target) {
    let (policy, default) = (&remarks.policy.compaction, Policy::default().compaction);
    let (row, rows) = (target.bytes_of(1), target.bytes_of(policy.target_rows));
    let width = match row {
        0 => "less than a byte".into(),
        1..1024 => format!("{row} bytes"),
        _ => bytes(row),
    };
    let (bytes_set, rows_set) =
        (policy.target_bytes != default.target_bytes, policy.target_rows != default.target_rows);
    let narrow = rows.saturating_mul(FAR) <= policy.target_bytes;
    remarks.note(narrow && (bytes_set || rows_set), "compaction_target_bytes", |r| {
        format!(
            "a row has {width} on average, so the {} rows that a fragment has at most are {}: {} are never reached",
            policy.target_rows,
            bytes(rows),
            r.text("compaction_target_bytes")
        )
    });
    let wider = row > policy.target_bytes;
    remarks.note(wider, "compaction_target_bytes", |r| {
        let target = r.text("compaction_target_bytes");
        format!("a row has {width} on average, more than {target}: every row becomes a fragment of its own")
    });
    let wide = !wider && target.rows.saturating_mul(FAR) <= policy.target_rows;
    remarks.note(wide && rows_set, "compaction_target_rows", |r| {
        format!(
            "a row has {width} on average, so {} hold {} rows: {} are never reached",
            r.text("compaction_target_bytes"),
            target.rows,
            policy.target_rows
        )
    });
}

/// A job always does one task, and of a table with `rows` for it one makes a whole fragment.
fn job(remarks: &mut Remarks<'_>, target: &Target, rows: u64) {
    let whole = target.bytes_of(target.rows);
    remarks.note(rows >= target.rows && remarks.policy.compaction.job_bytes < whole, "compaction_job_bytes", |r| {
        format!(
            "a whole fragment has {}, and a job rewrites {} at most: each makes one and ends",
            bytes(whole),
            r.text("compaction_job_bytes")
        )
    });
}

fn deferral(remarks: &mut Remarks<'_>, facts: &TableFacts) {
    let wanted = remarks.policy.compaction.defer_remap > 0 && !facts.indexes.is_empty();
    remarks.note(wanted && !can_defer(facts, remarks.policy), "compaction_defer_remap", |_| {
        if facts.stable_row_ids {
            return "the table has stable row ids, with which Lance defers no remap: this does nothing".into();
        }
        let inline = facts.indexes.iter().filter(|index| !index.can_defer()).map(|index| &*index.name);
        format!("entries of its index {} can't wait for a remap, so none do: this does nothing", names(inline))
    });
}

pub(super) fn index(remarks: &mut Remarks<'_>, facts: &TableFacts) {
    let (policy, Some(rows)) = (&remarks.policy.index, facts.live_rows()) else { return };
    let set = policy.rows_min != Policy::default().index.rows_min;
    remarks.note(set && !facts.indexes.is_empty() && rows < policy.rows_min, "index_unindexed_rows_min", |r| {
        format!(
            "the table has {rows} rows, so {} unindexed ones can't come together: each waits for its age of {}",
            policy.rows_min,
            r.text("index_unindexed_age_secs")
        )
    });
}
