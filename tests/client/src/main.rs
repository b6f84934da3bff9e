//! LanceDB's client for Rust against the servers that the environment names. One test a run, by its name:
//! `tests/py/test_rust_client.py` starts the servers and reads the list below.

mod jobs;
mod refusals;
mod tables;
mod writes;

use std::future::Future;
use std::pin::Pin;

use crate::tables::Done;

type Test = fn() -> Pin<Box<dyn Future<Output = Done>>>;

macro_rules! tests {
    ($($room:ident :: $name:ident,)*) => {
        &[$((stringify!($name), || Box::pin($room::$name()))),*]
    };
}

const TESTS: &[(&str, Test)] = tests![
    writes::every_rte_write_is_read_at_once_and_stays_read_when_it_is_folded,
    writes::a_merge_goes_where_use_rte_says,
    writes::a_flush_and_a_compaction_are_seen_in_the_stats,
    writes::a_search_finds_rows_that_no_index_holds_yet,
    writes::a_spec_is_told_as_it_was_set,
    writes::a_table_whose_spec_is_gone_keeps_its_rows,
    writes::another_handle_reads_what_this_one_wrote,
    jobs::a_pass_is_a_job_that_is_listed_described_and_done,
    jobs::pages_of_jobs_follow_each_other,
    jobs::a_job_that_waits_is_paused_resumed_and_cancelled,
    jobs::a_job_that_nobody_knows_is_not_found,
    jobs::jobs_are_shown_by_sql,
    refusals::what_needs_a_write_spec_is_refused_without_one,
    refusals::what_a_table_with_a_write_spec_cannot_do_is_refused,
    refusals::a_shard_that_a_pass_is_at_is_refused_another,
    refusals::a_writer_that_nobody_folds_behind_is_refused_and_what_was_answered_is_read,
    refusals::a_lost_claim_is_refused_once_and_a_checkpoint_begins_anew,
    refusals::a_table_that_is_not_there_is_not_found,
    refusals::optimize_is_not_the_clients,
];

#[tokio::main]
async fn main() -> Done {
    let name = std::env::args().nth(1).unwrap_or_default();
    let test = TESTS.iter().find(|(known, _)| *known == name);
    let (_, test) = test.ok_or_else(|| format!("there is no test `{name}`"))?;
    test().await
}
