//! Who may ask for what. A key is known by its digest only: whoever reads the file can't use it.
//!
//! ```toml
//! [ops]
//! scope = "admin"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! ```

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Error, Result};

/// What a key begins with, so that a leaked one is recognized.
const PREFIX: &str = "ck_";
/// Keys in one file.
const KEYS_MAX: usize = 10_000;

/// Why a request is refused that names no key, and one whose key nobody knows.
pub(super) const NAMELESS: &str = "name a key in `x-api-key`, or as `authorization: Bearer`";
pub(super) const UNKNOWN: &str = "this key is not known here";

/// The key that comes with a request.
pub(super) fn key_of(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || text(AUTHORIZATION.as_str())?.split_once(' ').filter(|(how, _)| how.eq_ignore_ascii_case("bearer"));
    text("x-api-key").or_else(|| bearer().map(|(_, key)| key.trim()))
}

/// Why a request for a change is refused.
pub(super) fn may_only_look(who: &str) -> String {
    format!("the key of `{who}` may look and not change anything")
}

/// What a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Look.
    Read,
    /// Also change: evaluate, cancel, pause, resume.
    Admin,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    scope: Scope,
    sha256: String,
}

/// The keys that are let in; where there are none, nobody is asked for one.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    known: Arc<RwLock<Known>>,
    /// Where they were read.
    path: Option<PathBuf>,
}

/// Name, scope and digest of each key.
type Known = Vec<(String, Scope, [u8; 32])>;

impl Keys {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// `Invalid` names what in it is not as it must be.
    pub fn read(path: &Path) -> Result<Self> {
        let place = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::Invalid(format!("can't read the keys in `{place}`: {e}; name the file with --api-keys"))
        })?;
        let known = parse(&text).map_err(|why| Error::Invalid(format!("the keys in `{place}`: {why}")))?;
        Ok(Self { known: Arc::new(RwLock::new(known)), path: Some(path.into()) })
    }

    /// Reads the file again, for everybody who has these keys. Where that fails they stay as they were.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn reload(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let Self { known, .. } = Self::read(path)?;
        let known = known.read().unwrap_or_else(|e| e.into_inner()).clone();
        tracing::info!(keys = known.len(), "keys read again");
        *self.known.write().unwrap_or_else(|e| e.into_inner()) = known;
        Ok(())
    }

    /// Whether anybody is asked for a key.
    pub fn asks(&self) -> bool {
        !self.known.read().unwrap_or_else(|e| e.into_inner()).is_empty()
    }

    /// Whose key it is, and what it may do. Digests are compared, which tells nothing about a key by how
    /// long that takes.
    pub(super) fn who(&self, key: &str) -> Option<(String, Scope)> {
        let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let known = self.known.read().unwrap_or_else(|e| e.into_inner());
        known.iter().find(|(_, _, known)| *known == digest).map(|(name, scope, _)| (name.clone(), *scope))
    }
}

fn parse(text: &str) -> std::result::Result<Known, String> {
    let entries: BTreeMap<String, Entry> = toml::from_str(text).map_err(|e| e.to_string())?;
    if entries.is_empty() || entries.len() > KEYS_MAX {
        return Err(format!("{} keys; 1 to {KEYS_MAX} make sense (`caretaker new-key NAME` makes one)", entries.len()));
    }
    let keys = entries.into_iter().map(|(name, Entry { scope, sha256 })| match unhex(&sha256) {
        Some(digest) => Ok((name, scope, digest)),
        None => Err(format!("the `sha256` of `{name}` is not 64 hexadecimal digits")),
    });
    let keys: Vec<(String, Scope, [u8; 32])> = keys.collect::<std::result::Result<_, _>>()?;
    let mut known = HashMap::new();
    for (name, _, digest) in &keys {
        if let Some(other) = known.insert(digest, name) {
            return Err(format!("`{other}` and `{name}` are one key, of which nobody could tell what it may do"));
        }
    }
    Ok(keys)
}

/// A new key, and what belongs into the file for it.
pub fn new_key(name: &str, scope: Scope) -> Result<(String, String)> {
    let key = format!("{PREFIX}{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let sha256 = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let quoted = serde_json::to_string(name).map_err(|e| Error::Fatal(format!("can't write the name: {e}")))?;
    let Entry { scope, sha256 } = Entry { scope, sha256 };
    let word = if scope == Scope::Admin { "admin" } else { "read" };
    Ok((key, format!("[{quoted}]\nscope = \"{word}\"\nsha256 = \"{sha256}\"\n")))
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_known_by_what_was_written_for_it_and_no_other_is() {
        let (admin, first) = new_key("o\"ps", Scope::Admin).expect("made");
        let (read, second) = new_key("eyes", Scope::Read).expect("made");
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("keys.toml");
        std::fs::write(&file, format!("{first}\n{second}")).expect("written");
        let keys = Keys::read(&file).expect("both");
        let of = |name: &str, scope| Some((name.to_string(), scope));
        assert_eq!((keys.who(&admin), keys.who(&read)), (of("o\"ps", Scope::Admin), of("eyes", Scope::Read)));
        assert_eq!((keys.who(""), keys.who(&admin[1..]), keys.asks()), (None, None, true));
        assert!(!first.contains(&admin) && !Keys::default().asks());
    }

    #[test]
    fn a_file_that_lets_nobody_or_anybody_in_by_mistake_is_refused() {
        for (text, why) in [
            ("", "new-key"),
            ("[a]\nscope = \"root\"\nsha256 = \"00\"", "root"),
            ("[a]\nscope = \"read\"\nsha256 = \"00\"", "64 hexadecimal"),
            ("[a]\nscope = \"read\"\nkey = \"secret\"", "key"),
            (
                &["a", "b"]
                    .map(|name| format!("[{name}]\nscope = \"read\"\nsha256 = \"{}\"\n", "0".repeat(64)))
                    .concat(),
                "one key",
            ),
        ] {
            let refused = parse(text).expect_err("refused");
            assert!(refused.contains(why), "{refused}");
        }
    }
}
