//! Whose turn it is and what counts as covered, with a clock made of numbers.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use planner::agent::{Agent, Effect, Event};
use planner::facts::TableFacts;
use planner::plan::{Plan, Trigger, plan_table};
use planner::policy::{AgentPolicy, Policy};
use proptest::prelude::*;

const SECOND_MS: u64 = 1000;

fn policy(budget: u64) -> AgentPolicy {
    AgentPolicy { budget, ..AgentPolicy::default() }
}

fn names(names: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    names.into_iter().map(Into::into).collect()
}

fn owning(budget: u64, tables: impl IntoIterator<Item = impl Into<String>>) -> Agent {
    let mut agent = Agent::new(policy(budget));
    assert_eq!(agent.handle(Event::OwnershipChanged { tables: names(tables) }, 0), []);
    agent
}

fn reads(effects: &[Effect]) -> Vec<(String, u64)> {
    let read = |effect: &Effect| match effect {
        Effect::Read { table, evaluation } => Some((table.clone(), *evaluation)),
        _ => None,
    };
    effects.iter().filter_map(read).collect()
}

fn tick(agent: &mut Agent, now_ms: u64) -> Vec<(String, u64)> {
    reads(&agent.handle(Event::Tick, now_ms))
}

fn quiet(table: &str) -> Box<Plan> {
    let facts = TableFacts { table: table.into(), version: 1, ..TableFacts::default() };
    Box::new(plan_table(&facts, &Policy::default(), 0, Trigger::Tick))
}

fn succeed(agent: &mut Agent, (table, evaluation): (String, u64), now_ms: u64) -> Vec<Effect> {
    let plan = quiet(&table);
    agent.handle(Event::FactsRead { table, evaluation, plan }, now_ms)
}

fn fail(agent: &mut Agent, (table, evaluation): (String, u64), now_ms: u64) -> Vec<Effect> {
    agent.handle(Event::ReadFailed { table, evaluation, why: "no such file".into() }, now_ms)
}

fn notify(agent: &mut Agent, table: &str) {
    assert_eq!(agent.handle(Event::Notified { table: table.into() }, 0), []);
}

#[test]
fn pln_05_the_alphabet_does_not_decide_who_is_served() {
    for zz in ["zz", "ÿÿ", "aa"] {
        let busy: Vec<String> = (0..50).map(|n| format!("a{n:02}")).collect();
        let mut agent = owning(5, busy.iter().map(String::as_str).chain([zz]));
        let mut first = None;
        for at in 0..20 {
            for table in &busy {
                notify(&mut agent, table);
            }
            for read in tick(&mut agent, at * SECOND_MS) {
                first = first.or((read.0 == zz).then_some(at + 1));
                succeed(&mut agent, read, at * SECOND_MS);
            }
        }
        assert!(first.is_some_and(|tick| tick <= 11), "{zz} at tick {first:?}");
    }
}

#[test]
fn pln_06_a_hot_tables_events_do_not_crowd_out_the_sweep() {
    let quiet: Vec<String> = (0..100).map(|n| format!("quiet{n}")).collect();
    let mut agent = owning(10, quiet.iter().map(String::as_str).chain(["hot"]));
    let mut evaluated = BTreeMap::<String, u64>::new();
    for at in 0..700 {
        (0..1000).for_each(|_| notify(&mut agent, "hot"));
        let started = tick(&mut agent, at * SECOND_MS);
        assert!(started.iter().filter(|read| read.0 == "hot").count() <= 1);
        for read in started {
            *evaluated.entry(read.0.clone()).or_default() += 1;
            succeed(&mut agent, read, at * SECOND_MS);
        }
    }
    assert!(quiet.iter().all(|table| evaluated[table] >= 1));
    assert!(evaluated["hot"] > 600, "and the hot one is not starved either");
}

#[test]
fn every_one_of_10_000_idle_tables_is_evaluated_in_a_sweep_beside_a_hot_one() {
    let tables: Vec<String> = (0..10_000).map(|n| format!("t{n}")).chain(["hot".into()]).collect();
    let mut agent = owning(64, &tables);
    let mut seen = BTreeSet::new();
    for at in 0..600 {
        notify(&mut agent, "hot");
        for read in tick(&mut agent, at * SECOND_MS) {
            seen.insert(read.0.clone());
            succeed(&mut agent, read, at * SECOND_MS);
        }
    }
    assert_eq!(seen.len(), tables.len());
    assert!(agent.coverage(600 * SECOND_MS).cycles_completed_total >= 1);
}

