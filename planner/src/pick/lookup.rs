//! Merges that keep level 0 empty, for tables whose writes look keys up (`ForceUpLevel0Compaction` of
//! Apache Paimon).

use super::runs::{Now, Pick, Runs, State};
use super::universal::Universal;

/// The universal pick; where it has nothing to do, level 0 goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForceUp {
    /// Asked first.
    pub universal: Universal,
    /// `None` is radical: level 0 goes up at once. Else gentle: at the so-manieth pick that did nothing.
    /// These are picks, no time.
    pub max_interval: Option<u32>,
}

impl ForceUp {
    /// The newest runs that are to be merged, and what to remember. A universal pick leaves the count of
    /// left-out picks alone; forcing resets it, even when level 0 is empty then.
    pub fn pick(&self, runs: &Runs, state: State, now: Now) -> (Option<Pick>, State) {
        let (pick, mut state) = self.universal.pick(runs, state, now);
        if pick.is_some() {
            return (pick, state);
        }
        if let Some(max) = self.max_interval {
            state.skips = state.skips.saturating_add(1);
            // Not only at it: the stored count may be of a longer interval.
            if state.skips < max {
                return (None, state);
            }
            state.skips = 0;
        }
        let pick = self.universal.force_level_0(runs, now.hour);
        (pick, self.universal.remember(runs, pick, state, now))
    }
}
