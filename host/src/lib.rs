//! Runs a planner plugin: a WebAssembly component behind limits.
//!
//! ```text
//! facts, policy, now ─> PluginPlanner::plan_table ─> request ─> component ─> answer ─> Plan
//!                                                    (bytes)  fresh store    (bytes)  checked
//! ```
//!
//! A plugin is a component of the world `caretaker:planner/planner@1.0.0` (`wit/`): it imports
//! nothing and exports one door of bytes. Each call gets a store of its own, so a plugin keeps
//! nothing between calls and cannot poison the next one. Time, memory, answer and file size are
//! bounded by [`Limits`]; whatever a plugin does ends as a [`PluginError`].

mod describe;
mod error;
pub mod kit;
mod limits;
mod plugin;
mod ticker;

pub use error::PluginError;
pub use limits::Limits;
pub use plugin::PluginPlanner;
