//! The shard writers of this process, as Prometheus reads them.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::{IntCounter, IntGauge, Registry};

use super::{kept, signed};
use crate::pod::Pod;

/// Metrics of [`Pod`].
pub(super) struct OfPod {
    shards: IntGauge,
    memory: IntGauge,
    unfolded: IntGauge,
    draining: IntGauge,
    delayed: IntCounter,
    delayed_ms: IntCounter,
    refused: IntCounter,
    reliefs: IntCounter,
    flushes: IntCounter,
    flush_failures: IntCounter,
    log_bytes: IntCounter,
}

impl OfPod {
    pub(super) fn new(r: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| kept(r, IntGauge::new(name, help)?);
        let counter = |name: &str, help: &str| kept(r, IntCounter::new(name, help)?);
        Ok(Self {
            shards: gauge("caretaker_pod_shards", "Shards that this process has claimed.")?,
            memory: gauge("caretaker_pod_memory_bytes", "Bytes that its shard writers hold in memory.")?,
            unfolded: gauge(
                "caretaker_pod_unfolded_sstables",
                "The most SSTables that one of its shards has to fold.",
            )?,
            draining: gauge("caretaker_pod_draining", "1 while writes are refused because the process stops.")?,
            delayed: counter("caretaker_pod_writes_delayed_total", "Writes that back-pressure has slowed down.")?,
            delayed_ms: counter("caretaker_pod_write_delay_milliseconds_total", "For how long.")?,
            refused: counter("caretaker_pod_writes_refused_total", "Writes that back-pressure has refused (429).")?,
            reliefs: counter("caretaker_pod_reliefs_total", "Memtables flushed because memory was tight.")?,
            flushes: counter("caretaker_pod_flushes_total", "Memtables that became SSTables.")?,
            flush_failures: counter("caretaker_pod_flush_failures_total", "Attempts at it that failed.")?,
            log_bytes: counter("caretaker_pod_log_bytes_total", "Bytes written to the logs of shards.")?,
        })
    }

    pub(super) fn fill(&self, pod: &Pod) {
        let (pressure, counts) = (&pod.pressure, pod.pressure.counts());
        self.shards.set(signed(pod.open_shards() as u64));
        self.memory.set(signed(pressure.memory_bytes()));
        self.unfolded.set(signed(pressure.unfolded_max()));
        self.draining.set(i64::from(pod.is_draining()));
        let told = |counter: &IntCounter, now: &AtomicU64| {
            counter.inc_by(now.load(Ordering::Relaxed).saturating_sub(counter.get()));
        };
        told(&self.delayed, &counts.delayed);
        told(&self.delayed_ms, &counts.delayed_ms);
        told(&self.refused, &counts.refused);
        told(&self.reliefs, &counts.reliefs);
        told(&self.flushes, &counts.flushes);
        told(&self.flush_failures, &counts.flush_failures);
        told(&self.log_bytes, &counts.log_bytes);
    }
}
