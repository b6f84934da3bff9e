//! Bytes in, bytes out: the one door of every Wasm host. JSON both ways.
//!
//! | request | answer below `ok` |
//! |---|---|
//! | `{"op":"describe"}` | name, version, ABI, encodings, operations, settings of its own; decisions, triggers, every knob |
//! | `{"op":"policy","set":{key:text}}` | `policy`, `lint`, `toml` (a settings file), `canonical` (the policy as records hash it) |
//! | `{"op":"plan_table","facts","policy"?,"now_ms","trigger"?,"config"?}` | a plan |
//! | `{"op":"check","facts","policy"?,"plan"?}` | `violations`, empty when all is well |
//! | `{"op":"draw","facts"?,"plan"?,"now_ms"?}` | `facts` and `plan` as text |
//! | `{"op":"vectors","cases":[…]}` | which cases of the picks agree, and where not what was expected and what came ([`vectors`]) |
//! | `{"op":"workload","preset"?,"set"?:{key:text}}` | `workload`, `toml` |
//! | `{"op":"simulate","workload"?,"policy"?,"facts"?,"start_ms"?,"duration_ms"?,"seed"?,"faults"?,"samples"?,"draw"?}` | a timeline; with `draw` its `text` and `svg`, too |
//!
//! A policy and a workload may be partial: what they leave out has its default. `config` is for settings that a planner
//! has beside the policy, as the schema `config` of its description says; the built-in one has none.
//! Anything else than a request of
//! these is answered with `{"error":{"kind","message"}}`; an unknown key is refused by its name.
//! The answer depends on the request alone.
//!
//! `plan_table` may also be packed ([`packed`]), as may be its answer; an error is JSON always.

pub mod packed;
mod timeline;

use alloc::{
    boxed::Box,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::decision::{SHARD, TABLE};
use crate::facts::TableFacts;
use crate::plan::{Plan, Trigger, plan_table};
use crate::policy::{KNOBS, Knob, Policy};
use crate::vectors::{self, Case};
use crate::{check, draw};

/// Largest request, bytes.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;

/// What a planner speaks: the WIT package and version of its door. A host reads it in the description
/// and refuses any other.
pub const ABI: &str = "caretaker:planner@1.0.0";

/// One request.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// What the planner is.
    Describe {},
    /// Settings by their keys in the settings file, to a policy.
    Policy {
        #[serde(default)]
        set: BTreeMap<String, String>,
    },
    /// What is to be done on a table.
    PlanTable {
        facts: TableFacts,
        #[serde(default)]
        policy: Policy,
        /// Milliseconds since the epoch.
        now_ms: u64,
        #[serde(default)]
        trigger: Trigger,
        /// The planner's own settings.
        #[serde(default)]
        config: Map<String, Value>,
    },
    /// Whether facts can be true, and a plan may be carried out for them.
    Check {
        facts: TableFacts,
        #[serde(default)]
        policy: Policy,
        #[serde(default)]
        plan: Option<Plan>,
    },
    /// Facts and a plan as text.
    Draw {
        #[serde(default)]
        facts: Option<TableFacts>,
        #[serde(default)]
        plan: Option<Plan>,
        #[serde(default)]
        now_ms: u64,
    },
    /// Whether the picks give what cases expect of them.
    Vectors { cases: Vec<Case> },
    /// A preset and knobs by their keys, to a workload.
    Workload {
        #[serde(default)]
        preset: Option<String>,
        #[serde(default)]
        set: BTreeMap<String, String>,
    },
    /// One table over time.
    Simulate(Box<timeline::Ask>),
}

/// What every planner says of itself; a host reads it when it loads one. A planner may say more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Description {
    /// The planner's name, for people and records.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// [`ABI`].
    pub abi: String,
    /// Encodings of requests and answers that it takes; `json` must be among them.
    pub encodings: Vec<String>,
    /// Operations it answers; `describe` and `plan_table` must be among them.
    pub ops: Vec<String>,
    /// JSON Schema of the `config` of `plan_table`: its settings beside the policy.
    pub config: Map<String, Value>,
}

/// What is wrong with a request.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Fault {
    /// `too_large`, `malformed` (not JSON), `invalid` (not a request), `policy` (a value out of
    /// range), `facts` (they contradict themselves), `config` (a setting it does not have), `vectors` (a case that
    /// can't be asked), `workload` (a value out of range), `simulation` (its bounds, too many events).
    kind: &'static str,
    message: String,
}

