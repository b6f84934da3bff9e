//! What holds for all facts. A failure prints the smallest facts that break it; keep them as a
//! scenario.
#![allow(clippy::unwrap_used)]

mod world;

use std::collections::BTreeSet;

use planner::facts::{FragmentFacts, SsTableFacts, TableFacts};
use planner::job::{IndexOp, JobSpec};
use planner::lint::{self, JobSpent, Pinned, Seen};
use planner::merge::merge;
use planner::plan::{Decision, Outcome, Plan, Trigger, plan_table};
use planner::policy::{KNOBS, Policy};
use planner::{check, draw, simulate, wire};
use proptest::prelude::*;
use world::{NOW_MS, facts, number, policy, trigger, wild, wild_policy};

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("CASES").map_or(256, |n| n.parse().unwrap()), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_facts_can_be_true(facts in facts()) {
        prop_assert_eq!(check::facts(&facts), Ok(()));
    }

    #[test]
    fn order_of_facts_never_matters((facts, shuffled) in shuffled(), policy in policy(), trigger in trigger()) {
        let plan = plan_table(&facts, &policy, NOW_MS, trigger);
        prop_assert_eq!(plan, plan_table(&shuffled, &policy, NOW_MS, trigger));
        prop_assert_eq!(draw::facts(&facts, NOW_MS), draw::facts(&shuffled, NOW_MS));
    }

    #[test]
    fn more_pressure_never_makes_less_due(
        facts in facts(), policy in policy(), trigger in trigger(),
        shard in any::<prop::sample::Index>(), bytes in prop::option::of(0u64..50), wait in 0u64..100,
    ) {
        let before = wanted(&plan_table(&facts, &policy, NOW_MS, trigger));
        let mut more = facts;
        if !more.shards.is_empty() {
            let at = shard.index(more.shards.len());
            let sstable = SsTableFacts {
                generation: 20,
                path: "one more".into(),
                bytes,
                rows: None,
                flushed_at_ms: Some(NOW_MS),
            };
            more.shards[at].sstables.push(sstable);
        }
        if let Some(fragments) = &mut more.fragments {
            let id = fragments.last().map_or(0, |last| last.id + 1);
            fragments.push(FragmentFacts { id, rows: bytes.unwrap_or(0), deleted: Some(0), ..FragmentFacts::default() });
        }
        for index in &mut more.indexes {
            index.unindexed_rows = index.unindexed_rows.map(|rows| rows + wait);
            index.segments = index.segments.map(|segments| segments + wait);
        }
        let after = wanted(&plan_table(&more, &policy, NOW_MS + wait, trigger));
        prop_assert!(after.is_superset(&before), "{before:?} became {after:?}");
    }

    #[test]
    fn time_alone_makes_it_due_exactly_when_the_plan_says(
        facts in facts(), policy in policy(), trigger in trigger(),
    ) {
        let plan = plan_table(&facts, &policy, NOW_MS, trigger);
        for (n, verdict) in plan.verdicts.iter().enumerate() {
            let Outcome::NotDue { due_at_ms, .. } = &verdict.outcome else { continue };
            let outcome = |now_ms| plan_table(&facts, &policy, now_ms, trigger).verdicts.swap_remove(n).outcome;
            let due = |now_ms| matches!(outcome(now_ms), Outcome::Due { .. });
            // At that moment something else may go first, so held is an answer too.
            let waits = |now_ms| matches!(outcome(now_ms), Outcome::NotDue { .. });
            match due_at_ms {
                Some(due_at) => {
                    prop_assert!(*due_at > NOW_MS);
                    prop_assert!(!due(due_at - 1), "due before {due_at}: {verdict:?}");
                    prop_assert!(!waits(*due_at), "not due at {due_at}: {verdict:?}");
                }
                None => prop_assert!(!due(u64::MAX), "due at last: {verdict:?}"),
            }
        }
    }

    #[test]
    fn every_plan_passes_its_check(facts in facts(), policy in policy(), trigger in trigger()) {
        let plan = plan_table(&facts, &policy, NOW_MS, trigger);
        prop_assert_eq!(check::plan(&plan, &facts, &policy), Ok(()));
    }

    #[test]
    fn nothing_is_planned_twice(facts in facts(), policy in policy(), trigger in trigger()) {
        let mut seen = BTreeSet::new();
        for job in plan_table(&facts, &policy, NOW_MS, trigger).jobs() {
            let shard = job.shard().unwrap_or_default();
            let touched: Vec<String> = match job {
                JobSpec::Fold { sstables, .. } | JobSpec::Retire { sstables, .. } => {
                    sstables.iter().map(|s| format!("{shard} {}", s.path)).collect()
                }
                JobSpec::Collect { files, .. } => files.iter().map(|f| format!("{shard} {}", f.path)).collect(),
                JobSpec::CatchUp { indexes, .. } => indexes.iter().map(|i| format!("catch-up {i}")).collect(),
                JobSpec::Index { indexes, op, .. } => {
                    // An append is what a catch-up does.
                    let both = ["index", "catch-up"].into_iter().take(if *op == IndexOp::Append { 2 } else { 1 });
                    both.flat_map(|what| indexes.iter().map(move |i| format!("{what} {i}"))).collect()
                }
                JobSpec::Compact { tasks, .. } => tasks.iter().flatten().map(|id| format!("fragment {id}")).collect(),
                JobSpec::Cleanup { .. } | JobSpec::Remap { .. } => vec![job.kind()],
            };
            for what in touched {
                prop_assert!(seen.insert(what.clone()), "{what} twice");
            }
        }
    }

    #[test]
    fn a_fold_takes_as_much_as_fits_and_no_more(facts in facts(), policy in policy()) {
        for job in plan_table(&facts, &policy, NOW_MS, Trigger::Forced).jobs() {
            let JobSpec::Fold { shard, sstables, bytes } = job else { continue };
            let unfolded = facts.shards.iter().find(|s| s.shard == *shard).unwrap().unfolded();
            let (taken, left) = unfolded.split_at(sstables.len());
            prop_assert_eq!(*bytes, taken.iter().map(|s| s.bytes).sum::<Option<u64>>());
            let full = sstables.len() as u64 == policy.prefix_max;
            let next_fits = left.first().is_some_and(|next| {
                bytes.zip(next.bytes).is_some_and(|(taken, next)| taken + next <= policy.pass_bytes)
            });
            prop_assert!(full || !next_fits);
        }
    }

    #[test]
    fn applying_plans_reaches_quiet_and_stays_there(facts in facts(), policy in policy(), trigger in trigger()) {
        let mut facts = facts;
        let original = facts.clone();
        // Each round folds, retires, collects or catches up at least one thing of each shard.
        for _ in 0..64 {
            let plan = plan_table(&facts, &policy, NOW_MS, trigger);
            if plan.jobs().next().is_none() {
                break;
            }
            prop_assert_eq!(check::plan(&plan, &facts, &policy), Ok(()));
            for job in plan.jobs() {
                prop_assert_eq!(check::job(job, &facts), Ok(()));
                let before = facts.clone();
                simulate::apply(&mut facts, job, NOW_MS);
                prop_assert_eq!(check::after(&before, &facts), Ok(()));
                prop_assert_eq!(check::facts(&facts), Ok(()));
            }
        }
        prop_assert_eq!(plan_table(&facts, &policy, NOW_MS, trigger).jobs().count(), 0);
        prop_assert_eq!(check::after(&original, &facts), Ok(()));
    }

    #[test]
    fn any_facts_policy_and_time_give_a_plan_and_a_picture(
        facts in wild(), other in wild(), policy in wild_policy(), now_ms in number(), trigger in trigger(),
    ) {
        let plan = plan_table(&facts, &policy, now_ms, trigger);
        let _ = (check::facts(&facts), check::plan(&plan, &other, &policy), check::after(&facts, &other));
        let _ = (policy.check(), policy.lint(), policy.to_toml());
        for line in draw::facts(&facts, now_ms).lines().chain(draw::plan(&plan).lines()) {
            prop_assert!(line.chars().count() < draw::WIDTH, "{line}");
        }
        let mut changed = other;
        for job in plan.jobs() {
            let things = match job {
                JobSpec::Fold { sstables, .. } | JobSpec::Retire { sstables, .. } => sstables.len(),
                JobSpec::CatchUp { indexes, .. } | JobSpec::Index { indexes, .. } => indexes.len(),
                JobSpec::Compact { tasks, .. } => tasks.iter().map(Vec::len).min().unwrap_or(0),
                // A remap without an index trims.
                JobSpec::Cleanup { .. } | JobSpec::Remap { .. } => 1,
                JobSpec::Collect { files, .. } => files.len(),
            };
            prop_assert!(things > 0, "a job on nothing: {job:?}");
            let _ = check::job(job, &changed);
            simulate::apply(&mut changed, job, now_ms);
        }
    }

    #[test]
    fn any_table_is_linted_and_the_order_of_facts_never_matters(
        wild in wild(), (facts, shuffled) in shuffled(), policy in policy(), other in wild_policy(), seen in seen(),
    ) {
        let mut mixed = seen.clone();
        mixed.jobs.reverse();
        mixed.pinned.reverse();
        for policy in [policy, other] {
            let found = lint::table(&policy, &facts, &seen);
            prop_assert_eq!(&found, &lint::table(&policy, &shuffled, &mixed));
            for lint in found.iter().chain(&lint::table(&policy, &wild, &seen)) {
                prop_assert!(!lint.key.is_empty() && !lint.why.chars().any(char::is_control), "{lint:?}");
            }
        }
    }

    #[test]
    fn the_wire_gives_the_plan_of_a_direct_call(facts in facts(), policy in wild_policy(), trigger in trigger()) {
        let request = serde_json::json!({
            "op": "plan_table", "facts": facts, "policy": policy, "now_ms": NOW_MS, "trigger": trigger,
        });
        let answer: serde_json::Value = serde_json::from_slice(&wire::call(request.to_string().as_bytes())).unwrap();
        if policy.check().is_ok() {
            let plan: Plan = serde_json::from_value(answer["ok"].clone()).unwrap();
            prop_assert_eq!(plan, plan_table(&facts, &policy, NOW_MS, trigger));
        } else {
            prop_assert_eq!(&answer["error"]["kind"], "policy");
        }
    }

    #[test]
    fn packed_and_as_json_the_plan_is_the_same(
        facts in facts(), policy in wild_policy(), trigger in trigger(),
    ) {
        let answer = wire::call(&wire::packed::request(&facts, &policy, NOW_MS, trigger));
        let plan = wire::packed::read_answer(&answer);
        let expected = policy.check().is_ok().then(|| plan_table(&facts, &policy, NOW_MS, trigger));
        prop_assert_eq!(plan, expected);
    }

    #[test]
    fn a_damaged_packed_request_gets_an_answer(
        facts in wild(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut bytes = wire::packed::request(&facts, &Policy::default(), NOW_MS, Trigger::Tick);
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let answer = wire::call(&bytes);
        let refused = serde_json::from_slice::<serde_json::Value>(&answer).is_ok_and(|a| a["error"]["message"].is_string());
        prop_assert!(refused || wire::packed::read_answer(&answer).is_some());
    }

    #[test]
    fn what_a_plugin_decides_is_carried_out_with_the_built_in_catch_up(
        facts in facts(), policy in policy(), other in policy(), trigger in trigger(),
    ) {
        // Any other policy stands for a plugin of another mind.
        let (own, foreign) = (plan_table(&facts, &policy, NOW_MS, trigger), plan_table(&facts, &other, NOW_MS, trigger));
        prop_assert_eq!(merge(own.clone(), &own, &facts, &policy), Ok(own.clone()));
        let Ok(merged) = merge(foreign.clone(), &own, &facts, &policy) else {
            prop_assert!(check::plan(&foreign, &facts, &policy).is_err());
            return Ok(());
        };
        prop_assert_eq!(check::plan(&merged, &facts, &policy), Ok(()));
        prop_assert_eq!(&merged.verdicts[0], &own.verdicts[0]);
        let rest = |plan: &Plan| plan.verdicts.iter().filter(|v| v.decision != Decision::Index).skip(1).cloned().collect::<Vec<_>>();
        prop_assert_eq!(rest(&merged), rest(&foreign));
    }

    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let answer: serde_json::Value = serde_json::from_slice(&wire::call(&bytes)).unwrap();
        prop_assert!(answer["error"]["message"].is_string());
    }

    #[test]
    fn a_damaged_request_gets_an_answer(
        facts in wild(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let request = serde_json::json!({ "op": "draw", "facts": facts, "now_ms": NOW_MS });
        let mut bytes = request.to_string().into_bytes();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let answer: serde_json::Value = serde_json::from_slice(&wire::call(&bytes)).unwrap();
        prop_assert!(answer["ok"].is_object() || answer["error"]["message"].is_string());
    }

    #[test]
    fn what_a_knob_prints_it_reads_back(raw in prop::collection::vec(any::<u64>(), KNOBS.len())) {
        let mut policy = Policy::default();
        for (knob, raw) in KNOBS.iter().zip(raw) {
            let value = knob.min + raw % (knob.max - knob.min + 1);
            policy.set(knob.key, &value.to_string()).unwrap();
            prop_assert_eq!(knob.value(&policy), value);
        }
        let texts: Vec<_> = KNOBS.iter().map(|knob| (knob.key, knob.text(&policy))).collect();
        let read = Policy::from_pairs(texts.iter().map(|(key, text)| (*key, text.as_str())));
        prop_assert_eq!(read.unwrap(), policy);
    }

    #[test]
    fn any_text_is_set_within_range_or_refused(knob in 0..KNOBS.len(), text in "[0-9]{0,21}[a-zA-Z ]{0,4}|.{0,9}") {
        let mut policy = Policy::default();
        match policy.set(KNOBS[knob].key, &text) {
            Ok(()) => prop_assert_eq!(policy.check(), Ok(())),
            Err(refused) => {
                prop_assert_eq!(&refused.key, KNOBS[knob].key);
                prop_assert_eq!(policy, Policy::default());
            }
        }
    }
}

