//! The one door of every Wasm host: what it accepts, what it refuses and how.
#![allow(clippy::unwrap_used)]

use planner::policy::{KNOBS, Policy};
use planner::wire;
use serde_json::{Value, json};

fn call(request: &Value) -> Value {
    raw(request.to_string().as_bytes())
}

fn raw(request: &[u8]) -> Value {
    serde_json::from_slice(&wire::call(request)).unwrap()
}

#[track_caller]
fn refused(request: &Value, kind: &str, says: &str) {
    let answer = call(request);
    let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("accepted: {answer}"));
    assert_eq!(answer["error"]["kind"], kind, "{message}");
    assert!(message.contains(says), "{message}");
}

fn facts() -> Value {
    let sstables: Vec<Value> =
        (1..=4).map(|g| json!({ "generation": g, "path": format!("g{g}"), "bytes": 3221225472u64 })).collect();
    json!({ "table": "t", "version": 7, "primary_key": ["id"], "shards": [{ "shard": "3f", "sstables": sstables }] })
}

#[test]
fn describe_names_every_operation_and_knob() {
    let described = &call(&json!({ "op": "describe" }))["ok"];
    for op in described["ops"].as_array().unwrap() {
        let unknown = call(&json!({ "op": op, "no_such_key": 1 }));
        let message = unknown["error"]["message"].as_str().unwrap();
        assert!(message.contains("no_such_key") || message.contains("missing field"), "{op}: {message}");
        assert!(!message.contains("unknown variant"), "{op}: {message}");
    }
    let keys: Vec<_> = described["knobs"].as_array().unwrap().iter().map(|knob| knob["key"].clone()).collect();
    assert_eq!(keys, KNOBS.iter().map(|knob| json!(knob.key)).collect::<Vec<_>>());
    assert_eq!(described["knobs"][0]["default"], 5);
    assert_eq!(described["triggers"], json!(["tick", "relief", "forced"]));
}

#[test]
fn a_plan_needs_facts_and_a_time_the_rest_has_defaults() {
    let plan = &call(&json!({ "op": "plan_table", "facts": facts(), "now_ms": 1 }))["ok"];
    assert_eq!(plan["verdicts"][5]["outcome"], "due");
    // Four times 3 GiB is over 1 GiB, in 32 bits too; and one of them is all that a pass may take.
    let job = &plan["verdicts"][5]["jobs"][0];
    assert_eq!(
        job,
        &json!({
            "job": "fold", "shard": "3f", "sstables": [{ "generation": 1, "path": "g1" }], "bytes": 3221225472u64,
        })
    );
    let partial = json!({ "op": "plan_table", "facts": facts(), "now_ms": 1, "policy": { "trigger_count": 5, "trigger_bytes": 12884901888u64 } });
    assert_eq!(call(&partial)["ok"]["verdicts"][5]["reasons"][0]["measure"], "ss_table_bytes");
    refused(&json!({ "op": "plan_table", "facts": facts() }), "invalid", "missing field `now_ms`");
    refused(&json!({ "op": "plan_table", "now_ms": 1 }), "invalid", "missing field `facts`");
}

#[test]
fn an_unknown_key_is_refused_by_its_name_wherever_it_stands() {
    for path in ["", "/facts", "/facts/shards/0", "/facts/shards/0/sstables/0", "/policy"] {
        let mut request = json!({ "op": "plan_table", "facts": facts(), "now_ms": 1, "policy": {} });
        request.pointer_mut(path).unwrap()["no_such_key"] = json!(1);
        refused(&request, "invalid", "no_such_key");
    }
    let plan = call(&json!({ "op": "plan_table", "facts": facts(), "now_ms": 1 }))["ok"].clone();
    for path in ["/plan", "/plan/verdicts/0", "/plan/verdicts/5/jobs/0", "/plan/verdicts/5/reasons/0"] {
        let mut request = json!({ "op": "draw", "plan": plan });
        request.pointer_mut(path).unwrap()["no_such_key"] = json!(1);
        refused(&request, "invalid", "no_such_key");
    }
    refused(&json!({ "op": "no_such_op" }), "invalid", "no_such_op");
    refused(&json!({}), "invalid", "op");
    refused(&json!([]), "invalid", "");
}

#[test]
fn numbers_that_are_no_sizes_are_refused() {
    for size in ["-1", "1.5", "1e400", "NaN", "\"12\"", "18446744073709551616", "null0", "[]", "true"] {
        let request = json!({ "op": "plan_table", "facts": facts(), "now_ms": 1 }).to_string();
        let request = request.replacen("3221225472", size, 1);
        let answer = raw(request.as_bytes());
        assert!(answer["error"]["message"].is_string(), "{size}: {answer}");
    }
    let largest = json!({ "op": "plan_table", "facts": facts(), "now_ms": u64::MAX }).to_string();
    let answer = raw(largest.replace("3221225472", "18446744073709551615").as_bytes());
    assert_eq!(answer["ok"]["verdicts"][5]["outcome"], "due");
}

