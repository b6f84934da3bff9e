//! When writes wait for a merge (`MergeTreeCompactManager` of Apache Paimon). Append-only tables never do.
//!
//! Runs are counted before those that the flush adds. At exactly the trigger nothing waits: upstream's
//! text says that a writer stalls when the number is reached, its code when it is exceeded, and the code
//! is followed. To wait means to wait for the merge that runs, not until the number has fallen; where none
//! runs, nobody waits.

/// Whether a flush of `sorted_runs` runs waits before it asks for the next merge.
pub fn flush_waits(sorted_runs: u64, stop_trigger: u32) -> bool {
    sorted_runs > u64::from(stop_trigger)
}

/// Whether a commit waits. One run more than a flush, as the flush of the commit itself adds one.
pub fn commit_waits(sorted_runs: u64, stop_trigger: u32) -> bool {
    sorted_runs > u64::from(stop_trigger) + 1
}