/// Any measurements, of kinds that there are.
fn seen() -> impl Strategy<Value = Seen> {
    let kinds = ["memwal_compaction", "compact", "cleanup", "remap", "reindex_fts", lint::WALK, lint::EVALUATION, "\n"];
    let job = (0..kinds.len(), number()).prop_map(move |(kind, millis)| JobSpent { kind: kinds[kind].into(), millis });
    let pinned = ("[a-c\n]{0,3}", prop::collection::vec(number(), 0..3), prop::option::of(number()));
    let pinned = pinned.prop_map(|(by, versions, bytes)| Pinned { by, versions, bytes });
    let lists = (prop::collection::vec(job, 0..9), prop::collection::vec(pinned, 0..3));
    (prop::option::of(number()), lists, prop::option::of(number())).prop_map(
        |(longest_read_ms, (jobs, pinned), removable_bytes)| Seen { longest_read_ms, jobs, pinned, removable_bytes },
    )
}

/// Facts twice: as generated, and with every list in another order.
fn shuffled() -> impl Strategy<Value = (TableFacts, TableFacts)> {
    facts().prop_flat_map(|facts| {
        let lists: Vec<_> = facts.shards.iter().map(|s| Just(s.sstables.clone()).prop_shuffle()).collect();
        let files = facts.shards.iter().map(|s| Just(s.garbage.clone().unwrap_or_default()).prop_shuffle());
        let files: Vec<_> = files.collect();
        let indexes = Just(facts.indexes.clone()).prop_shuffle();
        let jobs = (Just(facts.running.clone()).prop_shuffle(), Just(facts.failed.clone()).prop_shuffle());
        let order = Just((0..facts.shards.len()).collect::<Vec<_>>()).prop_shuffle();
        (Just(facts), lists, files, indexes, jobs, order).prop_map(|(facts, lists, files, indexes, jobs, order)| {
            let mut other = facts.clone();
            for ((shard, sstables), files) in other.shards.iter_mut().zip(lists).zip(files) {
                shard.sstables = sstables;
                shard.garbage = shard.garbage.as_ref().map(|_| files);
            }
            other.indexes = indexes;
            (other.running, other.failed) = jobs;
            if let Some(remap) = &mut other.remap {
                remap.indexes.reverse();
            }
            other.shards = order.into_iter().map(|at| other.shards[at].clone()).collect();
            (facts, other)
        })
    })
}

/// The verdicts that are due or held: what time and new data may only add to.
fn wanted(plan: &Plan) -> BTreeSet<String> {
    let due = |o: &Outcome| matches!(o, Outcome::Due { .. } | Outcome::Held { .. });
    let due = plan.verdicts.iter().filter(|v| due(&v.outcome));
    due.map(|v| format!("{:?} {:?}", v.decision, v.shard)).collect()
}