#[test]
fn bytes_that_are_no_json_are_refused_and_the_next_request_is_answered() {
    let deep = format!("{{\"op\":\"draw\",\"facts\":{}", "[".repeat(1 << 20));
    for bytes in [&b""[..], b"\xff", b"{\"op\":\"describe\"", b"{\"op\":\"\xe2\x82\"}", deep.as_bytes()] {
        assert_eq!(raw(bytes)["error"]["kind"], "malformed");
        assert!(call(&json!({ "op": "describe" }))["ok"].is_object());
    }
    let large = vec![b' '; wire::REQUEST_BYTES_MAX + 1];
    assert_eq!(raw(&large)["error"]["kind"], "too_large");
}

#[test]
fn contradicting_facts_and_impossible_policies_are_refused() {
    let mut twice = facts();
    twice["shards"][0]["sstables"][1]["generation"] = json!(1);
    refused(&json!({ "op": "plan_table", "facts": twice, "now_ms": 1 }), "facts", "generation `1` occurs twice");
    let zero = json!({ "op": "plan_table", "facts": facts(), "now_ms": 1, "policy": { "prefix_max": 0 } });
    refused(&zero, "policy", "`wal_compact_prefix_max`: `0` means nothing here");
    let checked = call(&json!({ "op": "check", "facts": twice }));
    assert_eq!(checked["ok"]["violations"][0]["rule"], "unique");
}

#[test]
fn a_plan_is_checked_against_its_facts() {
    let mut plan = call(&json!({ "op": "plan_table", "facts": facts(), "now_ms": 1 }))["ok"].clone();
    let check =
        |plan: &Value| call(&json!({ "op": "check", "facts": facts(), "plan": plan }))["ok"]["violations"].clone();
    assert_eq!(check(&plan), json!([]));
    plan["verdicts"][5]["jobs"][0]["sstables"][0]["generation"] = json!(2);
    plan["verdicts"][5]["jobs"][0]["sstables"][0]["path"] = json!("g2");
    assert_eq!(check(&plan)[0]["rule"], "prefix");
}

#[test]
fn settings_are_set_by_their_keys_and_refused_by_them() {
    let set = json!({ "op": "policy", "set": { "wal_compact_trigger_count": "64", "collect_grace_secs": "1d" } });
    let answer = &call(&set)["ok"];
    assert_eq!(answer["policy"]["trigger_count"], 64);
    assert_eq!(answer["policy"]["grace_ms"], 86_400_000);
    assert_eq!(answer["lint"][0]["key"], "wal_compact_trigger_count");
    assert!(answer["toml"].as_str().unwrap().contains("\nwal_compact_trigger_count = 64\n"));
    let policy: Policy = serde_json::from_value(answer["policy"].clone()).unwrap();
    assert_eq!(answer["canonical"], serde_json::to_string(&policy).unwrap(), "what records hash");
    refused(&json!({ "op": "policy", "set": { "wal_compact_trigger_count": "-1" } }), "policy", "not a whole number");
}

#[test]
fn drawing_gives_the_picture_of_the_library() {
    let plan = call(&json!({ "op": "plan_table", "facts": facts(), "now_ms": 1 }))["ok"].clone();
    let drawn = &call(&json!({ "op": "draw", "facts": facts(), "plan": plan, "now_ms": 1 }))["ok"];
    let facts = serde_json::from_value(facts()).unwrap();
    assert_eq!(drawn["facts"], planner::draw::facts(&facts, 1));
    assert_eq!(drawn["plan"], planner::draw::plan(&serde_json::from_value(plan).unwrap()));
    assert_eq!(call(&json!({ "op": "draw" }))["ok"], json!({ "facts": null, "plan": null }));
}