/// Answers one request. Total: any bytes get an answer, and it is always JSON.
pub fn call(request: &[u8]) -> Vec<u8> {
    if packed::is_packed(request) {
        return call_packed(request).unwrap_or_else(|fault| json!({ "error": fault }).to_string().into_bytes());
    }
    let answer = match parse(request).and_then(answer) {
        Ok(ok) => json!({ "ok": ok }),
        Err(fault) => json!({ "error": fault }),
    };
    answer.to_string().into_bytes()
}

fn call_packed(request: &[u8]) -> Result<Vec<u8>, Fault> {
    not_too_large(request)?;
    let invalid = || Fault { kind: "invalid", message: format!("not a request of `{}`", packed::NAME) };
    let (facts, policy, now_ms, trigger) = packed::read_request(request).ok_or_else(invalid)?;
    let answer = packed::answer(&plan(&facts, &policy, now_ms, trigger)?);
    // The facts of a plugin go with its memory: to take a million things apart first is for nothing.
    #[cfg(target_family = "wasm")]
    core::mem::forget(facts);
    Ok(answer)
}

fn not_too_large(request: &[u8]) -> Result<(), Fault> {
    if request.len() > REQUEST_BYTES_MAX {
        let message = format!("the request has {} bytes; {REQUEST_BYTES_MAX} at most", request.len());
        return Err(Fault { kind: "too_large", message });
    }
    Ok(())
}

fn parse(request: &[u8]) -> Result<Request, Fault> {
    not_too_large(request)?;
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
            // A `Value` sorts its keys; a record's hash is of the text as the policy itself is written.
            let canonical = serde_json::to_string(&policy).unwrap_or_default();
            Ok(json!({ "policy": policy, "lint": policy.lint(), "toml": policy.to_toml(), "canonical": canonical }))
        }
        Request::PlanTable { facts, policy, now_ms, trigger, config } => {
            if let Some(key) = config.keys().next() {
                let message = format!("`{key}`: the built-in planner has no settings beside the policy");
                return Err(Fault { kind: "config", message });
            }
            to_value(&plan(&facts, &policy, now_ms, trigger)?)
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
        Request::Vectors { cases } => {
            let refused = |refused: vectors::Refused| Fault { kind: "vectors", message: refused.to_string() };
            to_value(&vectors::judge(&cases).map_err(refused)?)
        }
        Request::Workload { preset, set } => timeline::workload(preset.as_deref(), &set),
        Request::Simulate(ask) => timeline::simulate(*ask),
    }
}

fn plan(facts: &TableFacts, policy: &Policy, now_ms: u64, trigger: Trigger) -> Result<Plan, Fault> {
    policy.check().map_err(refused)?;
    check::facts(facts).map_err(|violations| Fault {
        kind: "facts",
        message: violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    })?;
    Ok(plan_table(facts, policy, now_ms, trigger))
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
    let no_settings = json!({ "type": "object", "additionalProperties": false });
    json!({
        "name": "built-in",
        "version": env!("CARGO_PKG_VERSION"),
        "abi": ABI,
        "encodings": ["json", packed::NAME],
        "ops": ["describe", "policy", "plan_table", "check", "draw", "vectors", "workload", "simulate"],
        "config": no_settings,
        "decisions": TABLE.map(|(decision, _)| decision).into_iter().chain(SHARD.map(|(decision, _)| decision)).collect::<Vec<_>>(),
        "triggers": [Trigger::Tick, Trigger::Relief, Trigger::Forced],
        "knobs": KNOBS.iter().map(knob).collect::<Vec<_>>(),
        "policy": defaults,
        "workload": timeline::describe(),
    })
}

/// The JSON Schemas of the wire: file name and schema.
#[cfg(feature = "schema")]
pub fn schemas() -> [(&'static str, schemars::Schema); 4] {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    let request = settings.clone().into_generator();
    let answer = settings.for_serialize().into_generator();
    [
        ("request", request.into_root_schema_for::<Request>()),
        ("description", answer.clone().into_root_schema_for::<Answer<Description>>()),
        ("plan", answer.clone().into_root_schema_for::<Answer<Plan>>()),
        ("error", answer.into_root_schema_for::<Refusal>()),
    ]
}

/// What stands around an answer.
#[cfg(feature = "schema")]
#[derive(Serialize, schemars::JsonSchema)]
struct Answer<T> {
    ok: T,
}

/// What stands around a fault.
#[cfg(feature = "schema")]
#[derive(Serialize, schemars::JsonSchema)]
struct Refusal {
    error: Fault,
}

fn refused(refused: crate::policy::Refused) -> Fault {
    Fault { kind: "policy", message: refused.to_string() }
}

fn to_value(value: &impl Serialize) -> Result<Value, Fault> {
    serde_json::to_value(value).map_err(|e| Fault { kind: "invalid", message: e.to_string() })
}
