//! A loaded plugin.

use std::{fs::File, io::Read, path::Path};

use planner::{
    check,
    facts::TableFacts,
    plan::{Plan, Trigger},
    policy::Policy,
};
use serde::{Deserialize, Serialize};
use wasmtime::{
    Config, Engine, Store,
    component::{Component, ComponentExportIndex, InstancePre, Linker, TypedFunc},
};

use crate::{
    error::PluginError,
    limits::{Limits, Meter},
    ticker::Ticker,
};

/// The interface a plugin must export (`wit/`).
const DOOR: &str = "caretaker:planner/door@1.0.0";

type Door<'a> = TypedFunc<(&'a [u8],), (Vec<u8>,)>;

/// A planner that lives in a plugin. Calls may come from many threads at once.
pub struct PluginPlanner {
    plugin: InstancePre<Meter>,
    call: ComponentExportIndex,
    limits: Limits,
    ticker: Ticker,
}

impl PluginPlanner {
    /// Reads, compiles and tries a plugin file: a component in the binary format. Text and
    /// precompiled machine code are refused.
    pub fn load(path: &Path, limits: Limits) -> Result<Self, PluginError> {
        let plugin = path.display().to_string();
        let bytes = read(path, limits.file_bytes).map_err(|why| PluginError::Load { plugin: plugin.clone(), why })?;
        Self::compile(&plugin, &bytes, limits)
    }

    /// Compiles and tries a plugin; `name` is only for the error message.
    pub fn compile(name: &str, bytes: &[u8], limits: Limits) -> Result<Self, PluginError> {
        let refuse = |why: String| PluginError::Load { plugin: name.into(), why };
        if bytes.len() as u64 > limits.file_bytes {
            return Err(refuse(too_large(limits.file_bytes)));
        }
        let fail = |e: wasmtime::Error| refuse(format!("{e:#}"));

        let engine = Engine::new(&config()).map_err(fail)?;
        let component = Component::from_binary(&engine, bytes).map_err(fail)?;
        let call = component
            .get_export_index(None, DOOR)
            .and_then(|door| component.get_export_index(Some(&door), "call"))
            .ok_or_else(|| refuse(format!("it does not export `call` of `{DOOR}`")))?;
        // Nothing is linked in, so a plugin that imports anything is refused here by the name of
        // what it wants.
        let plugin = Linker::new(&engine).instantiate_pre(&component).map_err(fail)?;
        let ticker = Ticker::start(&engine).map_err(|e| refuse(format!("no thread for it: {e}")))?;

        let this = Self { plugin, call, limits, ticker };
        let running = this.ticker.call();
        this.open().map_err(|e| PluginError::of_run(&e, &this.limits, refuse))?;
        drop(running);
        Ok(this)
    }

    /// One request through the door, in a store of its own.
    pub fn call(&self, request: &[u8]) -> Result<Vec<u8>, PluginError> {
        let _running = self.ticker.call();
        let (mut store, door) = self.open().map_err(|e| self.fault(&e))?;
        let (answer,) = door.call(&mut store, (request,)).map_err(|e| self.fault(&e))?;
        Ok(answer)
    }

    /// Asks for a plan and checks it like a request by hand: a plugin proposes, it does not rule.
    ///
    /// # Errors
    /// [`PluginError::Refused`] when the plugin finds fault with the facts or the policy,
    /// [`PluginError::BadOutput`] when its answer is no plan, is not for these facts and this
    /// time, or breaks an invariant of [`planner::check::plan`]; else how it failed to answer.
    pub fn plan_table(
        &self,
        facts: &TableFacts,
        policy: &Policy,
        now_ms: u64,
        trigger: Trigger,
    ) -> Result<Plan, PluginError> {
        let bad = |why: String| PluginError::BadOutput { why };
        let request = PlanTable { op: "plan_table", facts, policy, now_ms, trigger };
        let request = serde_json::to_vec(&request).map_err(|e| bad(e.to_string()))?;
        let answer = self.call(&request)?;
        let plan = match serde_json::from_slice(&answer).map_err(|e| bad(e.to_string()))? {
            Answer::Ok(plan) => plan,
            Answer::Error { message } => return Err(PluginError::Refused { why: message }),
        };
        if plan.at_ms != now_ms {
            return Err(bad(format!("the plan is for {} ms, not {now_ms} ms", plan.at_ms)));
        }
        check::plan(&plan, facts, policy).map_err(|violations| {
            let all: Vec<String> = violations.iter().map(ToString::to_string).collect();
            bad(all.join("; "))
        })?;
        Ok(plan)
    }

    fn open<'a>(&self) -> wasmtime::Result<(Store<Meter>, Door<'a>)> {
        let mut store = Store::new(self.plugin.engine(), Meter::new(&self.limits));
        store.limiter(|meter| meter);
        store.set_epoch_deadline(Ticker::epochs(self.limits.deadline));
        store.set_hostcall_fuel(usize::try_from(self.limits.answer_bytes).unwrap_or(usize::MAX));
        let instance = self.plugin.instantiate(&mut store)?;
        let door = instance.get_typed_func(&mut store, self.call)?;
        Ok((store, door))
    }

    fn fault(&self, error: &wasmtime::Error) -> PluginError {
        PluginError::of_run(error, &self.limits, |why| PluginError::BadOutput { why })
    }
}

/// A request as `planner::wire` documents it.
#[derive(Serialize)]
struct PlanTable<'a> {
    op: &'static str,
    facts: &'a TableFacts,
    policy: &'a Policy,
    now_ms: u64,
    trigger: Trigger,
}

/// The answer to it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(Plan),
    Error { message: String },
}

fn config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .concurrency_support(false)
        .max_wasm_stack(512 << 10)
        // The same plugin gives the same plan on every machine.
        .relaxed_simd_deterministic(true)
        .cranelift_nan_canonicalization(true);
    config
}

/// Reads no more than the limit, whatever the file's length says (it may be a pipe or a device).
fn read(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit.saturating_add(1)).read_to_end(&mut bytes))
        .map_err(|e| e.to_string())?;
    if bytes.len() as u64 > limit { Err(too_large(limit)) } else { Ok(bytes) }
}

fn too_large(limit: u64) -> String {
    format!("it is larger than the limit of {limit} bytes")
}
