//! The oldest SSTables, never out of order (R2.7).

use alloc::{string::ToString, vec::Vec};

use crate::facts::SsTableFacts;
use crate::job::JobSpec;
use crate::policy::Policy;

/// The fold of the longest prefix of `unfolded` (oldest first, not empty) that the policy allows.
pub(crate) fn fold(shard: &str, unfolded: &[&SsTableFacts], policy: &Policy) -> JobSpec {
    let taken = &unfolded[..length(unfolded, policy)];
    JobSpec::Fold {
        shard: shard.to_string(),
        sstables: taken.iter().map(|s| s.id()).collect(),
        bytes: taken.iter().map(|s| s.bytes).collect::<Option<Vec<_>>>().map(sum),
    }
}

/// At most `prefix_max` SSTables and `pass_bytes` bytes, at least one of them (progress).
///
/// An unmeasured SSTable may be of any size, so it counts as a whole pass: it is taken alone, when
/// it is the oldest, and otherwise ends the prefix before it. Skipping it instead would fold newer
/// rows before older ones.
fn length(unfolded: &[&SsTableFacts], policy: &Policy) -> usize {
    let max = usize::try_from(policy.prefix_max).unwrap_or(usize::MAX);
    let mut bytes = 0u64;
    let fits = unfolded.iter().take(max).take_while(|sstable| match sstable.bytes {
        Some(more) => {
            bytes = bytes.saturating_add(more);
            bytes <= policy.pass_bytes
        }
        None => false,
    });
    fits.count().max(1).min(unfolded.len())
}

fn sum(bytes: Vec<u64>) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}
