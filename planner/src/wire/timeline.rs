//! The part of the door that simulates.

use alloc::{collections::BTreeMap, string::String, string::ToString, vec::Vec};
use serde_json::{Value, json};

use super::{Fault, to_value};
use crate::policy::{Knob, Refused};
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

pub(super) fn simulate(simulation: &Simulation, draw: bool) -> Result<Value, Fault> {
    let timeline = simulate::run(simulation).map_err(|unfit| {
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
        answer["text"] = "".into();
        answer["svg"] = "".into();
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
