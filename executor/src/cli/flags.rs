//! A flag for every setting, and the settings that flags, environment and file make together.

use std::path::PathBuf;

use clap::{Arg, ArgMatches};

use super::SETTINGS;
use crate::error::{Error, Result};
use crate::settings::{self, CONFIG_ENV, Given, Key, Settings, Source};

pub(super) fn config_arg() -> Arg {
    Arg::new("config")
        .long("config")
        .env(CONFIG_ENV)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Settings file (TOML); `caretaker init-config` prints one")
}

pub(super) fn flag(key: Key) -> Arg {
    let default = match key.text(&Settings::default()) {
        none if none == "by command" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let zero = key.zero().map(|zero| format!(" 0: {zero}.")).unwrap_or_default();
    let arg = Arg::new(key.name()).long(key.flag()).value_name(key.value_name()).allow_hyphen_values(true);
    arg.help(format!("{}{zero}{default} [env: {}]", key.help(), key.env()))
        .hide_short_help(!key.name().starts_with("log_"))
        .help_heading(SETTINGS)
}

/// A flag that is known only to be refused with its new name.
pub(super) fn old(key: &'static str) -> Arg {
    Arg::new(key).long(key.replace('_', "-")).hide(true)
}

pub(super) fn from_flags(flags: Option<&ArgMatches>) -> Vec<Given> {
    let text = |key: &str| flags?.try_get_one::<String>(key).ok()?.cloned();
    let keys = settings::keys().map(Key::name).chain(settings::renamed());
    let given = keys.filter_map(|key| Some((key, text(key)?)));
    given.map(|(key, text)| Given { key: key.into(), text, source: Source::Flag(key.replace('_', "-")) }).collect()
}

pub(super) fn read_settings(path: &str) -> Result<Vec<Given>> {
    let content = std::fs::read_to_string(path)
        .map_err(|e| Error::Invalid(format!("can't read the settings file `{path}`: {e}")))?;
    settings::from_file(path, &content)
}

pub(super) fn load(flags: Option<&ArgMatches>) -> Result<Settings> {
    let config = flags.and_then(|flags| flags.try_get_one::<PathBuf>("config").ok().flatten());
    let file = config.map(|path| read_settings(&path.to_string_lossy())).transpose()?.unwrap_or_default();
    let env = settings::from_env(|name| std::env::var_os(name))?;
    Settings::resolve([file, env, from_flags(flags)].concat())
}

/// The settings of a policy's file alone, with flags on top; without a file, those that there are.
pub(super) fn of_policy(file: Option<&str>, flags: Option<&ArgMatches>) -> Result<Settings> {
    match file {
        Some(file) => Settings::resolve([read_settings(file)?, from_flags(flags)].concat()),
        None => load(flags),
    }
}
