//! The invariants of facts, plans, jobs and results, written once. The executor asks before it
//! acts on a proposal (R3.6), the host asks what a plugin answered, and the tests ask everything.
//!
//! Every function collects all violations, up to a thousand; none of them panics on any input.

mod facts;
mod job;
mod maintenance;
mod plan;
mod result;

use alloc::{string::String, vec::Vec};
use core::fmt;
use serde::{Deserialize, Serialize};

pub use facts::facts;
pub use job::job;
pub use plan::plan;
pub use result::after;

/// An invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Facts: ids, names, paths and generations are unique, and generations begin at 1.
    Unique,
    /// Facts: no index covers a generation that is not folded.
    CoversUnfolded,
    /// Facts: a file is listed or garbage, not both.
    ListedGarbage,
    /// A job names something that the facts do not hold. Stale: it may have been there.
    Missing,
    /// A job works on nothing.
    Empty,
    /// A fold names an SSTable that is folded already (R2.12). Stale.
    Folded,
    /// A fold takes the oldest SSTables, in order, without gaps (R2.7).
    Prefix,
    /// A retired SSTable is folded (R2.10).
    NotFolded,
    /// A retired SSTable is covered by every index (R2.10).
    NotCovered,
    /// A collected file is needed by nobody (R2.15).
    Needed,
    /// A sealed shard, a paused table and a table without a key are left alone; one pass a shard (R2.12).
    Gate,
    /// A plan holds each verdict once, in order, for these facts (R3.5).
    Verdicts,
    /// A plan keeps the limits of its policy (R2.7, R2.15).
    Limit,
    /// A plan retires and collects only what is past its delay and its grace (R2.13, R2.15).
    Grace,
    /// A plan catches up only indexes that are behind: a converged table stays as it is.
    NotBehind,
    /// Facts: a fragment has at most as many deleted rows as rows.
    Deleted,
    /// A rewrite takes neighbours below one set of index segments.
    Neighbours,
    /// A rewrite leaves fewer fragments or fewer deleted rows: anything else would be planned again.
    NoProgress,
    /// An index job or a remap finds its work done. Stale.
    Done,
    /// Nothing is planned twice.
    Twice,
    /// Results: the folded generation, the versions of base and shard never go down.
    WentDown,
    /// Results: an SSTable that is not folded never vanishes (R2.13).
    Vanished,
}

impl Rule {
    /// Whether the job may have been right when it was planned: the table has moved on since.
    pub fn is_stale(self) -> bool {
        matches!(self, Self::Missing | Self::Folded | Self::Done)
    }
}

/// One broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What breaks it, for people.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Violations that one check keeps: a foreign plan may hold millions.
const FOUND_MAX: usize = 1000;

/// All violations of one check.
#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, rule: Rule, what: impl Into<String>) {
        self.extend([Violation { rule, what: what.into() }]);
    }

    fn extend(&mut self, violations: impl IntoIterator<Item = Violation>) {
        let room = FOUND_MAX.saturating_sub(self.0.len());
        self.0.extend(violations.into_iter().take(room));
    }

    fn result(self) -> Result<(), Vec<Violation>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}
