//! The only way out: work that changes a table.

pub mod cleanup;
pub(crate) mod collect;
pub mod compact;
pub mod fold;
pub(crate) mod index;
pub(crate) mod remap;
pub(crate) mod retire;

pub(crate) mod files;
mod progress;
pub(crate) mod scan;

pub use progress::Progress;
