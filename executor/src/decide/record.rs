//! Every decision, with what it was made from: written to the registry by one task, a batch at a time.
//!
//! Recording keeps nobody waiting and fails no decision. What can't be written fast enough, or is too large, is
//! counted and gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use planner::facts::TableFacts;
use planner::plan::{Plan, Trigger};
use planner::policy::Policy;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};

use super::{Compared, Decided, Difference, Plugin, hex};
use crate::error::{Error, Result};
use crate::registry::{Decision, Registry};

/// Decisions that wait to be written, and that are written at once.
const QUEUE_MAX: usize = 1_024;
const BATCH_MAX: usize = 64;
/// Fragments and SSTables of the largest table whose decisions are recorded, and bytes of one record.
const THINGS_MAX: usize = 50_000;
const RECORD_BYTES_MAX: usize = 4 << 20;
/// What a record may be unpacked to.
const UNPACKED_BYTES_MAX: usize = 256 << 20;
/// How often the oldest are looked for that are too many.
const TRIM_EVERY: Duration = Duration::from_secs(30);
/// zstd's own default.
const LEVEL: i32 = 3;

/// A decision to be recorded.
pub struct Recorded {
    uri: String,
    plan: Plan,
    decided: Decided,
    compared: Option<Compared>,
}

/// What a record holds beside its row.
#[derive(Debug, Serialize, Deserialize)]
pub struct Body {
    /// What was known of the table.
    pub facts: TableFacts,
    /// The deployment's policy.
    pub policy: Policy,
    /// When, milliseconds since the epoch.
    pub now_ms: u64,
    /// Why.
    pub trigger: Trigger,
    /// The plugin's own settings.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// What followed.
    pub plan: Plan,
    /// Where the candidate would have done something else, or why it gave no plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<std::result::Result<Vec<Difference>, String>>,
}

/// Writes records.
#[derive(Clone)]
pub struct Recorder {
    notes: mpsc::Sender<Note>,
    lost: Arc<AtomicU64>,
}

enum Note {
    Keep(Box<Recorded>),
    Plugin(Arc<Plugin>),
    Flush(oneshot::Sender<()>),
}

