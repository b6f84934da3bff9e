//! What keeps old versions and files, against who needs them and who hopes that they go.

use alloc::{format, string::String, vec::Vec};

use crate::decision::collect::{Need, Rules};
use crate::draw::{bytes, duration};
use crate::facts::{GarbageKind, ShardFacts, TableFacts, total};
use crate::policy::{Policy, Remarks};

use super::{Pinned, Seen, many, names};

const MIN_AGE: &str = "cleanup_min_version_age_secs";
const MIN_AGE_OF_TABLE: &str = "caretaker.cleanup_min_version_age_secs";

/// Whether anything removes versions of the table.
pub(super) fn is_on(remarks: &Remarks<'_>, facts: &TableFacts) -> bool {
    remarks.policy.cleanup.min_age_ms > 0 && !facts.opted_out_of_cleanup()
}

/// A minimum age of a table's own that the deployment's overrules, in silence (R4.1).
pub(super) fn floor(remarks: &mut Remarks<'_>, deployment: &Policy, facts: &TableFacts) {
    let mut own = Policy::default();
    let asked = facts.overrides.get(MIN_AGE_OF_TABLE);
    let Some(asked) = asked.filter(|text| own.set(MIN_AGE, text).is_ok()) else { return };
    let (age, floor) = (own.cleanup.min_age_ms, deployment.cleanup.min_age_ms);
    remarks.note(floor == 0 && age > 0, MIN_AGE_OF_TABLE, |_| {
        format!("{asked} counts for nothing: the deployment's is 0, so cleanup is off, and no table can turn it on")
    });
    remarks.note(age < floor, MIN_AGE_OF_TABLE, |_| {
        let floor = duration(floor);
        format!(
            "{asked} counts for nothing: the deployment keeps versions for {floor}, and a table can only ask for more \
             (`caretaker.cleanup.enabled = false` keeps them all)"
        )
    });
}

/// Versions and files that go while somebody may still read them.
pub(super) fn reads(remarks: &mut Remarks<'_>, facts: &TableFacts, seen: &Seen) {
    let Some(longest) = seen.longest_read_ms else { return };
    let policy = remarks.policy;
    let read = duration(longest);
    let early = is_on(remarks, facts) && policy.cleanup.min_age_ms < longest;
    remarks.note(early, MIN_AGE, |r| {
        let newest = match policy.cleanup.retain_versions {
            0 => String::new(),
            retained => format!(", once {retained} newer ones are there"),
        };
        format!(
            "the longest read took {read}, and a version may go when it is {} old{newest}: such a read can find the \
             version it began from gone",
            r.text(MIN_AGE)
        )
    });
    remarks.note(!facts.shards.is_empty() && policy.grace_ms < longest, "collect_grace_secs", |r| {
        format!(
            "the longest read took {read}, and files go when nothing has listed them for {}: such a read can find \
             its SSTables gone",
            r.text("collect_grace_secs")
        )
    });
}

/// Clones, tags, branches and numbers that keep what cleanup is there to remove.
pub(super) fn pins(remarks: &mut Remarks<'_>, facts: &TableFacts, seen: &Seen) {
    if !is_on(remarks, facts) {
        return off(remarks, facts);
    }
    remarks.note(!facts.clones.is_empty(), MIN_AGE, |_| {
        let clones = names(facts.clones.iter().map(|clone| &**clone));
        format!("shallow clones read the table's files ({clones}): while they do no version goes, whatever its age")
    });
    let (policy, versions) = (&remarks.policy.cleanup, facts.versions);
    let kept = versions.filter(|versions| *versions > 0 && *versions <= policy.retain_versions);
    remarks.note(kept.is_some(), "cleanup_retain_versions", |r| {
        format!(
            "the table has {}, and the newest {} stay: until there are more each cleanup finds nothing, and one is due \
             every {} or {}",
            many(kept.unwrap_or(0), "version", "versions"),
            policy.retain_versions,
            many(policy.version_interval, "version", "versions"),
            r.text("cleanup_interval_secs")
        )
    });
    tags(remarks, seen);
    sstables(remarks, facts, seen);
}

