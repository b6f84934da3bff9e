//! Reads what a Lance table needs and does it: fold, catch-up, retire, collect.

pub mod catalog;
pub mod cli;
pub mod env;
pub mod error;
pub mod fault;
pub mod history;
pub mod latch;
pub mod read;
pub mod report;
pub mod run;
pub mod serve;
pub mod settings;
pub mod show;
pub mod signal;
pub mod table;
pub mod tend;
