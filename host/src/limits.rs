//! What a plugin may use.

use std::time::Duration;

use wasmtime::ResourceLimiter;

/// Bounds of one plugin. There is no way to switch one off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest run of one call.
    pub deadline: Duration,
    /// Most bytes of memory in one call, all linear memories and tables together.
    pub memory_bytes: u64,
    /// Most bytes of an answer.
    pub answer_bytes: u64,
    /// Largest plugin file, bytes. This is what bounds the time and memory of compiling it.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(2), memory_bytes: 256 << 20, answer_bytes: 64 << 20, file_bytes: 16 << 20 }
    }
}

impl Limits {
    pub(crate) fn deadline_ms(&self) -> u64 {
        u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A growth that went over the limit.
#[derive(Debug, thiserror::Error)]
#[error("{asked} bytes of memory were asked for")]
pub(crate) struct MemoryRefused {
    pub(crate) asked: u64,
}

/// Counts the memory of one call. A component may bring many core instances, so the sum counts,
/// not each memory for itself.
pub(crate) struct Meter {
    held: u64,
    limit: u64,
}

/// Bytes a table takes for one element on the host.
const TABLE_ELEMENT_BYTES: u64 = 16;

impl Meter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { held: 0, limit: limits.memory_bytes }
    }

    /// A refusal ends the call: a guest that is told "no" politely would only abort later, with
    /// its reason lost.
    fn grow(&mut self, current: usize, desired: usize, unit: u64) -> wasmtime::Result<bool> {
        let more = (desired as u64).saturating_sub(current as u64).saturating_mul(unit);
        let asked = self.held.saturating_add(more);
        if asked > self.limit {
            return Err(MemoryRefused { asked }.into());
        }
        self.held = asked;
        Ok(true)
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.grow(current, desired, 1)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.grow(current, desired, TABLE_ELEMENT_BYTES)
    }

    fn instances(&self) -> usize {
        64
    }

    fn memories(&self) -> usize {
        64
    }

    fn tables(&self) -> usize {
        64
    }
}