#[test]
fn a_notification_during_an_evaluation_makes_exactly_one_more_after_it() {
    let mut agent = owning(64, ["t"]);
    let first = tick(&mut agent, 0);
    assert_eq!(first.len(), 1);
    (0..9).for_each(|_| notify(&mut agent, "t"));
    assert_eq!(tick(&mut agent, SECOND_MS), [], "at most one evaluation of a table at a time");
    succeed(&mut agent, first[0].clone(), SECOND_MS);
    let second = tick(&mut agent, 2 * SECOND_MS);
    assert_eq!(second.len(), 1);
    succeed(&mut agent, second[0].clone(), 2 * SECOND_MS);
    assert_eq!(tick(&mut agent, 3 * SECOND_MS), []);
    assert_eq!(tick(&mut agent, 601 * SECOND_MS), [], "the sweep counts from the last evaluation");
    assert_eq!(tick(&mut agent, 602 * SECOND_MS).len(), 1);
}

#[test]
fn notifications_get_half_of_the_budget_while_the_sweep_waits_and_all_of_it_otherwise() {
    let tables: Vec<String> = (0..40).map(|n| format!("t{n:02}")).collect();
    let mut agent = owning(10, &tables[..20]);
    for at in 0..2 {
        for read in tick(&mut agent, at) {
            succeed(&mut agent, read, at);
        }
    }
    tables[..20].iter().for_each(|table| notify(&mut agent, table));
    agent.handle(Event::OwnershipChanged { tables: names(&tables) }, 5);
    let shared = tick(&mut agent, 10);
    assert_eq!(shared.iter().filter(|read| read.0 < tables[20]).count(), 5);
    assert_eq!(shared.len(), 10);
    shared.into_iter().for_each(|read| drop(succeed(&mut agent, read, 10)));
    let mut rest = 0;
    for at in 11..14 {
        for read in tick(&mut agent, at) {
            rest += u64::from(read.0 < tables[20]);
            succeed(&mut agent, read, at);
        }
    }
    assert_eq!(rest, 15, "5, 5 and then 5 that are left");
}

#[test]
fn a_failing_table_backs_off_doubling_up_to_the_sweep_and_is_shown() {
    let mut agent = owning(64, ["bad", "good"]);
    let (mut tries, mut good) = (Vec::new(), 0);
    for at in 0..3000 {
        notify(&mut agent, "bad");
        for read in tick(&mut agent, at * SECOND_MS) {
            if read.0 == "bad" {
                tries.push(at);
                let effects = fail(&mut agent, read, at * SECOND_MS);
                assert!(matches!(&effects[..], [Effect::Report { table, .. }] if table == "bad"));
            } else {
                good += 1;
                succeed(&mut agent, read, at * SECOND_MS);
            }
        }
    }
    assert_eq!(tries, [0, 60, 180, 420, 900, 1500, 2100, 2700]);
    assert_eq!(good, 5, "the others are swept as ever");
    let failing: Vec<_> = agent.failing().collect();
    assert_eq!((failing[0].0, failing[0].1.times, failing[0].1.why.as_str()), ("bad", 8, "no such file"));
    let read = tick(&mut agent, 3300 * SECOND_MS).into_iter().find(|read| read.0 == "bad").unwrap();
    succeed(&mut agent, read, 3300 * SECOND_MS);
    assert_eq!(agent.failing().count(), 0);
}

#[test]
fn an_evaluation_that_takes_too_long_has_failed_and_its_answer_is_ignored() {
    let mut agent = owning(64, ["slow"]);
    let read = tick(&mut agent, 0).remove(0);
    assert_eq!(agent.handle(Event::Tick, 60 * SECOND_MS), [], "exactly the limit is not more");
    let effects = agent.handle(Event::Tick, 60 * SECOND_MS + 1);
    assert!(matches!(&effects[0], Effect::Report { failing, .. } if failing.times == 1));
    assert_eq!(effects[1], Effect::Cancel { table: "slow".into(), evaluation: read.1 });
    assert_eq!(succeed(&mut agent, read, 61 * SECOND_MS), []);
    assert_eq!(agent.coverage(61 * SECOND_MS).never_evaluated, 1);
    assert_eq!(tick(&mut agent, 121 * SECOND_MS).len(), 1);
}

