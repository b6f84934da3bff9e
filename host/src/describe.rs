//! What a plugin says of itself, read once when it is loaded.

use planner::wire::{ABI, Description};
use serde::Deserialize;

use crate::error::PluginError;

/// The one request that needs nothing.
pub(crate) const REQUEST: &[u8] = br#"{"op":"describe"}"#;

/// Most characters of a name and of a version: both go to logs and metrics.
const NAME_CHARS_MAX: usize = 64;

/// What every planner must answer.
const OPS: [&str; 2] = ["describe", "plan_table"];

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(Description),
    Error { message: String },
}

/// The version of the ABI is read before all else, since another one may describe itself otherwise.
#[derive(Deserialize)]
struct Abi {
    ok: AbiOnly,
}

#[derive(Deserialize)]
struct AbiOnly {
    abi: String,
}

pub(crate) fn read(plugin: &str, answer: &[u8]) -> Result<Description, PluginError> {
    let refuse = |why: String| PluginError::Load { plugin: plugin.into(), why };
    if let Ok(Abi { ok }) = serde_json::from_slice(answer) {
        same_abi(plugin, &ok.abi)?;
    }
    let described = match serde_json::from_slice(answer) {
        Ok(Answer::Ok(described)) => described,
        Ok(Answer::Error { message }) => return Err(refuse(format!("it does not describe itself: {message}"))),
        Err(e) => return Err(refuse(format!("its description is none: {e}"))),
    };
    for (what, text) in [("name", &described.name), ("version", &described.version)] {
        if text.is_empty() || text.chars().count() > NAME_CHARS_MAX || text.chars().any(char::is_control) {
            return Err(refuse(format!("its {what} is not 1 to {NAME_CHARS_MAX} visible characters")));
        }
    }
    if !described.encodings.iter().any(|encoding| encoding == "json") {
        return Err(refuse(format!("it takes {:?}, but not `json`", described.encodings)));
    }
    if let Some(missing) = OPS.iter().find(|op| !described.ops.iter().any(|own| own == *op)) {
        return Err(refuse(format!("it does not answer `{missing}`")));
    }
    Ok(described)
}

/// # Errors
/// [`PluginError::Abi`] for every other.
pub(crate) fn same_abi(plugin: &str, found: &str) -> Result<(), PluginError> {
    if found == ABI {
        return Ok(());
    }
    let found = found.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
    Err(PluginError::Abi { plugin: plugin.into(), found, served: ABI })
}
