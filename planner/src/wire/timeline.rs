//! The part of the door that simulates.

use alloc::{collections::BTreeMap, string::String, string::ToString, vec::Vec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Fault, to_value};
use crate::draw;
use crate::facts::TableFacts;
use crate::policy::{Knob, Policy, Refused};
use crate::simulate::{
    self, DURATION_MS, FAULTS_MAX, JOBS_MAX, PRESETS, Preset, SAMPLES, Simulation, Unfit, WORKLOAD, Workload,
};

/// A preset and settings, to a workload.
pub(super) fn workload(preset: Option<&str>, set: &BTreeMap<String, String>) -> Result<Value, Fault> {
    let refused = |refused: Refused| Fault { kind: "workload", message: refused.to_string() };
    let mut workload = preset.map_or_else(|| Ok(Workload::default()), Workload::preset).map_err(refused)?;
    set.iter().try_for_each(|(key, text)| workload.set(key, text)).map_err(refused)?;
    workload.check().map_err(refused)?;
    Ok(json!({ "workload": workload, "toml": workload.to_toml() }))
}

/// A [`Simulation`], and whether it is drawn, too. What is left out has its default.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct Ask {
    workload: Workload,
    policy: Policy,
    facts: Option<TableFacts>,
    /// Milliseconds since the epoch.
    start_ms: Option<u64>,
    duration_ms: u64,
    seed: u64,
    faults: Vec<simulate::Fault>,
    samples: u64,
    draw: bool,
}

impl Default for Ask {
    fn default() -> Self {
        let Simulation { workload, policy, facts, start_ms, duration_ms, seed, faults, samples } =
            Simulation::default();
        Self { workload, policy, facts, start_ms, duration_ms, seed, faults, samples, draw: false }
    }
}

pub(super) fn simulate(ask: Ask) -> Result<Value, Fault> {
    let Ask { workload, policy, facts, start_ms, duration_ms, seed, faults, samples, draw } = ask;
    let simulation = Simulation { workload, policy, facts, start_ms, duration_ms, seed, faults, samples };
    let timeline = simulate::run(&simulation).map_err(|unfit| {
        let kind = match unfit {
            Unfit::Workload(_) => "workload",
            Unfit::Policy(_) => "policy",
            Unfit::Facts(_) => "facts",
            Unfit::Bounds(_) | Unfit::TooMany { .. } => "simulation",
        };
        Fault { kind, message: unfit.to_string() }
    })?;
    let mut answer = to_value(&timeline)?;
    if draw {
        answer["text"] = draw::timeline(&timeline).into();
        answer["svg"] = draw::svg(&timeline).into();
    }
    Ok(answer)
}

/// The knobs of a workload, its presets, and the bounds of a simulation.
pub(super) fn describe() -> Value {
    let defaults = Workload::default();
    let knob = |knob: &Knob<Workload>| {
        json!({
            "key": knob.key, "unit": knob.unit, "min": knob.min, "max": knob.max, "zero": knob.zero,
            "default": knob.value(&defaults), "text": knob.text(&defaults), "help": knob.help,
        })
    };
    let preset = |preset: &Preset| {
        let set: BTreeMap<&str, &str> = preset.set.iter().copied().collect();
        json!({ "name": preset.name, "help": preset.help, "set": set })
    };
    json!({
        "knobs": WORKLOAD.iter().map(knob).collect::<Vec<_>>(),
        "presets": PRESETS.iter().map(preset).collect::<Vec<_>>(),
        "workload": defaults,
        "limits": {
            "duration_ms": [DURATION_MS.start(), DURATION_MS.end()],
            "samples": [SAMPLES.start(), SAMPLES.end()],
            "faults": FAULTS_MAX,
            "jobs": JOBS_MAX,
        },
    })
}