impl Recorder {
    /// Begins to write records into `registry`, `bytes` of them at most; `config` is the plugins' own.
    pub fn start(registry: Registry, bytes: u64, config: Map<String, Value>) -> Self {
        let (notes, queue) = mpsc::channel(QUEUE_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        tokio::spawn(write(registry, bytes, config, queue, lost.clone()));
        Self { notes, lost }
    }

    pub(super) fn keep(&self, recorded: Recorded) {
        if recorded.is_large() || self.notes.try_send(Note::Keep(Box::new(recorded))).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) async fn keep_plugin(&self, plugin: Arc<Plugin>) {
        // The task ends with the process only.
        let _ = self.notes.send(Note::Plugin(plugin)).await;
    }

    pub(super) async fn flush(&self) {
        let (written, told) = oneshot::channel();
        if self.notes.send(Note::Flush(written)).await.is_ok() {
            let _ = told.await;
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

async fn write(
    registry: Registry,
    bytes: u64,
    config: Map<String, Value>,
    mut queue: mpsc::Receiver<Note>,
    lost: Arc<AtomicU64>,
) {
    let mut trimmed = Instant::now();
    let mut notes = Vec::with_capacity(BATCH_MAX);
    while queue.recv_many(&mut notes, BATCH_MAX).await > 0 {
        let (mut records, mut flushes) = (Vec::new(), Vec::new());
        for note in notes.drain(..) {
            match note {
                Note::Keep(recorded) => records.push(*recorded),
                Note::Flush(written) => flushes.push(written),
                Note::Plugin(plugin) => {
                    if let Err(error) = registry.keep_plugin(&plugin).await {
                        let plugin = plugin.name();
                        tracing::warn!(plugin, %error, "not kept: what it decides can't be derived again later");
                    }
                }
            }
        }
        let many = records.len() as u64;
        if let Err(error) = keep(&registry, records, &config).await {
            lost.fetch_add(many, Ordering::Relaxed);
            tracing::debug!(%error, "decisions are not recorded");
        }
        if trimmed.elapsed() >= TRIM_EVERY || !flushes.is_empty() {
            trimmed = Instant::now();
            if let Err(error) = registry.trim_decisions(bytes).await {
                tracing::debug!(%error, "old records of decisions stay a while");
            }
        }
        flushes.into_iter().for_each(|written| _ = written.send(()));
    }
}

async fn keep(registry: &Registry, records: Vec<Recorded>, config: &Map<String, Value>) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let config = config.clone();
    let pack = move || records.into_iter().filter_map(|record| record.pack(&config).transpose()).collect();
    let packed: Result<Vec<Decision>> =
        tokio::task::spawn_blocking(pack).await.unwrap_or_else(|died| Err(Error::Fatal(died.to_string())));
    registry.keep_decisions(&packed?).await
}

impl Recorded {
    pub(super) fn new(uri: &str, plan: &Plan, decided: &Decided, compared: Option<Compared>) -> Self {
        Self { uri: uri.into(), plan: plan.clone(), decided: decided.clone(), compared }
    }

    fn is_large(&self) -> bool {
        let facts = &self.decided.asked.facts;
        let sstables: usize = facts.shards.iter().map(|shard| shard.sstables.len()).sum();
        facts.fragments.as_ref().map_or(0, Vec::len) + sstables > THINGS_MAX
    }

    /// `None`: too large.
    fn pack(self, config: &Map<String, Value>) -> Result<Option<Decision>> {
        let Self { uri, plan, decided, compared } = self;
        let Decided { asked, planner, policy, fell_back, .. } = decided;
        let (candidate, candidate_said) = match compared {
            Some(Compared { sha256, said }) => {
                let word = match &said {
                    Ok(differences) if differences.is_empty() => "same",
                    Ok(_) => "differs",
                    Err(_) => "failed",
                };
                (Some((sha256, word.to_string())), Some(said))
            }
            None => (None, None),
        };
        let body = Body {
            facts: TableFacts::clone(&asked.facts),
            policy: asked.policy.clone(),
            now_ms: asked.now_ms,
            trigger: asked.trigger,
            config: config.clone(),
            plan,
            candidate: candidate_said,
        };
        let packed = serde_json::to_vec(&body).map_err(|e| Error::Fatal(format!("can't write JSON: {e}")))?;
        let packed = zstd::bulk::compress(&packed, LEVEL).map_err(|e| Error::Fatal(format!("zstd: {e}")))?;
        Ok((packed.len() <= RECORD_BYTES_MAX).then(|| Decision {
            id: String::new(),
            uri,
            table: body.facts.table.clone(),
            version: body.facts.version,
            at_ms: body.now_ms,
            jobs: body.plan.jobs().count() as u64,
            plan_sha256: digest(&body.plan),
            planner,
            policy,
            fell_back,
            candidate: candidate.as_ref().map(|(sha256, _)| sha256.clone()),
            candidate_said: candidate.map(|(_, said)| said),
            body: packed,
        }))
    }
}

/// What was recorded with a decision.
///
/// # Errors
/// `Fatal` where it is damaged, or of a version that this one can't read.
pub fn unpack(decision: &Decision) -> Result<Body> {
    let damaged = |why: String| Error::Fatal(format!("the record of decision `{}` can't be read: {why}", decision.id));
    let text = zstd::bulk::decompress(&decision.body, UNPACKED_BYTES_MAX).map_err(|e| damaged(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))
}

/// SHA-256 of a plan, hexadecimal: of its JSON, which is the same bytes for equal plans.
pub fn digest(plan: &Plan) -> String {
    hex(&Sha256::digest(serde_json::to_vec(plan).unwrap_or_default()))
}