#[test]
fn due_jobs_are_handed_on_and_an_ended_job_asks_again() {
    let mut agent = owning(64, ["t"]);
    let (table, evaluation) = tick(&mut agent, 0).remove(0);
    let remap = serde_json::json!({ "table": "t", "version": 3, "remap": { "rewrites": 8 } });
    let plan = Box::new(plan_table(&serde_json::from_value(remap).unwrap(), &Policy::default(), 0, Trigger::Tick));
    let effects = agent.handle(Event::FactsRead { table, evaluation, plan: plan.clone() }, 0);
    assert_eq!(effects, [Effect::Enqueue { plan }]);
    assert_eq!(agent.handle(Event::JobEnded { table: "t".into() }, 1), []);
    assert_eq!(tick(&mut agent, 2).len(), 1);
}

#[test]
fn an_evaluation_that_was_abandoned_blames_no_table_and_is_made_again() {
    let mut agent = owning(9, ["a"]);
    let (table, evaluation) = tick(&mut agent, 1_000).remove(0);
    assert_eq!(agent.handle(Event::ReadAbandoned { table, evaluation }, 1_000), []);
    assert_eq!((agent.failing().count(), agent.coverage(1_000).never_evaluated), (0, 1));
    assert_eq!(tick(&mut agent, 2_000).len(), 1, "with the next tick, without a pause");
}

#[test]
fn cov_01_failed_and_timed_out_evaluations_are_no_successes() {
    let mut agent = owning(64, ["ok", "error", "timeout", "never"]);
    for at in 0..=900 {
        for read in tick(&mut agent, at * SECOND_MS) {
            match read.0.as_str() {
                "ok" => drop(succeed(&mut agent, read, at * SECOND_MS)),
                "error" | "never" => drop(fail(&mut agent, read, at * SECOND_MS)),
                _ => {}
            }
        }
        let coverage = agent.coverage(at * SECOND_MS);
        assert_eq!(coverage.never_evaluated, 3);
        assert_eq!(coverage.oldest_success_age_seconds, at, "it counts from when they were first owned, and grows");
        assert_eq!((coverage.cycle_pending, coverage.cycles_completed_total), (3, 0));
    }
    assert_eq!(agent.failing().count(), 3);
}

#[test]
fn cov_02_what_is_no_longer_owned_is_no_longer_counted() {
    let mut agent = owning(64, ["a", "b", "c", "d", "e"]);
    for read in tick(&mut agent, 0) {
        let at = if read.0 == "e" { 9 * SECOND_MS } else { 0 };
        succeed(&mut agent, read, at);
    }
    agent.handle(Event::OwnershipChanged { tables: names(["e"]) }, 10 * SECOND_MS);
    let coverage = agent.coverage(10 * SECOND_MS);
    assert_eq!((coverage.never_evaluated, coverage.oldest_success_age_seconds, coverage.cycle_target), (0, 1, 1));
}

#[test]
fn cov_04_the_target_of_a_cycle_is_frozen() {
    let mut agent = owning(1, ["A", "B", "C", "D"]);
    let read = tick(&mut agent, 0).remove(0);
    let a = read.0.clone();
    succeed(&mut agent, read, 0);
    let first = agent.coverage(0);
    assert_eq!((first.cycle_target, first.cycle_pending), (4, 3));
    // The report's A is whoever comes first; then E is created, one is dropped, one moves away.
    let others: Vec<&str> = ["A", "B", "C", "D"].into_iter().filter(|table| *table != a).collect();
    for (owned, target) in [
        (names([&a, others[0], others[1], others[2], "E"]), 4),
        (names([&a, others[1], others[2], "E"]), 3),
        (names([&a, others[2], "E"]), 2),
    ] {
        agent.handle(Event::OwnershipChanged { tables: owned }, 1);
        let coverage = agent.coverage(1);
        assert_eq!((coverage.cycle_target, coverage.cycle_pending), (target, target - 1));
        assert_eq!(coverage.cycles_completed_total, 0);
    }
    let read = tick(&mut agent, 2).remove(0);
    assert_eq!(read.0, others[2], "who waits longest, and not the new one");
    succeed(&mut agent, read, 2);
    assert_eq!(agent.coverage(2).cycles_completed_total, 1);
    let read = tick(&mut agent, 3).remove(0);
    assert_eq!(read.0, "E");
    assert_eq!(agent.coverage(3).cycle_target, 3, "the second cycle has the new one");
}