#[test]
fn a_workload_is_set_by_its_keys_on_a_preset_and_refused_by_them() {
    let set = json!({ "op": "workload", "preset": "bursty", "set": { "row_bytes": "4KiB", "burst_for_secs": "30m" } });
    let answer = &call(&set)["ok"];
    assert_eq!(answer["workload"]["row_bytes"], 4096);
    assert_eq!(answer["workload"]["burst_for_ms"], 1_800_000);
    assert_eq!(answer["workload"]["shards"], 4);
    assert!(answer["toml"].as_str().unwrap().contains("\nrow_bytes = \"4KiB\"\n"));
    let of = |key: &str, text: &str| json!({ "op": "workload", "set": { key: text } });
    refused(&of("flush_rows", "-1"), "workload", "`flush_rows`: `-1` is not a whole number");
    refused(&of("flush_row", "1"), "workload", "did you mean `flush_rows`?");
    refused(&of("rows_per_sec", "99999999999999999999"), "workload", "too large");
    let both = json!({ "op": "workload", "set": { "update_permille": "900", "delete_permille": "900" } });
    refused(&both, "workload", "`delete_permille`");
    refused(&json!({ "op": "workload", "preset": "no such" }), "workload", "insert-only");
    let described = &call(&json!({ "op": "describe" }))["ok"]["workload"];
    for preset in described["presets"].as_array().unwrap() {
        let answer = call(&json!({ "op": "workload", "preset": preset["name"] }));
        assert_eq!(call(&json!({ "op": "workload", "set": preset["set"] })), answer);
    }
    assert_eq!(described["knobs"][0]["key"], "rows_per_sec");
    assert_eq!(described["workload"], call(&json!({ "op": "workload" }))["ok"]["workload"]);
}

#[test]
fn a_simulation_has_defaults_and_is_refused_by_what_is_wrong_with_it() {
    let hour = |more: Value| {
        let mut request = json!({ "op": "simulate", "duration_ms": 3_600_000 });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let answer = &call(&hour(json!({ "workload": { "flush_rows": 10_000 }, "draw": true })))["ok"];
    assert_eq!(answer["totals"]["rows"], 360_000);
    assert_eq!(answer["jobs"][0]["why"]["measure"], "ss_tables");
    assert!(answer["svg"].as_str().unwrap().starts_with("<svg ") && answer["text"].is_string());
    assert!(call(&hour(json!({})))["ok"]["svg"].is_null());
    // The facts of one go into the next.
    let start_ms = answer["start_ms"].as_u64().unwrap() + 3_600_000;
    assert!(call(&hour(json!({ "facts": answer["facts"], "start_ms": start_ms })))["ok"]["totals"].is_object());
    refused(&hour(json!({ "no_such_key": 1 })), "invalid", "no_such_key");
    refused(&hour(json!({ "workload": { "no_such_key": 1 } })), "invalid", "no_such_key");
    refused(&hour(json!({ "faults": [{ "fault": "burst", "at_ms": 1, "for_ms": 1 }] })), "invalid", "times");
    refused(&hour(json!({ "faults": [{ "fault": "flood", "at_ms": 1 }] })), "invalid", "flood");
    refused(&hour(json!({ "workload": { "row_bytes": 0 } })), "workload", "`row_bytes`");
    refused(&hour(json!({ "policy": { "prefix_max": 0 } })), "policy", "`wal_compact_prefix_max`");
    refused(&hour(json!({ "duration_ms": 1 })), "simulation", "`duration_ms`");
    refused(&hour(json!({ "samples": u64::MAX })), "simulation", "`samples`");
    refused(&hour(json!({ "start_ms": u64::MAX })), "simulation", "`start_ms`");
    let mut twice = facts();
    twice["shards"][0]["sstables"][1]["generation"] = json!(1);
    refused(&hour(json!({ "facts": twice })), "facts", "generation `1` occurs twice");
}

#[test]
fn no_number_of_a_simulation_wraps_or_ends_the_process() {
    let base = json!({ "op": "simulate", "duration_ms": 3_600_000, "workload": { "row_bytes": 12_345 } }).to_string();
    for size in ["-1", "1.5", "1e400", "NaN", "\"12\"", "18446744073709551616", "null", "[]", "18446744073709551615"] {
        for number in ["12345", "3600000"] {
            let answer = raw(base.replacen(number, size, 1).as_bytes());
            assert!(answer["error"]["message"].is_string(), "{size}: {answer}");
        }
    }
    // Facts may hold the largest numbers, and a workload whatever its bounds allow.
    let largest = json!({ "op": "simulate", "facts": facts(), "duration_ms": 3_600_000, "draw": true }).to_string();
    let largest = largest
        .replace("3221225472", "18446744073709551615")
        .replace("\"version\":7", "\"version\":18446744073709551615");
    assert!(raw(largest.as_bytes())["ok"]["totals"].is_object());
    for knob in planner::simulate::WORKLOAD {
        for value in [knob.min, knob.max] {
            let set = json!({ "op": "workload", "set": { knob.key: value.to_string() } });
            let workload = call(&set)["ok"]["workload"].clone();
            let answer = call(&json!({ "op": "simulate", "workload": workload, "duration_ms": 60_000 }));
            assert!(answer["ok"].is_object() || answer["error"]["kind"] == "simulation", "{}: {answer}", knob.key);
        }
    }
}

#[test]
fn the_same_request_gives_the_same_bytes() {
    let request = json!({ "op": "plan_table", "facts": facts(), "now_ms": 1 }).to_string();
    assert_eq!(wire::call(request.as_bytes()), wire::call(request.as_bytes()));
}
