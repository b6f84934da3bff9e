//! What a plugin costs: `plan_table` through it, beside the same planner called directly.
//!
//! `cargo bench -p caretaker-host`; it needs the plugin that `make wasm` builds. All ways are measured
//! in turns, table by table; the least of many rounds and, in brackets, their median.

use std::{
    env, fs,
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use host::{Limits, PluginPlanner, kit};
use planner::{
    check,
    facts::TableFacts,
    plan::{Trigger, plan_table},
    policy::Policy,
    wire::{self, packed},
};

const NOW_MS: u64 = 1_768_478_400_000;
const TICK: Trigger = Trigger::Tick;
/// How long each way is measured on each table.
const SPAN: Duration = Duration::from_secs(2);
const ROUNDS_MIN: usize = 5;

fn main() {
    let bytes = plugin();
    let limits = Limits { deadline: Duration::from_secs(60), memory_bytes: 1 << 30, ..Limits::default() };
    let began = Instant::now();
    let plugin = PluginPlanner::compile("plugin", &bytes, limits).expect("it loads");
    println!("cold load of {} bytes: {:?}", bytes.len(), began.elapsed());
    print("warm instantiate and the smallest call", measured(|| plugin.call(&[1]).expect("an answer").len()), None);
    let tables = [
        ("1 shard x 4 SSTables, 1 index", kit::table(1, 4, 1)),
        ("64 shards x 8 SSTables, 10 indexes", kit::table(64, 8, 10)),
        ("1,000,000 fragments", TableFacts { fragments: Some(kit::fragments(1_000_000)), ..kit::table(0, 0, 3) }),
    ];
    for (name, facts) in &tables {
        table(name, facts, &plugin);
    }
}

fn table(name: &str, facts: &TableFacts, plugin: &PluginPlanner) {
    let policy = Policy::default();
    let request = packed::request(facts, &policy, NOW_MS, TICK);
    let json =
        serde_json::json!({ "op": "plan_table", "facts": facts, "policy": policy, "now_ms": NOW_MS }).to_string();
    let answer = plugin.call(&request).expect("an answer");
    let plan = packed::read_answer(&answer).expect("a plan");
    println!("\n{name}");
    println!("  packed: {} bytes in, {} out; JSON: {} in", request.len(), answer.len(), json.len());

    let native = measured(|| plan_table(black_box(facts), &policy, NOW_MS, TICK));
    print("native plan_table", native, None);
    let against = |what, spent| print(what, spent, Some(native.0));
    against(
        "native, facts checked too (as a plugin does)",
        measured(|| {
            check::facts(black_box(facts)).expect("they can be true");
            plan_table(facts, &policy, NOW_MS, TICK)
        }),
    );
    against("native, through the packed door", measured(|| wire::call(black_box(&request))));
    against("  packing the request", measured(|| packed::request(black_box(facts), &policy, NOW_MS, TICK)));
    against("  the call on a fresh instance", measured(|| plugin.call(black_box(&request))));
    against("  unpacking the answer", measured(|| packed::read_answer(black_box(&answer))));
    against("  checking the plan", measured(|| check::plan(black_box(&plan), facts, &policy)));
    against(
        "plugin, packed, all of these",
        measured(|| plugin.plan_table(black_box(facts), &policy, NOW_MS, TICK).expect("a plan")),
    );
    if json.len() < wire::REQUEST_BYTES_MAX {
        against(
            "plugin, JSON, all but the check",
            measured(|| {
                let request =
                    serde_json::json!({ "op": "plan_table", "facts": facts, "policy": policy, "now_ms": NOW_MS });
                let answer = plugin.call(request.to_string().as_bytes()).expect("an answer");
                serde_json::from_slice::<serde_json::Value>(&answer).expect("JSON")
            }),
        );
    }
}

/// The least and the median time of one call.
fn measured<T>(call: impl Fn() -> T) -> (Duration, Duration) {
    let (mut rounds, all) = (Vec::new(), Instant::now());
    while rounds.len() < ROUNDS_MIN || all.elapsed() < SPAN {
        let began = Instant::now();
        let answer = call();
        rounds.push(began.elapsed());
        drop(answer);
    }
    rounds.sort_unstable();
    (rounds[0], rounds[rounds.len() / 2])
}

fn print(what: &str, (least, median): (Duration, Duration), native: Option<Duration>) {
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let ratio = native.map(|native| format!("{:6.2} x native", micros(least) / micros(native))).unwrap_or_default();
    let calls = 1e6 / micros(least);
    println!("  {what:45} {:>11.1} us ({:>11.1}) {calls:>9.0}/s {ratio}", micros(least), micros(median));
}

fn plugin() -> Vec<u8> {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(target).join("wasm/planner.wasm");
    fs::read(&file).unwrap_or_else(|e| panic!("`{}`: {e}; run `make wasm`", file.display()))
}
