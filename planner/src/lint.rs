//! Settings that do a table no good: unsafe ones, and ones that do nothing. What a policy shows by itself
//! is [`Policy::lint`]'s; here it is held against a table's facts and what somebody measured.
//!
//! Only what follows from the numbers is said. That a knob never decides is said of one that somebody
//! set: of two defaults that bound each other, one always does nothing, and that is as it should be.

mod base;
mod cleanup;
mod fold;
mod spent;

use alloc::{format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

use crate::facts::TableFacts;
pub use crate::policy::Lint;
use crate::policy::{Policy, Remarks};

/// The kind in [`JobSpent`] of a walk: one look at every table.
pub const WALK: &str = "walk";
/// The kind in [`JobSpent`] of an evaluation of the table: its facts read, its plan made.
pub const EVALUATION: &str = "evaluation";

/// Names that one remark lists.
const NAMES_MAX: usize = 3;
/// Characters of a name in a remark.
const NAME_CHARS_MAX: usize = 40;

/// What somebody measured on a table, beside its facts. What is absent was not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Seen {
    /// The longest read of the table, milliseconds.
    pub longest_read_ms: Option<u64>,
    /// What its jobs took, in any order.
    pub jobs: Vec<JobSpent>,
    /// Versions that tags and branches alone keep: old enough to go, and not among the newest that stay.
    pub pinned: Vec<Pinned>,
    /// Bytes that a cleanup would free now.
    pub removable_bytes: Option<u64>,
}

/// What one job took.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobSpent {
    /// [`crate::job::JobSpec::kind`], [`WALK`] or [`EVALUATION`].
    pub kind: String,
    /// From its beginning to its end, milliseconds.
    pub millis: u64,
}

/// Versions that the same tags and branches keep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    /// What keeps them, for people: ``tag `v1` ``.
    pub by: String,
    /// The versions.
    pub versions: Vec<u64>,
    /// Bytes that would come back if nothing kept them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Remarks on the settings of one table: `policy` is the deployment's, and the table's own config is
/// followed. What [`Policy::lint`] says of the deployment is not said again, but what it says of the
/// table's own choices is.
///
/// Total, and the order of facts and measurements makes no difference.
pub fn table(policy: &Policy, facts: &TableFacts, seen: &Seen) -> Vec<Lint> {
    let effective = policy.for_table(&facts.overrides).policy;
    let mut remarks = Remarks::on(&effective);
    let known = policy.lint();
    remarks.found.extend(effective.lint().into_iter().filter(|lint| !known.contains(lint)));
    cleanup::floor(&mut remarks, policy, facts);
    cleanup::reads(&mut remarks, facts, seen);
    cleanup::pins(&mut remarks, facts, seen);
    base::compaction(&mut remarks, facts);
    base::index(&mut remarks, facts);
    fold::triggers(&mut remarks, facts);
    spent::intervals(&mut remarks, facts, seen);
    remarks.found
}

/// A count with its noun.
fn many(count: u64, one: &str, more: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {more}") }
}

/// The first names, and how many more there are.
fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut all: Vec<&str> = names.into_iter().collect();
    all.sort_unstable();
    all.dedup();
    let shown: Vec<String> = all.iter().take(NAMES_MAX).map(|name| crate::draw::cut(name, NAME_CHARS_MAX)).collect();
    let left = all.len() - shown.len();
    let rest = if left > 0 { format!(" and {left} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}
