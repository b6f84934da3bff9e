//! Which runs are merged, by how many and how large they are (`UniversalCompaction` of Apache Paimon).
//!
//! Four rules, the first that holds wins: early full, size amplification, size ratio, run count.

use core::num::NonZeroU32;

use super::early::{EarlyFull, OffPeak};
use super::rules::UniversalRule;
use super::runs::{Now, Pick, Run, Runs, State, Why};

/// The universal pick and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Universal {
    /// The revision.
    pub rule: UniversalRule,
    /// Runs that make a merge worth looking for (`num-sorted-run.compaction-trigger`).
    pub trigger: NonZeroU32,
    /// Percent of the oldest run that the newer ones may have together.
    pub max_size_amp: u32,
    /// Percent by which the next run may be larger than those before it.
    pub size_ratio: u32,
    /// When that ratio is larger.
    pub off_peak: Option<OffPeak>,
    /// When everything is merged early.
    pub early: Option<EarlyFull>,
}

impl Universal {
    /// The newest runs that are to be merged, and what to remember.
    pub fn pick(&self, runs: &Runs, state: State, now: Now) -> (Option<Pick>, State) {
        let early = self.early.and_then(|early| early.pick(runs, state.last_full_ms, now.ms));
        let pick = early
            .or_else(|| self.size_amplification(runs))
            .or_else(|| self.size_ratio(runs, now.hour))
            .or_else(|| self.run_count(runs, now.hour));
        (pick, self.remember(runs, pick, state, now))
    }

    /// A merge of everything restarts the clock of the early full compaction, whichever rule made it.
    pub(crate) fn remember(&self, runs: &Runs, pick: Option<Pick>, state: State, now: Now) -> State {
        let everything = pick.is_some_and(|pick| pick.runs == runs.len());
        if everything && self.early.is_some() { State { last_full_ms: Some(now.ms), ..state } } else { state }
    }

    /// Everything, when the newer runs are more than `max_size_amp` percent of the oldest one.
    pub fn size_amplification(&self, runs: &Runs) -> Option<Pick> {
        let (oldest, newer) = runs.all().split_last()?;
        let newer = newer.iter().map(|run| u128::from(run.size)).sum::<u128>();
        // 128 bits: no sum of sizes is lost, however large they are.
        let amplified = 100 * newer > u128::from(self.max_size_amp) * u128::from(oldest.size);
        (self.is_triggered(runs) && amplified).then(|| self.unit(runs, runs.len(), Why::SizeAmplification))
    }

    /// The newest run and those after it that are no larger, within the ratio.
    pub fn size_ratio(&self, runs: &Runs, hour: u8) -> Option<Pick> {
        let taken = self.extend(runs, 1, false, hour);
        (self.is_triggered(runs) && taken > 1).then(|| self.unit(runs, taken, Why::SizeRatio))
    }

    /// As many runs as are more than the trigger allows, and then as the ratio has it.
    pub fn run_count(&self, runs: &Runs, hour: u8) -> Option<Pick> {
        let above = runs.len().checked_sub(self.trigger()).filter(|above| *above > 0)?;
        let taken = self.extend(runs, above + 1, true, hour);
        Some(self.unit(runs, taken, Why::RunCount))
    }

    /// The runs of level 0, whatever the trigger says, and then as the ratio has it.
    pub(super) fn force_level_0(&self, runs: &Runs, hour: u8) -> Option<Pick> {
        let level_0 = runs.level_0();
        if level_0 == 0 {
            return None;
        }
        let level_1 = runs.all().get(level_0).is_some_and(|run| run.level == 1);
        let first = level_0 + usize::from(self.rule == UniversalRule::R1 && level_1);
        Some(self.unit(runs, self.extend(runs, first, true, hour), Why::Level0))
    }

    fn is_triggered(&self, runs: &Runs) -> bool {
        runs.len() >= self.trigger()
    }

    fn trigger(&self) -> usize {
        usize::try_from(self.trigger.get()).unwrap_or(usize::MAX)
    }

    /// How many runs a pick of the first ones takes. `hit`: it is made for certain.
    fn extend(&self, runs: &Runs, first: usize, mut hit: bool, hour: u8) -> usize {
        let mut taken = first;
        let mut size: u128 = runs.all().iter().take(first).map(|run| u128::from(run.size)).sum();
        for run in runs.all().iter().skip(first) {
            let joins_anyway = self.rule == UniversalRule::R2 && hit && run.level <= 1;
            if self.is_too_big(size, run, hour) && !joins_anyway {
                break;
            }
            size += u128::from(run.size);
            taken += 1;
            hit = true;
        }
        taken
    }

    /// In double precision and in this order, as upstream: whole numbers differ from about 80 TB on.
    fn is_too_big(&self, size: u128, next: &Run, hour: u8) -> bool {
        let off_peak = self.off_peak.map_or(0, |off_peak| off_peak.ratio(hour));
        let percent = 100.0 + f64::from(self.size_ratio) + f64::from(off_peak);
        size as f64 * percent / 100.0 < next.size as f64
    }

    /// The first `taken` runs, of as many at least, to the level below that of the next run. What would
    /// stay on level 0 takes further runs until one of a higher level is among them.
    pub(crate) fn unit(&self, runs: &Runs, mut taken: usize, why: Why) -> Pick {
        let all = runs.all();
        let mut output_level = all.get(taken).map_or(runs.top(), |next| next.level.saturating_sub(1));
        while output_level == 0 && taken < all.len() {
            output_level = all[taken].level;
            taken += 1;
        }
        if taken == all.len() {
            output_level = runs.top();
        }
        Pick { runs: taken, output_level, why }
    }
}
