//! The series: a state holds until the next one, and an entry keeps the peaks of its time.

use alloc::{string::String, vec, vec::Vec};

use super::timeline::{Samples, ShardSamples, Spread};

/// Shards that have series of their own.
const SHARDS_MAX: usize = 32;

/// What is true from a moment on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) peaks: [u64; PEAKS],
    pub(super) ends: [u64; ENDS],
    /// By shard: SSTables not folded, and their bytes.
    pub(super) shards: Vec<(u64, u64)>,
    /// Jobs that run, and that wait.
    pub(super) running: (u64, u64),
    /// Bytes of logs that are no SSTable yet.
    pub(super) log_bytes: u64,
    /// When the oldest row came that is not in the base, milliseconds since the epoch.
    pub(super) oldest_ms: Option<u64>,
    pub(super) held: bool,
}

/// Series of which an entry keeps the most.
pub(super) const PEAKS: usize = 6;
/// Series of which an entry keeps the last.
pub(super) const ENDS: usize = 4;

pub(super) struct Recorder {
    start_ms: u64,
    duration_ms: u64,
    samples: Samples,
    state: State,
    at_ms: u64,
    /// Of the entry in progress.
    peaks: [u64; PEAKS],
    shards: Vec<(u64, u64)>,
    running: (u64, u64),
    staleness_ms: u64,
    held_ms: u64,
    pub(super) held_total_ms: u64,
    /// Times in which staleness grew: from, to. And for how long it was 0.
    spans: Vec<(u64, u64)>,
    fresh_ms: u64,
}

impl Recorder {
    pub(super) fn new(start_ms: u64, duration_ms: u64, points: u64, shards: &[String]) -> Self {
        let named = |shard: &String| ShardSamples { shard: shard.clone(), ..ShardSamples::default() };
        let samples = Samples {
            every_ms: duration_ms.div_ceil(points.max(1)).max(1),
            shards: shards.iter().take(SHARDS_MAX).map(named).collect(),
            ..Samples::default()
        };
        Self {
            start_ms,
            duration_ms,
            samples,
            peaks: [0; PEAKS],
            shards: vec![(0, 0); shards.len()],
            running: (0, 0),
            state: State::default(),
            at_ms: 0,
            staleness_ms: 0,
            held_ms: 0,
            held_total_ms: 0,
            spans: Vec::new(),
            fresh_ms: 0,
        }
    }

    /// From `now_ms` on it is as `state` says.
    pub(super) fn note(&mut self, now_ms: u64, state: &State) {
        self.until(now_ms);
        for (peak, new) in self.peaks.iter_mut().zip(state.peaks) {
            *peak = new.max(*peak);
        }
        for (peak, new) in self.shards.iter_mut().zip(&state.shards) {
            *peak = (peak.0.max(new.0), peak.1.max(new.1));
        }
        self.running = (self.running.0.max(state.running.0), self.running.1.max(state.running.1));
        self.state.shards.clone_from(&state.shards);
        let shards = core::mem::take(&mut self.state.shards);
        self.state = State { shards, ..*state };
        self.staleness_ms = self.staleness_ms.max(self.stale(now_ms));
    }

    fn stale(&self, now_ms: u64) -> u64 {
        let now = self.start_ms.saturating_add(now_ms);
        self.state.oldest_ms.map_or(0, |oldest| now.saturating_sub(oldest))
    }

    /// Time passes with the state as it is.
    fn until(&mut self, now_ms: u64) {
        while self.at_ms < now_ms {
            let end = (self.samples.at_ms.len() as u64 + 1).saturating_mul(self.samples.every_ms);
            let end = end.min(self.duration_ms);
            let to = end.min(now_ms);
            let passed = to - self.at_ms;
            let (from, until) = (self.stale(self.at_ms), self.stale(to));
            match self.spans.last_mut() {
                _ if until == 0 => self.fresh_ms += passed,
                Some((_, last)) if *last == from && from > 0 => *last = until,
                _ => self.spans.push((from, until)),
            }
            self.staleness_ms = self.staleness_ms.max(until);
            if self.state.held {
                self.held_ms += passed;
                self.held_total_ms += passed;
            }
            self.at_ms = to;
            if to == end {
                self.entry(end);
            }
        }
    }

    fn entry(&mut self, end: u64) {
        let samples = &mut self.samples;
        samples.at_ms.push(end);
        let [unfolded, bytes, unindexed, fragments, small, deleted] = self.peaks;
        let columns = [
            (&mut samples.unfolded, unfolded),
            (&mut samples.unfolded_bytes, bytes),
            (&mut samples.unindexed_rows, unindexed),
            (&mut samples.fragments, fragments),
            (&mut samples.small_fragments, small),
            (&mut samples.deleted_rows, deleted),
            (&mut samples.running, self.running.0),
            (&mut samples.queued, self.running.1),
            (&mut samples.staleness_ms, self.staleness_ms),
            (&mut samples.stalled_ms, self.held_ms),
            (&mut samples.base_rows, self.state.ends[0]),
            (&mut samples.versions, self.state.ends[1]),
            (&mut samples.disk_bytes, self.state.ends[2].saturating_add(self.state.log_bytes)),
            (&mut samples.garbage_bytes, self.state.ends[3]),
        ];
        for (column, value) in columns {
            column.push(value);
        }
        for (shard, (count, bytes)) in samples.shards.iter_mut().zip(&self.shards) {
            shard.unfolded.push(*count);
            shard.unfolded_bytes.push(*bytes);
        }
        self.peaks = self.state.peaks;
        self.shards.clone_from(&self.state.shards);
        self.running = self.state.running;
        self.staleness_ms = self.stale(end);
        self.held_ms = 0;
    }

    /// The series, and how stale a reader was over all moments.
    pub(super) fn end(mut self) -> (Samples, Spread) {
        self.until(self.duration_ms);
        let max = self.spans.iter().map(|(_, to)| *to).max().unwrap_or(0);
        let quantile = |permille: u64| {
            let all = self.duration_ms;
            let below = |value: u64| {
                let part = |(from, to): &(u64, u64)| value.min(*to).saturating_sub(*from);
                self.spans.iter().map(part).sum::<u64>() + self.fresh_ms
            };
            let wanted = super::rows::share(all, permille, 1_000);
            let (mut low, mut high) = (0, max);
            while low < high {
                let middle = low + (high - low) / 2;
                if below(middle) >= wanted { high = middle } else { low = middle + 1 }
            }
            low
        };
        let spread = Spread { p50: quantile(500), p99: quantile(990), max };
        (self.samples, spread)
    }
}

/// The distribution of single values.
pub(super) fn spread(mut values: Vec<u64>) -> Spread {
    values.sort_unstable();
    let at = |permille: usize| values.get((values.len().saturating_sub(1)) * permille / 1_000).copied().unwrap_or(0);
    Spread { p50: at(500), p99: at(990), max: values.last().copied().unwrap_or(0) }
}
