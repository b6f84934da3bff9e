//! The decisions, as functions in a list. A new one is a file below, a line here, and a gate line
//! where it excludes something.

pub(crate) mod cleanup;
pub(crate) mod collect;
pub(crate) mod compaction;
pub(crate) mod index;
pub(crate) mod remap;
mod retire;
mod wal_catchup;

use crate::fold;
use crate::plan::{Case, Decision, Outcome, TableCase};

type DecideTable = fn(&TableCase<'_>) -> Outcome;
type Decide = fn(&Case<'_>) -> Outcome;

/// What is decided for the table, in the order of R3.4.
pub(crate) const TABLE: [(Decision, DecideTable); 5] = [
    (Decision::WalCatchup, wal_catchup::decide),
    (Decision::Index, index::decide),
    (Decision::Compaction, compaction::decide),
    (Decision::Cleanup, cleanup::decide),
    (Decision::Remap, remap::decide),
];

/// What is decided for each shard, in the order its work runs.
pub(crate) const SHARD: [(Decision, Decide); 3] =
    [(Decision::Fold, fold::decide), (Decision::Retire, retire::decide), (Decision::Collect, collect::decide)];
