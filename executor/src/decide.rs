//! What decides: the built-in planner, or a plugin in its place.
//!
//! ```text
//! facts ──► built-in plan ──┬─────────────────────────────► plan ──► what runs
//!                           └──► active plugin ──► merge ───┘  │
//!                                failed: the last good one,    ├──► candidate, beside it (shadow)
//!                                or the built-in plan          └──► record (registry)
//! ```
//!
//! A plugin proposes and does not rule: its plan is checked like a request by hand, catch-up stays with the
//! built-in rules, and whatever it does wrong costs it this one decision ([`planner::merge`]). An evaluation
//! uses one version from its beginning to its end, however often versions change meanwhile.

mod again;
mod compare;
mod counts;
mod plugin;
mod record;
mod reload;
mod shadow;

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use planner::facts::TableFacts;
use planner::merge::merge;
use planner::plan::{Plan, Trigger, plan_table};
use planner::policy::Policy;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

pub use self::again::{Again, Candidate, Replayed, Tested};
pub(crate) use self::compare::bytes;
pub use self::compare::{Difference, Work, differences, work};
pub use self::counts::{Count, Counts};
pub use self::plugin::{Plugin, Source};
pub(crate) use self::plugin::{is_sha256, read as read_plugin};
pub use self::record::{Body, Recorded, Recorder, digest as plan_digest, unpack};
pub use self::shadow::{Compared, Shadow};
use crate::error::{Error, Result};
use crate::registry::Registry;

/// Versions that can be gone back to at once.
const HISTORY_MAX: usize = 8;
/// Candidates that plan at the same time; what comes on top of it is not compared.
const SHADOWS_MAX: usize = 4;
/// A plugin that fails is told of so often, and counted always.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Who plans where the active plugin does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// The plugin that was active before it and planned well, then the built-in planner.
    #[default]
    LastGood,
    /// The built-in planner.
    BuiltIn,
}

/// What a deployment chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The plugin that decides; `None`: the built-in planner.
    pub plugin: Option<Source>,
    /// The candidate beside it.
    pub shadow: Option<Source>,
    /// Settings of the plugins' own.
    pub config: serde_json::Map<String, serde_json::Value>,
    /// Who plans where a plugin does not.
    pub fallback: Fallback,
    /// Evaluations that a candidate needs, none of them refused, until it may be promoted.
    pub gate: u64,
    /// Bytes of records that are kept; 0: none.
    pub record_bytes: u64,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            plugin: None,
            shadow: None,
            config: serde_json::Map::new(),
            fallback: Fallback::default(),
            gate: 100,
            record_bytes: 256 << 20,
        }
    }
}

/// A planner.
#[derive(Clone, Debug)]
pub enum Planner {
    /// This program's own.
    BuiltIn,
    /// One from a file.
    Plugin(Arc<Plugin>),
}

impl Planner {
    /// How records name it: `built-in <version>`, or the SHA-256 of its file.
    pub fn id(&self) -> String {
        match self {
            Self::BuiltIn => concat!("built-in ", env!("CARGO_PKG_VERSION")).into(),
            Self::Plugin(plugin) => plugin.sha256.clone(),
        }
    }

    /// How people name it.
    pub fn name(&self) -> String {
        match self {
            Self::BuiltIn => self.id(),
            Self::Plugin(plugin) => plugin.name(),
        }
    }

    /// A plan that may be carried out; `built_in` is the built-in planner's for the same moment.
    ///
    /// # Errors
    /// How the plugin failed: the kind, and why.
    pub async fn plan(&self, asked: &Arc<Asked>, built_in: &Arc<Plan>) -> std::result::Result<Plan, Failed> {
        let Self::Plugin(plugin) = self else { return Ok(Plan::clone(built_in)) };
        let (plugin, asked, built_in) = (plugin.clone(), asked.clone(), built_in.clone());
        // It may take as long as its deadline says, which no thread of others' work should.
        let planned = tokio::task::spawn_blocking(move || {
            let Asked { facts, policy, now_ms, trigger } = &*asked;
            let proposed = plugin.planner.plan_table(facts, policy, *now_ms, *trigger)?;
            merge(proposed, &built_in, facts, policy).map_err(|violations| Failed::refused(&violations))
        });
        planned.await.unwrap_or_else(|died| Err(Failed { kind: "host", why: died.to_string() }))
    }
}

