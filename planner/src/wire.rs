//! Bytes in, bytes out: the one door of every Wasm host. JSON both ways.
//!
//! | request | answer below `ok` |
//! |---|---|
//! | `{"op":"describe"}` | version, operations, decisions, triggers and every knob with its range and default |
//! | `{"op":"policy","set":{key:text}}` | `policy`, `lint`, `toml` (a settings file) |
//! | `{"op":"plan_table","facts","policy"?,"now_ms","trigger"?}` | a plan |
//! | `{"op":"check","facts","policy"?,"plan"?}` | `violations`, empty when all is well |
//! | `{"op":"draw","facts"?,"plan"?,"now_ms"?}` | `facts` and `plan` as text |
//!
//! A policy may be partial: what it leaves out has its default. Anything else than a request of
//! these is answered with `{"error":{"kind","message"}}`; an unknown key is refused by its name.
//! The answer depends on the request alone.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::decision::{SHARD, TABLE};
use crate::facts::TableFacts;
use crate::plan::{Plan, Trigger, plan_table};
use crate::policy::{KNOBS, Knob, Policy};
use crate::{check, draw};

/// Largest request, bytes.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    Describe {},
    Policy {
        #[serde(default)]
        set: BTreeMap<String, String>,
    },
    PlanTable {
        facts: TableFacts,
        #[serde(default)]
        policy: Policy,
        now_ms: u64,
        #[serde(default)]
        trigger: Trigger,
    },
    Check {
        facts: TableFacts,
        #[serde(default)]
        policy: Policy,
        #[serde(default)]
        plan: Option<Plan>,
    },
    Draw {
        #[serde(default)]
        facts: Option<TableFacts>,
        #[serde(default)]
        plan: Option<Plan>,
        #[serde(default)]
        now_ms: u64,
    },
}

/// What is wrong with a request.
#[derive(Serialize)]
struct Fault {
    /// `too_large`, `malformed` (not JSON), `invalid` (not a request), `policy` (a value out of
    /// range), `facts` (they contradict themselves).
    kind: &'static str,
    message: String,
}

/// Answers one request. Total: any bytes get an answer, and it is always JSON.
pub fn call(request: &[u8]) -> Vec<u8> {
    let answer = match parse(request).and_then(answer) {
        Ok(ok) => json!({ "ok": ok }),
        Err(fault) => json!({ "error": fault }),
    };
    answer.to_string().into_bytes()
}

fn parse(request: &[u8]) -> Result<Request, Fault> {
    if request.len() > REQUEST_BYTES_MAX {
        let message = format!("the request has {} bytes; {REQUEST_BYTES_MAX} at most", request.len());
        return Err(Fault { kind: "too_large", message });
    }
    serde_json::from_slice(request).map_err(|e| {
        let kind = if e.is_data() { "invalid" } else { "malformed" };
        Fault { kind, message: e.to_string() }
    })
}

fn answer(request: Request) -> Result<Value, Fault> {
    match request {
        Request::Describe {} => Ok(describe()),
        Request::Policy { set } => {
            let pairs = set.iter().map(|(key, text)| (key.as_str(), text.as_str()));
            let policy = Policy::from_pairs(pairs).map_err(refused)?;
            Ok(json!({ "policy": policy, "lint": policy.lint(), "toml": policy.to_toml() }))
        }
        Request::PlanTable { facts, policy, now_ms, trigger } => {
            policy.check().map_err(refused)?;
            check::facts(&facts).map_err(|violations| Fault {
                kind: "facts",
                message: violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            })?;
            to_value(&plan_table(&facts, &policy, now_ms, trigger))
        }
        Request::Check { facts, policy, plan } => {
            policy.check().map_err(refused)?;
            let mut violations = check::facts(&facts).err().unwrap_or_default();
            if let Some(plan) = plan {
                violations.extend(check::plan(&plan, &facts, &policy).err().unwrap_or_default());
            }
            Ok(json!({ "violations": violations }))
        }
        Request::Draw { facts, plan, now_ms } => {
            let facts = facts.map(|facts| draw::facts(&facts, now_ms));
            let plan = plan.map(|plan| draw::plan(&plan));
            Ok(json!({ "facts": facts, "plan": plan }))
        }
    }
}

fn describe() -> Value {
    let defaults = Policy::default();
    let knob = |knob: &Knob| {
        json!({
            "key": knob.key, "env": knob.env(), "flag": knob.flag(), "unit": knob.unit,
            "min": knob.min, "max": knob.max, "zero": knob.zero,
            "default": knob.value(&defaults), "text": knob.text(&defaults), "help": knob.help,
        })
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ops": ["describe", "policy", "plan_table", "check", "draw"],
        "decisions": TABLE.map(|(decision, _)| decision).into_iter().chain(SHARD.map(|(decision, _)| decision)).collect::<Vec<_>>(),
        "triggers": [Trigger::Tick, Trigger::Relief, Trigger::Forced],
        "knobs": KNOBS.iter().map(knob).collect::<Vec<_>>(),
        "policy": defaults,
    })
}

fn refused(refused: crate::policy::Refused) -> Fault {
    Fault { kind: "policy", message: refused.to_string() }
}

fn to_value(value: &impl Serialize) -> Result<Value, Fault> {
    serde_json::to_value(value).map_err(|e| Fault { kind: "invalid", message: e.to_string() })
}
