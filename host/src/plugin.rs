//! A loaded plugin.

use std::{
    collections::VecDeque,
    fs::File,
    io::Read,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use planner::{
    check::{self, Violation},
    facts::TableFacts,
    plan::{Plan, Trigger},
    policy::Policy,
    wire::{Description, packed},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use wasmtime::{
    Config, Engine, PoolingAllocationConfig, Store,
    component::{Component, ComponentExportIndex, InstancePre, Linker, TypedFunc},
};

use crate::{
    describe,
    error::PluginError,
    limits::{Limits, Meter},
    ticker::{CALLS_MAX, Ticker},
};

/// The interface a plugin must export (`wit/`).
const DOOR: &str = "caretaker:planner/door@";
/// The version of it that is served.
const DOOR_VERSION: &str = "1.0.0";

type Door<'a> = TypedFunc<(&'a [u8],), (Vec<u8>,)>;

/// Plugins that stay compiled, whoever uses them: to go back to one, or to have one decide that was the
/// candidate, costs no second compilation. They are kept in memory and not in files: the machine code of a file
/// can't be checked before it runs.
const COMPILED_MAX: usize = 4;

/// The newest last.
static COMPILED: Mutex<VecDeque<Arc<Compiled>>> = Mutex::new(VecDeque::new());

/// A planner that lives in a plugin. Calls may come from many threads at once.
pub struct PluginPlanner {
    compiled: Arc<Compiled>,
    limits: Limits,
    config: Map<String, Value>,
}

/// Machine code of a plugin that has described itself.
struct Compiled {
    plugin: InstancePre<Meter>,
    call: ComponentExportIndex,
    ticker: Ticker,
    sha256: [u8; 32],
    /// Within which it described itself.
    limits: Limits,
    description: Description,
    /// Whether it takes the short encoding of this host's own planner.
    packs: bool,
}

impl PluginPlanner {
    /// Reads, compiles and tries a plugin file: a component in the binary format. Text and
    /// precompiled machine code are refused.
    ///
    /// # Errors
    /// [`PluginError::Load`] and [`PluginError::Abi`], or how it failed to describe itself.
    pub fn load(path: &Path, limits: Limits) -> Result<Self, PluginError> {
        let plugin = path.display().to_string();
        let bytes = read(path, limits.file_bytes).map_err(|why| PluginError::Load { plugin: plugin.clone(), why })?;
        Self::compile(&plugin, &bytes, limits)
    }

    /// Compiles and tries a plugin; `name` is only for the error message.
    ///
    /// # Errors
    /// As [`PluginPlanner::load`].
    pub fn compile(name: &str, bytes: &[u8], limits: Limits) -> Result<Self, PluginError> {
        if bytes.len() as u64 > limits.file_bytes {
            return Err(PluginError::Load { plugin: name.into(), why: too_large(limits.file_bytes) });
        }
        let sha256 = Sha256::digest(bytes).into();
        let compiled = match Compiled::kept(&sha256, &limits) {
            Some(compiled) => compiled,
            None => Compiled::new(name, bytes, sha256, &limits)?.keep(),
        };
        Ok(Self { compiled, limits, config: Map::new() })
    }

    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.compiled.description
    }

    /// The SHA-256 of its file, in hexadecimal: what decisions are recorded with.
    pub fn sha256(&self) -> String {
        self.compiled.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The same plugin with settings of its own, as the `config` of its description says. What they
    /// mean, and whether they are right, it says itself when it is asked for a plan.
    #[must_use]
    pub fn with_config(self, config: Map<String, Value>) -> Self {
        Self { config, ..self }
    }

    /// The same plugin with another deadline.
    #[must_use]
    pub(crate) fn within(self, deadline: Duration) -> Self {
        Self { limits: Limits { deadline, ..self.limits }, ..self }
    }

    /// One request through the door, in a store of its own.
    ///
    /// # Errors
    /// How it failed to answer.
    pub fn call(&self, request: &[u8]) -> Result<Vec<u8>, PluginError> {
        self.compiled.ask(request, &self.limits).map_err(|e| self.fault(&e))
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
        // A plugin in another language need not know how a table's own config is read.
        let policy_of_table = &*policy.for_table(&facts.overrides).policy;
        // What is packed has no room for settings of its own.
        let answer = if self.compiled.packs && self.config.is_empty() {
            self.call(&packed::request(facts, policy_of_table, now_ms, trigger))?
        } else {
            let config = &self.config;
            let request = PlanTable { op: "plan_table", facts, policy: policy_of_table, now_ms, trigger, config };
            self.call(&serde_json::to_vec(&request).map_err(|e| bad(e.to_string()))?)?
        };
        let plan = read_plan(&answer)?;
        if plan.at_ms != now_ms {
            return Err(bad(format!("the plan is for {} ms, not {now_ms} ms", plan.at_ms)));
        }
        check::plan(&plan, facts, policy).map_err(|violations| bad(told(&violations)))?;
        Ok(plan)
    }

    fn fault(&self, error: &wasmtime::Error) -> PluginError {
        PluginError::of_run(error, &self.limits, |why| PluginError::BadOutput { why })
    }
}

impl Compiled {
    /// One that is kept, and described itself within the same limits.
    fn kept(sha256: &[u8; 32], limits: &Limits) -> Option<Arc<Self>> {
        let mut all = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|one| one.sha256 == *sha256 && one.limits == *limits)?;
        let one = all.remove(at)?;
        all.push_back(one.clone());
        Some(one)
    }

    fn keep(self) -> Arc<Self> {
        let one = Arc::new(self);
        let mut all = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let surplus = (all.len() + 1).saturating_sub(COMPILED_MAX);
        all.drain(..surplus);
        all.push_back(one.clone());
        one
    }

    fn new(name: &str, bytes: &[u8], sha256: [u8; 32], limits: &Limits) -> Result<Self, PluginError> {
        let refuse = |why: String| PluginError::Load { plugin: name.into(), why };
        // What it quotes of the file it puts one byte a line.
        let line = |e: wasmtime::Error| format!("{e:#}").split_whitespace().collect::<Vec<_>>().join(" ");
        let fail = |e: wasmtime::Error| refuse(line(e));

        let engine = Engine::new(&config()).map_err(fail)?;
        let component = Component::from_binary(&engine, bytes).map_err(fail)?;
        let call = door(name, &engine, &component)?;
        // Nothing is linked in, so a plugin that imports anything is refused here by the name of
        // what it wants.
        let plugin = Linker::new(&engine).instantiate_pre(&component).map_err(fail)?;
        let ticker = Ticker::start(&engine).map_err(|e| refuse(format!("no thread for it: {e}")))?;

        let (description, limits) = (Description::default(), limits.clone());
        let mut this = Self { plugin, call, ticker, sha256, limits, description, packs: false };
        let described = this.ask(describe::REQUEST, &this.limits);
        let described = described.map_err(|e| PluginError::of_run(&e, &this.limits, refuse))?;
        this.description = describe::read(name, &described)?;
        this.packs = this.description.encodings.iter().any(|encoding| encoding == packed::NAME);
        Ok(this)
    }

    fn ask(&self, request: &[u8], limits: &Limits) -> wasmtime::Result<Vec<u8>> {
        let _running = self.ticker.call();
        let (mut store, door) = self.open(limits)?;
        let (answer,) = door.call(&mut store, (request,))?;
        Ok(answer)
    }

    fn open<'a>(&self, limits: &Limits) -> wasmtime::Result<(Store<Meter>, Door<'a>)> {
        let mut store = Store::new(self.plugin.engine(), Meter::new(limits));
        store.limiter(|meter| meter);
        store.set_epoch_deadline(Ticker::epochs(limits.deadline));
        store.set_hostcall_fuel(usize::try_from(limits.answer_bytes).unwrap_or(usize::MAX));
        let instance = self.plugin.instantiate(&mut store)?;
        let door = instance.get_typed_func(&mut store, self.call)?;
        Ok((store, door))
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
    #[serde(skip_serializing_if = "Map::is_empty")]
    config: &'a Map<String, Value>,
}