/// What a planner is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The table.
    pub facts: Arc<TableFacts>,
    /// The deployment's policy, before the table's own overrides.
    pub policy: Policy,
    /// Milliseconds since the epoch.
    pub now_ms: u64,
    /// Why.
    pub trigger: Trigger,
}

/// Why a plugin gave no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// In one word: `deadline`, `memory`, `trap`, `refused`, `bad_output`, `host`.
    pub kind: &'static str,
    /// In full.
    pub why: String,
}

/// By whom a plan is, and from what.
#[derive(Clone, Debug)]
pub struct Decided {
    /// What was asked.
    pub asked: Arc<Asked>,
    /// Whose plan it is, as records name it.
    pub planner: String,
    /// Digest of the planner and the policy together: what jobs and records carry.
    pub policy: String,
    /// Why it is not the active planner's, where it is not.
    pub fell_back: Option<String>,
    candidate: Option<Arc<Shadow>>,
    built_in: Arc<Plan>,
}

/// Decides for a process. One planner is active; others are beside it, and behind it.
pub struct Decider {
    choice: Choice,
    slots: RwLock<Slots>,
    counts: Counts,
    shadows: Arc<Semaphore>,
    recorder: Option<Recorder>,
}

#[derive(Clone)]
struct Slots {
    active: Planner,
    /// What was active before, the newest last.
    before: VecDeque<Planner>,
    shadow: Option<Arc<Shadow>>,
}

impl Default for Decider {
    fn default() -> Self {
        Self::new(Choice::default(), None)
    }
}

impl Decider {
    /// The built-in planner decides.
    pub fn new(choice: Choice, recorder: Option<Recorder>) -> Self {
        let slots = Slots { active: Planner::BuiltIn, before: VecDeque::new(), shadow: None };
        Self {
            choice,
            slots: RwLock::new(slots),
            counts: Counts::default(),
            shadows: Arc::new(Semaphore::new(SHADOWS_MAX)),
            recorder,
        }
    }

    /// What the deployment chose, loaded; decisions are recorded in `registry`, if there is one to write to.
    ///
    /// # Errors
    /// `Invalid` where a plugin does not load.
    pub async fn open(choice: Choice, registry: Option<Registry>) -> Result<Arc<Self>> {
        let this = Self::recording(choice, registry);
        if let Some(source) = this.choice.plugin.clone() {
            this.switch(Planner::Plugin(this.load(&source).await?));
        }
        if let Some(source) = this.choice.shadow.clone() {
            this.beside(Some(this.load(&source).await?));
        }
        Ok(Arc::new(this))
    }

    /// The same for a process that must not stop for a plugin's sake: one that does not load is told of, loudly,
    /// and the built-in planner decides until its file is another.
    pub async fn serve(choice: Choice, registry: Registry) -> Arc<Self> {
        let this = Self::recording(choice, Some(registry));
        for (source, active) in [(&this.choice.plugin, true), (&this.choice.shadow, false)] {
            let Some(source) = source else { continue };
            match this.load(source).await {
                Ok(plugin) if active => this.switch(Planner::Plugin(plugin)),
                Ok(plugin) => this.beside(Some(plugin)),
                Err(error) => tracing::error!(%source, %error, "not loaded; the built-in planner decides without it"),
            }
        }
        Arc::new(this)
    }

    fn recording(choice: Choice, registry: Option<Registry>) -> Self {
        let registry = registry.filter(|_| choice.record_bytes > 0);
        let start = |registry| Recorder::start(registry, choice.record_bytes, choice.config.clone());
        let recorder = registry.map(start);
        Self::new(choice, recorder)
    }

