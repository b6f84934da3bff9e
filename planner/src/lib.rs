//! Decides when a Lance table needs care. Pure: facts + policy + now in, a plan out.
//!
//! ```text
//! facts (read fresh) ─┐
//! policy (every knob) ├─> plan_shard / plan_table ─> Plan { one verdict a decision, each with its reasons }
//! now (milliseconds) ─┘
//! ```
//!
//! No clock, no I/O, no randomness: the same input gives the same plan on a server, in a
//! plugin and in a browser. `README.md` beside this crate is the contract in words.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod agent;
pub mod check;
mod decision;
pub mod draw;
pub mod facts;
mod fold;
mod gate;
pub mod job;
pub mod lint;
pub mod merge;
pub mod pick;
pub mod plan;
pub mod policy;
pub mod simulate;
mod staleness;
pub mod time;
pub mod vectors;
pub mod wire;
