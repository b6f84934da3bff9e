//! Plugins decide about real tables: well, badly, in turns, beside each other, and once more later.

use std::sync::Arc;

use executor::catalog::TableRef;
use executor::decide::{Again, Candidate, Choice, Count, Decider, Fallback, Planner, Plugin, Recorder};
use executor::read::Depth;
use executor::registry::{Decision, Decisions, Place, Registry};
use executor::report::TableReport;
use executor::run::Progress;
use executor::table::session;
use executor::tend::Tender;
use planner::plan::{Decision as Of, Trigger};
use planner::policy::Policy;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

#[path = "../../../host/tests/guests/mod.rs"]
mod guests;

use self::guests::{ECHO, describing, escaped, guest, guest_with};
use super::{Lsm, Options, column, eager, jobs};
use arrow_schema::DataType;

async fn lsm() -> Lsm {
    let fields = vec![column("id", DataType::Int64), column("n", DataType::Int64)];
    let mut t = Lsm::create(fields, &["id"], json!([{"id": 1, "n": 1}]), Options::default()).await;
    t.sstable(json!([{"id": 1, "n": 2}, {"id": 2, "n": 2}])).await;
    t.close_writer().await;
    t
}

async fn plugin(text: &str) -> Arc<Plugin> {
    let bytes = wat::parse_str(text).unwrap();
    Arc::new(Plugin::of("guest", bytes, &Map::new()).await.unwrap())
}

