//! Which fragments are rewritten together: Lance's own arithmetic (`plan_compaction` of 14.0.2),
//! then a veto of every task that would leave as much to do as it found.

use alloc::vec::Vec;
use core::ops::Range;

use crate::facts::FragmentFacts;
use crate::policy::CompactionPolicy;

/// What is worth rewriting in a table.
#[derive(Default)]
pub(crate) struct Rewrites {
    /// The tasks of one job, in table order, as positions; the first ones where a limit cuts.
    pub(crate) tasks: Vec<Range<usize>>,
    /// Small fragments that all worthwhile tasks remove.
    pub(crate) small: u64,
    /// Fragments whose deletions are to be materialized.
    pub(crate) deleted: u64,
    /// Largest share of deleted rows among the fragments, thousandths, rounded up.
    pub(crate) permille: u64,
    /// Fragments of tasks that nothing would be gained by.
    pub(crate) vetoed: u64,
    /// Fragments that may not be touched.
    pub(crate) excluded: u64,
    /// Fragments whose deletions are not measured.
    pub(crate) unmeasured: u64,
}

/// A row target, and where it comes from.
pub(crate) struct Target {
    /// Rows a fragment should have, at least 1.
    pub(crate) rows: u64,
    /// Fragments without a size.
    pub(crate) unmeasured: u64,
    measured_rows: u64,
    measured_bytes: u64,
}

impl Target {
    /// As many rows as the target bytes hold, by the bytes per row that were measured.
    pub(crate) fn of(fragments: &[FragmentFacts], policy: &CompactionPolicy) -> Self {
        let (mut rows, mut bytes, mut unmeasured) = (0u64, 0u64, 0);
        for fragment in fragments {
            match fragment.bytes {
                Some(size) => {
                    rows = rows.saturating_add(fragment.rows);
                    bytes = bytes.saturating_add(size);
                }
                None => unmeasured += 1,
            }
        }
        let fit = match (u128::from(policy.target_bytes) * u128::from(rows)).checked_div(bytes.into()) {
            Some(fit) if rows > 0 => u64::try_from(fit).unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        Self { rows: policy.target_rows.min(fit).max(1), unmeasured, measured_rows: rows, measured_bytes: bytes }
    }

    /// Bytes of a fragment: measured, or else by the table's average.
    pub(crate) fn bytes(&self, fragment: &FragmentFacts) -> u64 {
        fragment.bytes.unwrap_or_else(|| self.bytes_of(fragment.rows))
    }

    /// Bytes of so many rows, by the table's average; 0 where nothing is measured.
    pub(crate) fn bytes_of(&self, rows: u64) -> u64 {
        let whole = u128::from(rows) * u128::from(self.measured_bytes);
        let average = whole.checked_div(self.measured_rows.into());
        average.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Whether any size is measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.measured_rows > 0
    }

    /// Below this a fragment is small. A fragment a little under the target is not: what a rewrite
    /// gave may come out so, or the target may move a little as bytes per row are measured anew, and
    /// it would be rewritten for ever.
    pub(crate) fn is_small(&self, fragment: &FragmentFacts) -> bool {
        u128::from(fragment.rows) * 10 < u128::from(self.rows) * 7
    }
}

/// Rows that a rewrite keeps, as far as deletions are measured.
pub(crate) fn live(fragment: &FragmentFacts) -> u64 {
    fragment.rows.saturating_sub(fragment.deleted.unwrap_or(0))
}

/// Fragments that Lance makes of `rows` rows: none below the target but the only one.
pub(crate) fn outputs(rows: u64, target_rows: u64) -> u64 {
    if rows == 0 { 0 } else { (rows / target_rows.max(1)).max(1) }
}

/// More than the share, as Lance compares it: in 32-bit floating point, exactly the share is not more.
pub(crate) fn over_deleted(fragment: &FragmentFacts, policy: &CompactionPolicy) -> bool {
    let share = policy.deleted_permille as f32 / 1000.0;
    let deleted = fragment.deleted.unwrap_or(0);
    share < 1.0 && fragment.rows > 0 && deleted as f32 / fragment.rows as f32 > share
}

/// Every worthwhile rewrite. `fragments` stand by ascending id.
pub(crate) fn rewrites(fragments: &[FragmentFacts], target: &Target, policy: &CompactionPolicy) -> Rewrites {
    let mut found =
        Found { fragments, target, policy, rewrites: Rewrites::default(), merges: Vec::new(), taken: (0, 0) };
    // A bin is the longest run of candidates below one set of index segments.
    let mut bin: Option<usize> = None;
    let bin_max = usize::try_from(policy.fragments_max).unwrap_or(usize::MAX).max(2);
    for (at, fragment) in fragments.iter().enumerate() {
        found.look_at(fragment);
        let candidate = !fragment.excluded && (over_deleted(fragment, policy) || fragment.rows < target.rows);
        if let Some(start) = bin
            && (!candidate || fragments[start].coverage != fragment.coverage || at - start >= bin_max)
        {
            found.split(start..at);
            bin = None;
        }
        bin = if candidate { bin.or(Some(at)) } else { None };
    }
    if let Some(start) = bin {
        found.split(start..fragments.len());
    }
    found.job()
}

struct Found<'a> {
    fragments: &'a [FragmentFacts],
    target: &'a Target,
    policy: &'a CompactionPolicy,
    rewrites: Rewrites,
    /// Worthwhile tasks as far as one job can take them, and whether they materialize deletions.
    merges: Vec<(Range<usize>, bool)>,
    /// Fragments in them, and in those that materialize deletions.
    taken: (usize, usize),
}

