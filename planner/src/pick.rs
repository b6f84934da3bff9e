//! What one job takes. A strategy is a file here.
//!
//! `prefix` and `rewrite` are the built-in strategy (`rte`). The others are those of Apache Paimon:
//! pure functions over sorted runs (a level and a size) and over files (a sequence, a size, a deletion
//! vector), state in and state out. Nothing here knows what a run is made of.
//!
//! | for | file |
//! |---|---|
//! | primary key: what to merge | [`universal`], [`lookup`], [`full`] |
//! | primary key: how to merge it | [`levels`], [`sections`], [`stall`] |
//! | append-only | [`append`], [`coordinator`], [`pre_commit`] |
//! | which of them, and its numbers | [`options`], [`rules`] |

pub mod append;
pub mod coordinator;
pub mod early;
pub mod full;
pub mod levels;
pub mod lookup;
pub mod options;
pub mod pre_commit;
pub(crate) mod prefix;
pub(crate) mod rewrite;
pub mod rules;
pub mod runs;
pub mod sections;
pub mod stall;
pub mod universal;