#[test]
fn a_cycle_that_everything_left_counts_for_nothing() {
    let mut agent = owning(64, ["a", "b"]);
    tick(&mut agent, 0);
    let effects = agent.handle(Event::OwnershipChanged { tables: names(["c"]) }, 1);
    assert!(effects.iter().all(|effect| matches!(effect, Effect::Cancel { .. })) && effects.len() == 2);
    let coverage = agent.coverage(1);
    assert_eq!((coverage.cycle_target, coverage.cycle_pending, coverage.cycles_completed_total), (0, 0, 0));
    tick(&mut agent, 2);
    assert_eq!(agent.coverage(2).cycle_target, 1);
}

#[test]
fn the_metrics_have_their_documented_names() {
    let names: Vec<_> = owning(1, ["t"]).coverage(0).metrics().map(|(name, _)| name).into();
    assert_eq!(
        names,
        [
            "lance_agent_coverage_never_evaluated",
            "lance_agent_coverage_oldest_success_age_seconds",
            "lance_agent_coverage_cycle_target",
            "lance_agent_coverage_cycle_pending",
            "lance_agent_coverage_cycles_completed_total",
        ]
    );
}

/// What a run of the agent may meet.
#[derive(Clone, Debug)]
enum Step {
    Tick(u64),
    Notify(usize),
    Answer(usize, bool),
    Own(Vec<usize>),
    /// An answer to a question that was never asked.
    Stray(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u64..90_000).prop_map(Step::Tick),
        3 => (0usize..12).prop_map(Step::Notify),
        4 => (0usize..12, prop::bool::weighted(0.7)).prop_map(|(at, well)| Step::Answer(at, well)),
        1 => prop::collection::vec(0usize..12, 0..12).prop_map(Step::Own),
        1 => (0usize..12, 0u64..40).prop_map(|(at, evaluation)| Step::Stray(at, evaluation)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_budget_holds_one_evaluation_a_table_runs_and_the_counts_are_right(
        budget in 1u64..5, steps in prop::collection::vec(step(), 0..120),
    ) {
        let name = |at: usize| format!("t{at}");
        let (mut agent, mut open) = (owning(budget, (0..6).map(name)), BTreeMap::<String, u64>::new());
        let (mut owned, mut now_ms, mut completed) = (names((0..6).map(name)), 0, 0);
        let mut ever: BTreeSet<String> = BTreeSet::new();
        for step in steps {
            let effects = match step {
                Step::Tick(wait) => {
                    now_ms += wait;
                    agent.handle(Event::Tick, now_ms)
                }
                Step::Notify(at) => agent.handle(Event::Notified { table: name(at) }, now_ms),
                Step::Answer(at, well) => {
                    let Some(evaluation) = open.remove(&name(at)) else { continue };
                    let read = (name(at), evaluation);
                    if well {
                        ever.insert(name(at));
                        succeed(&mut agent, read, now_ms)
                    } else {
                        fail(&mut agent, read, now_ms)
                    }
                }
                Step::Own(tables) => {
                    owned = names(tables.into_iter().map(name));
                    ever.retain(|table| owned.contains(table));
                    agent.handle(Event::OwnershipChanged { tables: owned.clone() }, now_ms)
                }
                Step::Stray(at, evaluation) if open.get(&name(at)) != Some(&evaluation) => {
                    succeed(&mut agent, (name(at), evaluation), now_ms)
                }
                Step::Stray(..) => continue,
            };
            for effect in &effects {
                if let Effect::Cancel { table, evaluation } = effect {
                    prop_assert_eq!(open.remove(table), Some(*evaluation));
                }
            }
            for (table, evaluation) in reads(&effects) {
                prop_assert!(owned.contains(&table));
                prop_assert_eq!(open.insert(table, evaluation), None, "two at a time");
            }
            prop_assert!(open.len() as u64 <= budget);
            let coverage = agent.coverage(now_ms);
            prop_assert_eq!(coverage.never_evaluated, (owned.len() - ever.len()) as u64);
            prop_assert!(coverage.cycle_pending <= coverage.cycle_target);
            prop_assert!(coverage.cycle_target <= owned.len() as u64);
            prop_assert!(coverage.cycles_completed_total >= completed);
            completed = coverage.cycles_completed_total;
        }
    }
}
