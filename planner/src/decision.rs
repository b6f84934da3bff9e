//! The decisions, as functions in a list. A new one is a file below, a line here, and a gate line
//! where it excludes something.

pub(crate) mod collect;
pub(crate) mod retire;
pub(crate) mod wal_catchup;

use crate::fold;
use crate::plan::{Case, Decision, Outcome};

type Decide = fn(&Case<'_>) -> Outcome;

/// What is decided for each shard, in the order its work runs.
pub(crate) const SHARD: [(Decision, Decide); 3] =
    [(Decision::Fold, fold::decide), (Decision::Retire, retire::decide), (Decision::Collect, collect::decide)];