/// What tags and branches keep, unless a cleanup frees as much beside it.
fn tags(remarks: &mut Remarks<'_>, seen: &Seen) {
    let pinned: Vec<&Pinned> = seen.pinned.iter().filter(|p| !p.versions.is_empty() && p.bytes != Some(0)).collect();
    let held = total(pinned.iter().map(|p| p.bytes));
    let little = held.zip(seen.removable_bytes).is_none_or(|(held, free)| free < held);
    remarks.note(!pinned.is_empty() && little, MIN_AGE, |r| {
        let versions = pinned.iter().map(|p| p.versions.len() as u64).fold(0, u64::saturating_add);
        let held = held.map_or(String::new(), |held| format!(", and with them {}", bytes(held)));
        let freed = seen.removable_bytes.map_or(String::new(), |free| format!("; it would free {} now", bytes(free)));
        format!(
            "{} older than {} {} for {}{held}: cleanup, due every {} or {}, leaves them{freed}",
            many(versions, "version", "versions"),
            r.text(MIN_AGE),
            if versions == 1 { "stays" } else { "stay" },
            names(pinned.iter().map(|p| &*p.by)),
            many(r.policy.cleanup.version_interval, "version", "versions"),
            r.text("cleanup_interval_secs")
        )
    });
}

/// Unlisted SSTables that a tagged version needs: no grace ends for them.
fn sstables(remarks: &mut Remarks<'_>, facts: &TableFacts, seen: &Seen) {
    let name = |version: &u64| format!("version {version}");
    let by = |shard: &ShardFacts| {
        let oldest = shard.retained_by.as_deref()?;
        let holds = |pinned: &&Pinned| pinned.versions.iter().any(|version| name(version) == oldest);
        seen.pinned.iter().filter(holds).map(|pinned| &*pinned.by).min()
    };
    let tagged = facts.shards.iter().filter_map(|shard| Some((by(shard)?, shard)));
    let (by, shards): (Vec<&str>, Vec<&ShardFacts>) = tagged.unzip();
    let (held, size) = retained(shards);
    remarks.note(held > 0, "collect_grace_secs", |r| {
        format!(
            "{} of unlisted SSTables ({held}) stay past their grace of {} for as long as {} is there",
            bytes(size),
            r.text("collect_grace_secs"),
            names(by)
        )
    });
}

/// Without cleanup no version goes, and what a version needs stays with it.
fn off(remarks: &mut Remarks<'_>, facts: &TableFacts) {
    let (held, size) = retained(&facts.shards);
    let by = facts.shards.iter().filter_map(|shard| shard.retained_by.as_deref()).min();
    let key = if remarks.policy.cleanup.min_age_ms == 0 { MIN_AGE } else { "caretaker.cleanup.enabled" };
    remarks.note(held > 0, key, |_| {
        format!(
            "{} of unlisted SSTables ({held}) stay for {}, and as cleanup is off no version ever goes",
            bytes(size),
            names([by.unwrap_or("a retained version")])
        )
    });
}

/// Unlisted SSTables that a retained version needs for sure, and their bytes.
fn retained<'a>(shards: impl IntoIterator<Item = &'a ShardFacts>) -> (u64, u64) {
    let (mut many, mut bytes) = (0u64, 0u64);
    for shard in shards.into_iter().filter(|shard| shard.retained_generation.is_some()) {
        let garbage = shard.garbage.as_deref().unwrap_or_default();
        let rules = Rules::new(shard, garbage);
        let sstables = garbage.iter().filter(|file| file.kind == GarbageKind::SsTable);
        for file in sstables.filter(|file| rules.judge(file) == Need::Retained) {
            many = many.saturating_add(1);
            bytes = bytes.saturating_add(file.bytes);
        }
    }
    (many, bytes)
}
