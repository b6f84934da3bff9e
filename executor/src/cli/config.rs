//! `caretaker settings`, `init-config` and `completions`.

use std::collections::BTreeMap;

use super::out::{DIM, say, styled, write};
use super::{Exit, run};
use crate::error::Result;
use crate::serve::Scope;
use crate::settings::{Settings, keys, reference};
use crate::show::{Grid, Side};

/// Prints the reference settings file.
pub(super) fn init() -> Result<Exit> {
    write(reference().as_bytes())?;
    Ok(Exit::Done)
}

/// Prints a completion script.
pub(super) fn completions(shell: clap_complete::Shell) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "caretaker", &mut script);
    write(&script)?;
    Ok(Exit::Done)
}

/// Prints what counts, and who said so.
pub(super) fn settings(settings: &Settings, json: bool) -> Result<Exit> {
    if json {
        let shown = keys().map(|key| {
            let (value, source) = (key.text(settings), settings.source(key).to_string());
            (key.name(), serde_json::json!({ "value": value, "source": source }))
        });
        run::line(&shown.collect::<BTreeMap<_, _>>())?;
        return Ok(Exit::Done);
    }
    let mut grid = Grid::new([("setting", Side::Left), ("value", Side::Right), ("set by", Side::Left)]);
    for key in keys() {
        grid.row([key.name().into(), key.text(settings), settings.source(key).to_string()]);
    }
    let lines = grid.lines();
    if let Some((names, rows)) = lines.split_first() {
        say(styled(DIM, names))?;
        rows.iter().try_for_each(say)?;
    }
    let lints = settings.policy.lint();
    if !lints.is_empty() {
        say("")?;
    }
    lints.iter().try_for_each(|lint| say(format!("note: `{}`: {}", lint.key, lint.why)))?;
    Ok(Exit::Done)
}

/// Makes a key: it on its own line, so that a script can take it, then what goes into the file.
pub(super) fn new_key(name: &str, scope: &str, json: bool) -> Result<Exit> {
    let scope = if scope == "admin" { Scope::Admin } else { Scope::Read };
    let (key, entry) = crate::serve::new_key(name, scope)?;
    if json {
        super::run::line(&serde_json::json!({ "name": name, "key": key, "entry": entry }))?;
    } else {
        say(format!("{key}\n\n# The key is shown this once. Append this to the file of --api-keys:\n{entry}"))?;
    }
    Ok(Exit::Done)
}
