//! Logs go to standard error, at the level and in the format that the settings say.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::bars::Bars;
use crate::settings::{LogFormat, Settings, misspelt};

/// Level of a command that prints a result.
pub(super) const QUIET: &str = "error,executor=warn";
/// Level of a command that only logs.
pub(super) const TALKING: &str = "warn,executor=info";

/// Sets logging up for the whole process, and tells of settings that were probably not meant.
pub(super) fn start(settings: &Settings, level: &str, bars: Bars) {
    let level = settings.log_level.as_deref().unwrap_or(level);
    // Without the last line a closed standard error would end the process in the middle of a pass.
    let logs = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .with_writer(bars)
        .log_internal_errors(false);
    match settings.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    for (name, meant) in misspelt(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())) {
        tracing::warn!("environment variable {name} is no setting; did you mean {meant}?");
    }
}