/// One that says, of whatever table, that nothing is to be done. Its answer is cut to the table and the time by
/// hand, since guests can't read.
async fn idle(plan: &planner::plan::Plan) -> Arc<Plugin> {
    let answer = json!({ "ok": plan }).to_string();
    let (length, data) = (answer.len(), escaped(answer.as_bytes()));
    let call = format!(
        "(i32.store (i32.const 16) (i32.const 40000)) (i32.store (i32.const 20) (i32.const {length})) (i32.const 16)"
    );
    plugin(&guest_with(&format!(r#"(data (i32.const 40000) "{data}")"#), &call)).await
}

fn decider(choice: Choice, registry: &Registry) -> Arc<Decider> {
    let recorder = Recorder::start(registry.clone(), choice.record_bytes, Map::new());
    Arc::new(Decider::new(choice, Some(recorder)))
}

fn tender(decider: &Arc<Decider>, registry: &Registry) -> Tender {
    let mut tender = Tender::new(eager(), session(), CancellationToken::new());
    (tender.decider, tender.registry) = (decider.clone(), registry.clone());
    tender
}

fn named(t: &Lsm) -> TableRef {
    TableRef { name: "t".into(), uri: t.uri.clone() }
}

async fn tend(t: &Lsm, decider: &Arc<Decider>, registry: &Registry) -> TableReport {
    let report =
        tender(decider, registry).tend(&named(t), Trigger::Tick, Depth::Garbage, &Arc::new(Progress::default())).await;
    assert!(!report.failed(), "{report:?}");
    decider.flush().await;
    report
}

async fn recorded(registry: &Registry) -> Vec<Decision> {
    registry.decisions(&Decisions::default()).await.unwrap()
}

#[tokio::test]
async fn whatever_a_plugin_does_maintenance_goes_on_and_says_so() {
    let grow = "(drop (memory.grow (i32.const 16384))) (unreachable)";
    let endless = "(loop $again (br $again)) (unreachable)";
    let far =
        "(i32.store (i32.const 16) (i32.const 1000)) (i32.store (i32.const 20) (i32.const 104857600)) (i32.const 16)";
    let hostile = [
        (endless, Count::Deadline),
        ("(unreachable)", Count::Trap),
        ("(call $call (local.get $at) (local.get $length))", Count::Trap),
        (grow, Count::Memory),
        (far, Count::BadOutput),
        (ECHO, Count::BadOutput),
    ];
    for (call, kind) in hostile {
        let (t, registry) = (lsm().await, Registry::default());
        let decider = decider(Choice::default(), &registry);
        decider.switch(Planner::Plugin(plugin(&guest(call)).await));
        let report = tend(&t, &decider, &registry).await;
        assert!(jobs(&report).contains(&"memwal_compaction"), "{call}: {report:?}");
        t.assert_rows(json!([{"id": 1, "n": 2}, {"id": 2, "n": 2}])).await;
        let counts = decider.counts();
        assert!(counts.get(kind) > 0, "{call} counts as {kind:?}");
        assert_eq!(counts.get(Count::FellBackToBuiltIn), counts.get(kind));
        assert_eq!(counts.get(Count::PlannedByPlugin), 0);
        let recorded = recorded(&registry).await;
        assert!(!recorded.is_empty());
        assert!(recorded.iter().all(|one| one.planner.starts_with("built-in") && one.fell_back.is_some()));
    }
}

/// A plan of the built-in planner in which nothing is due.
async fn nothing_due(t: &Lsm) -> planner::plan::Plan {
    let quiet = Policy { tick_ms: 0, ..Policy::default() };
    let tender = Tender::new(quiet, session(), CancellationToken::new());
    let plan = tender.evaluate(&named(t), Depth::Fold, Trigger::Tick).await.unwrap().plan;
    assert_eq!(plan.jobs().count(), 0);
    plan
}

#[tokio::test]
async fn a_plan_for_another_time_is_refused_and_the_plugin_before_takes_over_where_it_planned_well() {
    let t = lsm().await;
    let registry = Registry::default();
    let stale = idle(&nothing_due(&t).await).await;
    for (fallback, count) in
        [(Fallback::LastGood, Count::FellBackToLastGood), (Fallback::BuiltIn, Count::FellBackToBuiltIn)]
    {
        let decider = decider(Choice { fallback, ..Choice::default() }, &registry);
        let good = built_in_as_plugin().await;
        decider.switch(Planner::Plugin(good.clone()));
        let tender = tender(&decider, &registry);
        let asked = async || tender.evaluate(&named(&t), Depth::Fold, Trigger::Tick).await.unwrap();
        assert_eq!(asked().await.decided.planner, good.sha256);
        decider.switch(Planner::Plugin(stale.clone()));
        let evaluation = asked().await;
        assert!(evaluation.decided.fell_back.as_ref().is_some_and(|why| why.contains("the plan is for")));
        assert_eq!(decider.counts().get(count), 1);
        assert!(evaluation.plan.jobs().count() > 0, "the fold is due whoever takes over");
    }
}

/// The built-in planner as `make wasm` builds it; tests of plugins need it.
async fn built_in_as_plugin() -> Arc<Plugin> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(target).join("wasm/planner.wasm");
    let bytes = std::fs::read(&file).unwrap_or_else(|e| panic!("`{}`: {e}; run `make wasm`", file.display()));
    Arc::new(Plugin::of("planner", bytes, &Map::new()).await.unwrap())
}

#[tokio::test]
async fn r2_4_what_somebody_orders_is_done_whatever_a_plugin_thinks() {
    let (t, registry) = (lsm().await, Registry::default());
    let decider = decider(Choice::default(), &registry);
    decider.switch(Planner::Plugin(plugin(&guest("(unreachable)")).await));
    let forced = tender(&decider, &registry).evaluate(&named(&t), Depth::Fold, Trigger::Forced).await.unwrap();
    assert!(forced.decided.fell_back.is_none() && forced.decided.planner.starts_with("built-in"));
    assert!(forced.plan.jobs().count() > 0);
}

#[tokio::test]
async fn a_candidate_is_asked_beside_and_passes_the_gate_only_without_a_refusal() {
    let (t, registry) = (lsm().await, Registry::default());
    let decider = decider(Choice { gate: 2, ..Choice::default() }, &registry);
    let tender = tender(&decider, &registry);
    let asked = async || {
        let evaluation = tender.evaluate(&named(&t), Depth::Fold, Trigger::Tick).await.unwrap();
        decider.note(&t.uri, &evaluation.plan, &evaluation.decided);
        decider.flush().await;
    };
    assert!(decider.promote(false).unwrap_err().to_string().contains("no candidate"));
    decider.beside(Some(plugin(&guest("(unreachable)")).await));
    asked().await;
    asked().await;
    assert!(decider.promote(false).unwrap_err().to_string().contains("no plan for 2 of 2"));
    let good = built_in_as_plugin().await;
    decider.beside(Some(good.clone()));
    asked().await;
    assert!(decider.promote(false).unwrap_err().to_string().contains("1 evaluations, and 2 are asked for"));
    asked().await;
    decider.promote(false).unwrap();
    assert_eq!(decider.active().id(), good.sha256);
    assert!(decider.shadow().is_none());
    assert_eq!(decider.roll_back().unwrap().id(), Planner::BuiltIn.id());
    assert!(decider.roll_back().is_err(), "there is nothing before the first");
    let said: Vec<_> = recorded(&registry).await.into_iter().filter_map(|one| one.candidate_said).collect();
    assert_eq!(said, ["failed", "failed", "same", "same"]);
    assert_eq!((decider.counts().get(Count::ShadowSame), decider.counts().get(Count::ShadowFailed)), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_change_under_load_and_each_decision_is_wholly_of_one_and_can_be_derived_again() {
    let t = lsm().await;
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::open(&Place::Folder(dir.path().into())).await.unwrap();
    let decider = decider(Choice::default(), &registry);
    let (good, bad) = (built_in_as_plugin().await, plugin(&guest("(unreachable)")).await);
    decider.keep(&good).await;
    let tender = Arc::new(tender(&decider, &registry));
    let turns = [Planner::Plugin(good.clone()), Planner::Plugin(bad), Planner::BuiltIn];
    let switching = tokio::spawn({
        let decider = decider.clone();
        async move {
            for turn in turns.iter().cycle() {
                decider.switch(turn.clone());
                tokio::task::yield_now().await;
            }
        }
    });
    let evaluations = (0..8).map(|_| {
        let (tender, table) = (tender.clone(), named(&t));
        tokio::spawn(async move {
            for _ in 0..8 {
                let evaluation = tender.evaluate(&table, Depth::Fold, Trigger::Tick).await.unwrap();
                assert!(evaluation.plan.jobs().count() > 0);
                tender.decider.note(&table.uri, &evaluation.plan, &evaluation.decided);
            }
        })
    });
    for evaluation in futures::future::join_all(evaluations).await {
        evaluation.unwrap();
    }
    switching.abort();
    decider.flush().await;
    let all = recorded(&registry).await;
    assert_eq!(all.len() as u64 + decider.lost_records(), 64, "no evaluation is lost");
    let mut again = Again::new(registry.clone());
    for one in all {
        assert!(one.planner == good.sha256 || one.planner.starts_with("built-in"), "{one:?}");
        assert!(again.replay(one).await.unwrap().same);
    }
}

#[tokio::test]
async fn another_policy_is_asked_about_the_past_and_what_differs_is_told() {
    let (t, registry) = (lsm().await, Registry::default());
    let decider = decider(Choice::default(), &registry);
    let report = tend(&t, &decider, &registry).await;
    assert!(jobs(&report).contains(&"memwal_compaction"));
    let all = recorded(&registry).await;
    let lazy = Candidate::Policy(Box::new(Policy { trigger_count: 100, ..eager() }));
    let same = Candidate::Policy(Box::new(eager()));
    let mut folds = 0;
    for one in &all {
        let unchanged = same.test(one.clone()).await.unwrap();
        assert!(unchanged.differences.is_empty() && unchanged.was == unchanged.now);
        let tested = lazy.test(one.clone()).await.unwrap();
        for difference in tested.differences.iter().filter(|difference| difference.decision == Of::Fold) {
            assert_eq!((difference.was.as_str(), difference.now.as_str()), ("due", "not_due"));
            assert!(tested.was.bytes > tested.now.bytes && difference.more.is_empty());
            folds += 1;
        }
    }
    assert_eq!(folds, 1, "the one that was folded");
    let refusing = Candidate::Plugin(plugin(&guest("(unreachable)")).await);
    assert!(refusing.test(all[0].clone()).await.unwrap().refused.is_some_and(|why| why.contains("crashed")));
}

#[tokio::test]
async fn one_of_another_abi_is_no_plugin() {
    let description = guests::DESCRIPTION.replace("1.0.0", "9.0.0");
    let bytes = wat::parse_str(describing(&description, "", ECHO)).unwrap();
    let why = Plugin::of("guest", bytes, &Map::new()).await.unwrap_err().to_string();
    assert!(why.contains("caretaker:planner@9.0.0") && why.contains("caretaker:planner@1.0.0"), "{why}");
}
