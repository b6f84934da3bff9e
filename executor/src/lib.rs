//! Reads what Lance tables need, has it planned, and does it; serves, remembers and shows it.

pub mod answers;
pub mod apart;
pub mod catalog;
pub mod cli;
pub mod decide;
pub mod env;
pub mod error;
pub mod fault;
pub mod fence;
pub mod holders;
pub mod latch;
pub mod pod;
pub mod read;
pub mod registry;
pub mod report;
pub mod run;
pub mod serve;
pub mod settings;
pub mod show;
pub mod signal;
pub mod sql;
pub mod status;
pub mod table;
pub mod tend;
pub mod worker;