    /// What the deployment chose.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Decides.
    pub async fn decide(&self, facts: TableFacts, policy: &Policy, now_ms: u64, trigger: Trigger) -> (Plan, Decided) {
        let built_in = Arc::new(plan_table(&facts, policy, now_ms, trigger));
        let asked = Arc::new(Asked { facts: Arc::new(facts), policy: policy.clone(), now_ms, trigger });
        let Slots { mut active, before, mut shadow } = self.slots();
        // What somebody orders is no question of policy (R2.4).
        if trigger == Trigger::Forced {
            (active, shadow) = (Planner::BuiltIn, None);
        }
        let (mut planner, mut fell_back) = (active.clone(), None);
        let mut planned = active.plan(&asked, &built_in).await;
        if let (Err(failed), Planner::Plugin(plugin)) = (&planned, &active) {
            self.failed(plugin, failed, &asked.facts.table);
            fell_back = Some(failed.why.clone());
            planner = self.substitute(&active, &before);
            planned = planner.plan(&asked, &built_in).await;
        } else if let Planner::Plugin(plugin) = &active {
            plugin.worked();
        }
        let plan = planned.unwrap_or_else(|_| {
            planner = Planner::BuiltIn;
            Plan::clone(&built_in)
        });
        match (&fell_back, &planner) {
            (Some(_), Planner::BuiltIn) => self.counts.add(Count::FellBackToBuiltIn),
            (Some(_), Planner::Plugin(_)) => self.counts.add(Count::FellBackToLastGood),
            (None, Planner::Plugin(_)) => self.counts.add(Count::PlannedByPlugin),
            (None, Planner::BuiltIn) => self.counts.add(Count::PlannedBuiltIn),
        }
        let policy = digest(&planner.id(), policy, &self.choice);
        (plan, Decided { asked, planner: planner.id(), policy, fell_back, candidate: shadow, built_in })
    }

    /// Notes a decision that is acted on: the candidate is asked the same, and all of it is recorded. Nothing
    /// waits for either.
    pub fn note(self: &Arc<Self>, uri: &str, plan: &Plan, decided: &Decided) {
        let Some(candidate) = decided.candidate.clone() else {
            return self.record(|| Recorded::new(uri, plan, decided, None));
        };
        let Ok(place) = self.shadows.clone().try_acquire_owned() else {
            self.counts.add(Count::ShadowSkipped);
            return self.record(|| Recorded::new(uri, plan, decided, None));
        };
        let (this, uri, plan, decided) = (self.clone(), uri.to_string(), plan.clone(), decided.clone());
        tokio::spawn(async move {
            let compared = candidate.compare(&decided, &plan, &this.counts).await;
            this.record(|| Recorded::new(&uri, &plan, &decided, Some(compared)));
            drop(place);
        });
    }

    fn record(&self, recorded: impl FnOnce() -> Recorded) {
        if let Some(recorder) = &self.recorder {
            recorder.keep(recorded());
        }
    }

    /// Waits until what was noted is written.
    pub async fn flush(&self) {
        // All places: nobody is being asked any more.
        let asked = self.shadows.acquire_many(SHADOWS_MAX as u32).await;
        if let Some(recorder) = &self.recorder {
            recorder.flush().await;
        }
        drop(asked);
    }

    /// Loads a plugin from its file, and keeps it for later.
    ///
    /// # Errors
    /// Those of [`Plugin::load`].
    pub async fn load(&self, source: &Source) -> Result<Arc<Plugin>> {
        let loaded = Plugin::load(source, &self.choice.config).await;
        let plugin = Arc::new(loaded.inspect_err(|_| self.counts.add(Count::NotLoaded))?);
        self.keep(&plugin).await;
        Ok(plugin)
    }

    /// Keeps a plugin's file, so that what it decides can be derived again.
    pub async fn keep(&self, plugin: &Arc<Plugin>) {
        if let Some(recorder) = &self.recorder {
            recorder.keep_plugin(plugin.clone()).await;
        }
    }

    /// Records that nobody could write fast enough, or that were too large.
    pub fn lost_records(&self) -> u64 {
        self.recorder.as_ref().map_or(0, Recorder::lost)
    }

    /// The planner that decides.
    pub fn active(&self) -> Planner {
        self.slots().active
    }

    /// The candidate.
    pub fn shadow(&self) -> Option<Arc<Shadow>> {
        self.slots().shadow
    }

    /// What can be gone back to, the newest first.
    pub fn before(&self) -> Vec<Planner> {
        self.slots().before.into_iter().rev().collect()
    }

