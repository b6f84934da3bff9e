//! Reads what a Lance table needs and does it: fold, catch-up, retire, collect.

pub mod catalog;
pub mod env;
pub mod error;
pub mod fault;
pub mod latch;
pub mod read;
pub mod report;
pub mod run;
pub mod table;
pub mod tend;