/// The answer to it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(Plan),
    Error { message: String },
}

fn read_plan(answer: &[u8]) -> Result<Plan, PluginError> {
    let bad = |why: String| PluginError::BadOutput { why };
    if packed::is_packed(answer) {
        return packed::read_answer(answer).ok_or_else(|| bad(format!("not a plan of `{}`", packed::NAME)));
    }
    match serde_json::from_slice(answer).map_err(|e| bad(e.to_string()))? {
        Answer::Ok(plan) => Ok(plan),
        Answer::Error { message } => Err(PluginError::Refused { why: message }),
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config
        .allocation_strategy(pool())
        .epoch_interruption(true)
        .concurrency_support(false)
        .max_wasm_stack(512 << 10)
        // The same plugin gives the same plan on every machine.
        .relaxed_simd_deterministic(true)
        .cranelift_nan_canonicalization(true);
    config
}

/// Room for every call is reserved when a plugin is loaded, so a fresh store costs microseconds. It
/// is address space; of a call's memory only the first part stays with the process when it is over.
fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(CALLS_MAX)
        .total_core_instances(CALLS_MAX * PARTS_MAX)
        .total_memories(CALLS_MAX * MEMORIES_MAX)
        .total_tables(CALLS_MAX * PARTS_MAX)
        .max_core_instances_per_component(PARTS_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(PARTS_MAX)
        .linear_memory_keep_resident(64 << 10);
    pool
}

/// Core instances, and tables, of one plugin.
const PARTS_MAX: u32 = 16;
/// Linear memories of one plugin; one built from JavaScript has three.
const MEMORIES_MAX: u32 = 4;

fn door(name: &str, engine: &Engine, component: &Component) -> Result<ComponentExportIndex, PluginError> {
    let refuse = |why: String| PluginError::Load { plugin: name.into(), why };
    let export = format!("{DOOR}{DOOR_VERSION}");
    let kind = component.component_type();
    let versions: Vec<&str> = kind.exports(engine).filter_map(|(export, _)| export.strip_prefix(DOOR)).collect();
    if let Some(other) = versions.first().filter(|_| !versions.contains(&DOOR_VERSION)) {
        describe::same_abi(name, &format!("caretaker:planner@{other}"))?;
    }
    component
        .get_export_index(None, &export)
        .and_then(|door| component.get_export_index(Some(&door), "call"))
        .ok_or_else(|| refuse(format!("it does not export `call` of `{export}`")))
}

/// Violations told one by one.
const TOLD_MAX: usize = 8;

/// A plugin may break a rule a million times; nobody reads more than a few.
fn told(violations: &[Violation]) -> String {
    let mut told: Vec<String> = violations.iter().take(TOLD_MAX).map(ToString::to_string).collect();
    if let Some(more) = violations.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    told.join("; ")
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

#[cfg(test)]
#[path = "../tests/guests/mod.rs"]
mod guests;

#[cfg(test)]
mod tests {
    use super::{
        guests::{ECHO, guest},
        *,
    };

    #[test]
    fn a_plugin_is_compiled_once_for_everybody_and_the_oldest_of_many_is_forgotten() {
        let load = |text: &str, limits: &Limits| {
            PluginPlanner::compile("guest", &wat::parse_str(text).expect("text"), limits.clone()).expect("loads")
        };
        let (text, limits) = (guest(ECHO), Limits::default());
        let one = load(&text, &limits);
        assert!(Arc::ptr_eq(&one.compiled, &load(&text, &limits).compiled));
        let short = Limits { deadline: Duration::from_millis(500), ..limits };
        assert!(!Arc::ptr_eq(&one.compiled, &load(&text, &short).compiled), "within these it has not described itself");
        for n in 0..COMPILED_MAX {
            load(&text, &Limits { answer_bytes: 1_000 + n as u64, ..limits });
        }
        assert!(!Arc::ptr_eq(&one.compiled, &load(&text, &limits).compiled));
        assert_eq!(COMPILED.lock().expect("nobody panicked").len(), COMPILED_MAX);
    }
}
