//! Which unlisted files may be deleted (R2.15).

use alloc::{collections::BTreeSet, string::ToString, vec, vec::Vec};

use crate::facts::{GarbageFacts, GarbageKind, ShardFacts};
use crate::job::JobSpec;
use crate::plan::{Case, Hold, Measure, Outcome, Reason};
use crate::time::age_ms;

/// Deletes what is past its grace and needed by nobody, oldest first within a kind.
pub(crate) fn decide(case: &Case<'_>) -> Outcome {
    let Some(garbage) = &case.shard.garbage else {
        // The folder was not walked: what lies there is unmeasured, not nothing.
        return not_due(Reason::new(Measure::Files, None, 1), None);
    };
    let rules = Rules::new(case.shard, garbage);
    let (mut due, mut young, mut retained) = (Vec::new(), Vec::new(), Vec::new());
    for file in garbage {
        let past_grace = age(file, case.now_ms).is_some_and(|age| age >= case.policy.grace_ms_of(file.kind));
        match rules.judge(file) {
            Need::Never => {}
            Need::Retained if past_grace => retained.push(file),
            Need::Retained => {}
            Need::Nobody if past_grace => due.push(file),
            Need::Nobody => young.push(file),
        }
    }
    if !due.is_empty() {
        return collect(case, due);
    }
    if let Some(oldest) = retained.iter().map(|f| f.position).min() {
        return held(case.shard, oldest, retained.len());
    }
    if young.is_empty() {
        return not_due(Reason::new(Measure::Files, 0, 1), None);
    }
    let grace_ms = |f: &GarbageFacts| case.policy.grace_ms_of(f.kind);
    let next = young.iter().filter_map(|f| Some((f.since_ms?.checked_add(grace_ms(f))?, *f))).min_by_key(|n| n.0);
    let (observed, threshold) = match next {
        Some((_, file)) => (age(file, case.now_ms), grace_ms(file)),
        None => (None, case.policy.grace_ms),
    };
    not_due(Reason::new(Measure::GarbageAgeMs, observed, threshold), next.map(|n| n.0))
}

fn collect(case: &Case<'_>, mut due: Vec<&GarbageFacts>) -> Outcome {
    due.sort_unstable_by_key(|f| (f.kind, f.position, &f.path));
    due.truncate(usize::try_from(case.policy.collect_files_max.max(1)).unwrap_or(usize::MAX));
    // Everything due is past its own grace; the closest call is shown.
    let ages = due.iter().map(|f| (age(f, case.now_ms), case.policy.grace_ms_of(f.kind)));
    let (youngest, grace_ms) = ages.min().unwrap_or((None, case.policy.grace_ms));
    let reasons =
        vec![Reason::new(Measure::GarbageAgeMs, youngest, grace_ms), Reason::new(Measure::Files, due.len() as u64, 1)];
    let job = JobSpec::Collect {
        shard: case.shard.shard.clone(),
        bytes: due.iter().fold(0, |sum, f| sum.saturating_add(f.bytes)),
        files: due.into_iter().map(GarbageFacts::id).collect(),
    };
    Outcome::Due { jobs: vec![job], reasons }
}

fn held(shard: &ShardFacts, oldest: u64, files: usize) -> Outcome {
    let mut retained = Reason::new(Measure::RetainedGeneration, shard.retained_generation, oldest);
    retained.subject.clone_from(&shard.retained_by);
    let reasons = vec![retained, Reason::new(Measure::Files, files as u64, 1)];
    let version = shard.retained_by.clone().unwrap_or_else(|| "a retained version".to_string());
    Outcome::Held { hold: Hold::Retained { version }, reasons }
}

fn not_due(reason: Reason, due_at_ms: Option<u64>) -> Outcome {
    Outcome::NotDue { reasons: vec![reason], due_at_ms }
}

fn age(file: &GarbageFacts, now_ms: u64) -> Option<u64> {
    file.since_ms.map(|since| age_ms(now_ms, since))
}

/// Who still needs an unlisted file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nobody: it goes after its grace.
    Nobody,
    /// A retained version of the base, or nobody could tell.
    Retained,
    /// It is not garbage: listed after all, not folded yet, or the newest of its kind.
    Never,
}

/// What a shard's facts say of each of its unlisted files; shared with [`crate::check`].
pub(crate) struct Rules<'a> {
    shard: &'a ShardFacts,
    listed: BTreeSet<&'a str>,
    newest_wal_entry: Option<u64>,
}

impl<'a> Rules<'a> {
    pub(crate) fn new(shard: &'a ShardFacts, garbage: &[GarbageFacts]) -> Self {
        let wal = garbage.iter().filter(|f| f.kind == GarbageKind::WalEntry);
        Self {
            shard,
            listed: shard.sstables.iter().map(|s| s.path.as_str()).collect(),
            newest_wal_entry: wal.map(|f| f.position).max(),
        }
    }

    pub(crate) fn judge(&self, file: &GarbageFacts) -> Need {
        match file.kind {
            // Above the folded generation an unlisted folder is a flush that has not been listed yet.
            GarbageKind::SsTable
                if self.listed.contains(file.path.as_str()) || file.position > self.shard.compacted_generation =>
            {
                Need::Never
            }
            GarbageKind::SsTable => match self.shard.retained_generation {
                Some(retained) if file.position <= retained => Need::Nobody,
                _ => Need::Retained,
            },
            // Slots are written once: a vacated newest one would let a stalled writer succeed.
            GarbageKind::WalEntry if Some(file.position) == self.newest_wal_entry => Need::Never,
            GarbageKind::Manifest if file.position >= self.shard.manifest_version => Need::Never,
            GarbageKind::WalEntry | GarbageKind::Manifest => Need::Nobody,
        }
    }
}
