//! The only way out: work that changes a table.

pub(crate) mod catchup;
pub(crate) mod collect;
pub mod fold;
pub(crate) mod retire;

mod progress;
pub use progress::Progress;