impl Found<'_> {
    fn look_at(&mut self, fragment: &FragmentFacts) {
        self.rewrites.excluded += u64::from(fragment.excluded);
        match fragment.deleted {
            None => self.rewrites.unmeasured += 1,
            Some(deleted) if deleted > 0 && fragment.rows > 0 && !fragment.excluded => {
                // Beyond 64 bits the last digits make no difference.
                let permille = match deleted.checked_mul(1000) {
                    Some(thousands) => thousands.div_ceil(fragment.rows),
                    None => (deleted / fragment.rows).saturating_mul(1000),
                };
                self.rewrites.permille = self.rewrites.permille.max(permille);
            }
            Some(_) => {}
        }
    }

    /// Lance's `split_for_size`: a task ends when it holds enough and enough is left for another.
    fn split(&mut self, bin: Range<usize>) {
        if bin.len() == 1 && !over_deleted(&self.fragments[bin.start], self.policy) {
            return;
        }
        let rows = |range: Range<usize>| self.fragments[range].iter().map(live).fold(0, u64::saturating_add);
        let (mut left, mut taken, mut start) = (rows(bin.clone()), 0u64, bin.start);
        for at in bin.clone() {
            let live = live(&self.fragments[at]);
            taken = taken.saturating_add(live);
            left = left.saturating_sub(live);
            if taken >= self.target.rows && left >= self.target.rows {
                self.task(start..at + 1, taken);
                (taken, start) = (0, at + 1);
            }
        }
        self.task(start..bin.end, taken);
    }

    /// Takes a task in, or vetoes it: its outputs must be fewer than its fragments and one of these
    /// small, or deletions must go.
    fn task(&mut self, task: Range<usize>, rows: u64) {
        let taken = &self.fragments[task.clone()];
        let deleted = taken.iter().filter(|f| over_deleted(f, self.policy)).count() as u64;
        let small = taken.iter().filter(|f| self.target.is_small(f)).count() as u64;
        let fewer = outputs(rows, self.target.rows) < taken.len() as u64;
        if deleted == 0 && !(fewer && small > 0) {
            self.rewrites.vetoed += taken.len() as u64;
            return;
        }
        self.rewrites.deleted += deleted;
        self.rewrites.small += if fewer { small } else { 0 };
        let max = usize::try_from(self.policy.fragments_max).unwrap_or(usize::MAX).max(2);
        // Beyond the limit nothing more can be taken, whether merges are chosen or not.
        if self.taken.0 <= max || deleted > 0 && self.taken.1 <= max {
            self.taken.0 += taken.len();
            self.taken.1 += if deleted > 0 { taken.len() } else { 0 };
            self.merges.push((task, deleted > 0));
        }
    }

    fn job(mut self) -> Rewrites {
        let merge = self.rewrites.small >= self.policy.small_min;
        let max = usize::try_from(self.policy.fragments_max).unwrap_or(usize::MAX).max(2);
        let (mut many, mut bytes) = (0usize, 0u64);
        for (task, _) in self.merges.iter().filter(|(_, deleted)| merge || *deleted) {
            many += task.len();
            let sizes = self.fragments[task.clone()].iter().map(|f| self.target.bytes(f));
            bytes = sizes.fold(bytes, u64::saturating_add);
            if !self.rewrites.tasks.is_empty() && (many > max || bytes > self.policy.job_bytes) {
                break;
            }
            self.rewrites.tasks.push(task.clone());
        }
        self.rewrites
    }
}
