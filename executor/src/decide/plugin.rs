//! A plugin file: where it lies, whether it is the one that was meant, and how it behaves.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use host::{Limits, PluginPlanner};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::hex;
use crate::error::{Error, Result};

/// A plugin file, and the one that it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// SHA-256 of it, hexadecimal, where only this one is meant.
    pub sha256: Option<String>,
}

impl FromStr for Source {
    type Err = &'static str;

    /// `path`, or `path@sha256`.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let pinned = text.rsplit_once('@').filter(|(path, digest)| !path.is_empty() && is_sha256(digest));
        match pinned {
            Some((path, digest)) => Ok(Self { path: path.into(), sha256: Some(digest.to_ascii_lowercase()) }),
            None if text.is_empty() => Err("write none, or the path of a plugin, with @ and its SHA-256 to pin it"),
            None => Ok(Self { path: text.into(), sha256: None }),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.sha256.iter().map(|digest| format!("@{digest}")).collect::<String>();
        write!(f, "{}{digest}", self.path.display())
    }
}

/// Whether it is a digest as files are named by here.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A plugin that loads.
pub struct Plugin {
    /// What asks it.
    pub planner: PluginPlanner,
    /// SHA-256 of its file, hexadecimal.
    pub sha256: String,
    /// Its file, to be kept with the records of its decisions.
    pub bytes: Vec<u8>,
    good: AtomicU64,
    failed: Mutex<Failures>,
}

#[derive(Default)]
struct Failures {
    /// In a row.
    times: u64,
    told: Option<Instant>,
}

impl Plugin {
    /// Reads and compiles a file.
    ///
    /// # Errors
    /// `Invalid` where it can't be read, is no plugin, or is another than the one that is meant.
    pub async fn load(source: &Source, config: &Map<String, Value>) -> Result<Self> {
        let (source, config) = (source.clone(), config.clone());
        blocking(move || {
            let bytes = read(&source.path)?;
            if let Some(meant) = &source.sha256 {
                let found = hex(&Sha256::digest(&bytes));
                if found != *meant {
                    return Err(Error::Invalid(format!(
                        "`{}` is not the plugin that was meant: its SHA-256 is {found}, and not {meant}",
                        source.path.display()
                    )));
                }
            }
            Self::compile(&source.path.display().to_string(), bytes, config)
        })
        .await
    }

    /// Compiles one from its bytes.
    ///
    /// # Errors
    /// `Invalid` where it is no plugin.
    pub async fn of(name: &str, bytes: Vec<u8>, config: &Map<String, Value>) -> Result<Self> {
        let (name, config) = (name.to_string(), config.clone());
        blocking(move || Self::compile(&name, bytes, config)).await
    }

    fn compile(name: &str, bytes: Vec<u8>, config: Map<String, Value>) -> Result<Self> {
        let planner = PluginPlanner::compile(name, &bytes, Limits::default());
        let planner = planner.map_err(|e| Error::Invalid(e.to_string()))?.with_config(config);
        let sha256 = planner.sha256();
        Ok(Self { planner, sha256, bytes, good: AtomicU64::new(0), failed: Mutex::default() })
    }

    /// Its own name and version, and the beginning of its digest.
    pub fn name(&self) -> String {
        let described = self.planner.description();
        let short: String = self.sha256.chars().take(12).collect();
        format!("{} {} ({short})", described.name, described.version)
    }

    pub(super) fn worked(&self) {
        self.good.fetch_add(1, Ordering::Relaxed);
        let mut failed = self.failed.lock().unwrap_or_else(|e| e.into_inner());
        if std::mem::take(&mut failed.times) > 0 {
            failed.told = None;
            tracing::info!(plugin = self.name(), "the policy plugin plans again");
        }
    }

    /// How often it failed in a row, where it is time to tell of it.
    pub(super) fn failed(&self, tell_every: Duration) -> Option<u64> {
        let mut failed = self.failed.lock().unwrap_or_else(|e| e.into_inner());
        failed.times += 1;
        let due = failed.told.is_none_or(|told| told.elapsed() >= tell_every);
        due.then(|| {
            failed.told = Some(Instant::now());
            failed.times
        })
    }

    /// Whether it has planned, and did so when it was asked last.
    pub(super) fn is_good(&self) -> bool {
        let failing = self.failed.lock().unwrap_or_else(|e| e.into_inner()).times > 0;
        !failing && self.good.load(Ordering::Relaxed) > 0
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Reads a file, and no more of it than a plugin may have.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let most = Limits::default().file_bytes;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|e| Error::Invalid(format!("the plugin `{}` can't be read: {e}", path.display())))?;
    if bytes.len() as u64 > most {
        return Err(Error::Invalid(format!("`{}` is larger than a plugin may be: {most} bytes", path.display())));
    }
    Ok(bytes)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|died| Err(Error::Fatal(format!("loading a plugin: {died}"))))
}
