//! Where the registry lies, and what a process may take of its jobs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::Settings;
use crate::error::{Error, Result};
use crate::registry::Place;
use crate::serve::{Door, Keys, tls};
use crate::tend::STALL;
use crate::worker::Limits;

/// Folds that a process without remote maintenance runs at once (R2.6).
const OWN_PASSES: usize = 2;
/// Memory of the machine that is left to others, as its divisor.
const MEMORY_SHARE: u64 = 2;

/// Where what a restart must not forget lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateDir {
    /// Where this user's programs keep their state.
    Auto,
    /// Nowhere.
    None,
    /// A folder.
    Path(PathBuf),
}

/// What a process takes of the registry's jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Jobs at once; 0: none.
    pub jobs: usize,
    /// Memory of all of them; `None`: half of what this machine, or its container, has.
    pub memory_bytes: Option<u64>,
    /// Whether folds are anybody's (R2.6).
    pub remote: bool,
    /// A job that does nothing for so long is stopped; zero: never.
    pub stall: Duration,
}

/// To whom HTTP is answered, and how: files, which are read when it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// Keys.
    pub keys: Option<PathBuf>,
    /// Certificate.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub private: Option<PathBuf>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self { jobs: 8, memory_bytes: None, remote: true, stall: STALL }
    }
}

/// Memory of this machine, or of the container it is shut in, bytes.
fn memory() -> u64 {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let machine = system.total_memory();
    system.cgroup_limits().map_or(machine, |limits| limits.total_memory.min(machine))
}

impl Settings {
    /// Where and how HTTP is answered.
    ///
    /// # Errors
    /// `Invalid` where a file is not as it must be, and for half of a certificate.
    pub fn door(&self) -> Result<Option<Door>> {
        let Some(address) = self.listen else { return Ok(None) };
        let keys = self.http.keys.as_deref().map(Keys::read).transpose()?.unwrap_or_default();
        let tls = match (&self.http.certificate, &self.http.private) {
            (Some(certificate), Some(private)) => Some(tls(certificate, private)?),
            (None, None) => None,
            _ => return Err(Error::Invalid("tls_cert and tls_key go together: name both, or none".into())),
        };
        Ok(Some(Door { address, keys, tls }))
    }

    /// The limits of a worker. `serves`: it belongs to a process that also decides.
    pub fn limits(&self, serves: bool) -> Limits {
        let worker = &self.worker;
        Limits {
            jobs: worker.jobs,
            folds: usize::try_from(self.policy.concurrency).unwrap_or(usize::MAX),
            memory_bytes: worker.memory_bytes.unwrap_or_else(|| memory() / MEMORY_SHARE),
            own: if serves && !worker.remote { OWN_PASSES } else { 0 },
        }
    }

    /// Where the registry lies.
    ///
    /// # Errors
    /// `Invalid` where the environment names no place for it.
    pub fn place(&self, env: impl Fn(&str) -> Option<OsString>) -> Result<Place> {
        if let Some(address) = &self.registry {
            return Ok(Place::Postgres(address.clone()));
        }
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        match &self.state_dir {
            StateDir::None => Ok(Place::Memory),
            StateDir::Path(path) => Ok(Place::Folder(path.clone())),
            StateDir::Auto => {
                let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
                let state = state.ok_or_else(|| {
                    Error::Invalid(
                        "neither XDG_STATE_HOME nor HOME says where the job registry goes; name a folder with \
                         --state-dir, or `none` to forget it at the end"
                            .into(),
                    )
                })?;
                Ok(Place::Folder(state.join("caretaker")))
            }
        }
    }
}