    /// From now on this one decides.
    pub fn switch(&self, to: Planner) {
        let mut slots = self.slots.write().unwrap_or_else(|e| e.into_inner());
        if slots.active.id() == to.id() {
            return;
        }
        let from = std::mem::replace(&mut slots.active, to);
        tracing::warn!(from = from.name(), to = slots.active.name(), "another policy decides from now on");
        slots.before.retain(|planner| planner.id() != from.id());
        slots.before.push_back(from);
        if slots.before.len() > HISTORY_MAX {
            slots.before.pop_front();
        }
    }

    /// Goes back to what was active before.
    ///
    /// # Errors
    /// `Invalid` where there is none.
    pub fn roll_back(&self) -> Result<Planner> {
        let mut slots = self.slots.write().unwrap_or_else(|e| e.into_inner());
        let to = slots.before.pop_back();
        let to = to.ok_or_else(|| Error::Invalid("no other policy was active before this one".into()))?;
        let from = std::mem::replace(&mut slots.active, to.clone());
        tracing::warn!(from = from.name(), to = to.name(), "rolled back to the policy before");
        Ok(to)
    }

    /// Asks this one too from now on, and compares; `None`: nobody.
    pub fn beside(&self, candidate: Option<Arc<Plugin>>) {
        let mut slots = self.slots.write().unwrap_or_else(|e| e.into_inner());
        slots.shadow = candidate.map(|plugin| Arc::new(Shadow::new(plugin)));
    }

    /// Makes the candidate the one that decides.
    ///
    /// # Errors
    /// `Invalid` where there is none, `Busy` until it has passed the gate, which `force` opens.
    pub fn promote(&self, force: bool) -> Result<Planner> {
        let shadow = self.shadow();
        let shadow = shadow.ok_or_else(|| Error::Invalid("there is no candidate to promote".into()))?;
        if !force && let Some(why) = shadow.kept_back(self.choice.gate) {
            return Err(Error::Busy(why));
        }
        let planner = Planner::Plugin(shadow.plugin.clone());
        self.beside(None);
        self.switch(planner.clone());
        Ok(planner)
    }

    fn slots(&self) -> Slots {
        self.slots.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn substitute(&self, active: &Planner, before: &VecDeque<Planner>) -> Planner {
        let good = |planner: &&Planner| match planner {
            Planner::Plugin(plugin) => planner.id() != active.id() && plugin.is_good(),
            Planner::BuiltIn => true,
        };
        let last = || before.iter().rev().find(good).cloned();
        (self.choice.fallback == Fallback::LastGood).then(last).flatten().unwrap_or(Planner::BuiltIn)
    }

    fn failed(&self, plugin: &Plugin, failed: &Failed, table: &str) {
        self.counts.add(Count::of_failure(failed.kind));
        if let Some(times) = plugin.failed(TELL_EVERY) {
            let (plugin, why) = (plugin.name(), &failed.why);
            tracing::error!(table, plugin, times, why, "the policy plugin gave no plan; another planner decides");
        }
    }
}

impl Failed {
    fn refused(violations: &[planner::check::Violation]) -> Self {
        let why: Vec<String> = violations.iter().take(8).map(ToString::to_string).collect();
        Self { kind: "bad_output", why: format!("its plan may not be carried out: {}", why.join("; ")) }
    }
}

impl From<host::PluginError> for Failed {
    fn from(error: host::PluginError) -> Self {
        use host::PluginError::{Abi, BadOutput, Deadline, Load, Memory, Refused, Trap};
        let kind = match &error {
            Deadline { .. } => "deadline",
            Memory { .. } => "memory",
            Trap { .. } => "trap",
            Refused { .. } => "refused",
            BadOutput { .. } => "bad_output",
            Load { .. } | Abi { .. } => "host",
        };
        Self { kind, why: error.to_string() }
    }
}

/// What a decision depends on beside the facts: SHA-256, hexadecimal.
fn digest(planner: &str, policy: &Policy, choice: &Choice) -> String {
    let policy = serde_json::to_string(policy).unwrap_or_default();
    let config = serde_json::Value::Object(choice.config.clone());
    hex(&Sha256::digest(format!("{planner}\n{policy}\n{config}")))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
