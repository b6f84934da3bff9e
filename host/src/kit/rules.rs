//! The rules that need more than one plan.

use planner::{
    check,
    facts::TableFacts,
    plan::{Plan, Trigger},
    simulate,
};
use serde_json::{Value, json};

use super::cases::Case;
use crate::plugin::PluginPlanner;

/// Rounds after which nothing may be due any more.
const ROUNDS_MAX: usize = 100;

const HOUR_MS: u64 = 3_600_000;

/// Bytes of a request that is far too long to be one, and short enough to be read.
const LONG: usize = 10 << 20;

fn request(case: &Case) -> Vec<u8> {
    let request = json!({
        "op": "plan_table", "facts": case.facts, "policy": case.policy, "now_ms": case.now_ms, "trigger": case.trigger,
    });
    request.to_string().into_bytes()
}

pub(super) fn deterministic(plugin: &PluginPlanner, cases: &[Case]) -> Vec<String> {
    let differs = |case: &&Case| {
        let request = request(case);
        plugin.call(&request) != plugin.call(&request)
    };
    cases.iter().filter(differs).map(|case| format!("{}: two answers differ", case.name)).collect()
}

pub(super) fn order_free(plugin: &PluginPlanner, cases: &[Case]) -> Vec<String> {
    let plan = |facts: &TableFacts, case: &Case| plugin.plan_table(facts, &case.policy, case.now_ms, case.trigger);
    let differs = |case: &&Case| {
        // One that fails on both is told by another check.
        matches!((plan(&case.facts, case), plan(&turned(&case.facts), case)), (Ok(one), other) if Ok(&one) != other.as_ref())
    };
    cases.iter().filter(differs).map(|case| format!("{}: with its lists turned, the plan differs", case.name)).collect()
}

/// The same facts with every list that has no order turned round.
fn turned(facts: &TableFacts) -> TableFacts {
    let mut turned = facts.clone();
    turned.indexes.reverse();
    turned.shards.reverse();
    turned.running.reverse();
    turned.failed.reverse();
    for shard in &mut turned.shards {
        shard.sstables.reverse();
        shard.garbage.iter_mut().for_each(|files| files.reverse());
    }
    turned
}

pub(super) fn total(plugin: &PluginPlanner) -> (usize, Vec<String>) {
    let facts = json!({ "table": "t", "version": 1 });
    let plan = |now_ms: Value| json!({ "op": "plan_table", "facts": facts, "now_ms": now_ms }).to_string().into_bytes();
    let sized = |size: &str| {
        let sstable = r#"{"generation":1,"path":"g1","bytes":SIZE}"#.replace("SIZE", size);
        let shards = format!(r#"[{{"shard":"3f","sstables":[{sstable}]}}]"#);
        format!(r#"{{"op":"plan_table","facts":{{"table":"t","version":1,"primary_key":["id"],"shards":{shards}}},"now_ms":1}}"#)
            .into_bytes()
    };
    // Each with whether it can be answered with a plan.
    let requests = [
        ("nothing", Vec::new(), false),
        ("no JSON", b"plan, please".to_vec(), false),
        ("half of a request", plan(json!(1))[..20].to_vec(), false),
        ("half of a character", b"{\"op\":\"\xe2\x82\"}".to_vec(), false),
        ("a list", b"[]".to_vec(), false),
        ("an unknown operation", br#"{"op":"no_such_operation"}"#.to_vec(), false),
        ("no facts", br#"{"op":"plan_table","now_ms":1}"#.to_vec(), false),
        ("a time before all time", plan(json!(-1)), false),
        ("a time that is text", plan(json!("12")), false),
        ("the last of all times", plan(json!(u64::MAX)), true),
        ("a size that is no number", sized("NaN"), false),
        ("a negative size", sized("-1"), false),
        ("a size that is text", sized("\"12\""), false),
        ("a size beyond all numbers", sized("1e400"), false),
        ("the largest size", sized("18446744073709551615"), true),
        ("a list of 10 MiB", [b"[".as_slice(), &b"0,".repeat(LONG / 2), b"0]"].concat(), false),
        ("brackets without an end", b"[".repeat(1 << 16), false),
    ];
    let faults = requests.iter().filter_map(|(name, request, plan)| fault(plugin, name, request, *plan)).collect();
    (requests.len(), faults)
}

fn fault(plugin: &PluginPlanner, name: &str, request: &[u8], may_plan: bool) -> Option<String> {
    let answer = match plugin.call(request) {
        Ok(answer) => answer,
        Err(e) => return Some(format!("{name}: {e}")),
    };
    let Ok(answer) = serde_json::from_slice::<Value>(&answer) else { return Some(format!("{name}: not JSON")) };
    if answer["error"]["message"].is_string() || may_plan && answer["ok"].is_object() {
        return None;
    }
    Some(format!("{name}: not an error with a message"))
}

pub(super) fn quiet(plugin: &PluginPlanner, cases: &[Case]) -> Vec<String> {
    cases.iter().filter_map(|case| settle(plugin, case).err().map(|why| format!("{}: {why}", case.name))).collect()
}

/// Lets everything run that is due: now, in an hour and in ten days.
fn settle(plugin: &PluginPlanner, case: &Case) -> Result<(), String> {
    let mut facts = case.facts.clone();
    for wait_ms in [0, HOUR_MS, 240 * HOUR_MS] {
        let now_ms = case.now_ms.saturating_add(wait_ms);
        let mut trigger = case.trigger;
        for round in 0.. {
            let plan = plugin.plan_table(&facts, &case.policy, now_ms, trigger).map_err(|e| e.to_string())?;
            if plan.jobs().next().is_none() {
                break;
            }
            if round == ROUNDS_MAX {
                return Err(format!("after {round} rounds there is still something due"));
            }
            run(&mut facts, &plan, now_ms)?;
            // Being asked again is no new wish.
            trigger = Trigger::Tick;
        }
    }
    Ok(())
}

/// Runs a plan's jobs one after the other. Those that an earlier one has overtaken are left out, as the
/// executor does.
fn run(facts: &mut TableFacts, plan: &Plan, now_ms: u64) -> Result<(), String> {
    for job in plan.jobs() {
        if let Err(violations) = check::job(job, facts) {
            if violations.iter().all(|violation| violation.rule.is_stale()) {
                continue;
            }
            return Err(format!("`{}` may not run: {}", job.kind(), violations[0]));
        }
        let before = facts.clone();
        simulate::apply(facts, job, now_ms);
        check::after(&before, facts).map_err(|violations| format!("`{}` broke: {}", job.kind(), violations[0]))?;
    }
    Ok(())
}
