//! Flags over environment over file over defaults, and whose word each value is.
//!
//! A setting is a knob of the planner's [`KNOBS`] or one of [`OWN`]. Either way it has one key, and
//! its names in every source follow from that.

mod own;
mod place;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;

use planner::policy::{KNOBS, Knob, Policy, Unit};
use toml::de::{DeTable, DeValue};

pub use self::own::{OWN, Own};
pub use self::place::{HttpSettings, StateDir, WorkerSettings};
use crate::decide::Choice;
use crate::error::{Error, Result};
use crate::pod::Bounds;

/// Environment name of the settings file's path.
pub const CONFIG_ENV: &str = "CARETAKER_CONFIG";
/// Settings that have another name now: refused with it, by the old key and its environment name.
const RENAMED: &[(&str, &str, &str)] =
    &[("sweep_interval_secs", "CARETAKER_SWEEP_INTERVAL_SECS", "agent_sweep_interval_secs")];

/// Everything a deployment may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the planner decides by.
    pub policy: Policy,
    /// Tables whose jobs run at once.
    pub tables_at_once: usize,
    /// The folder of what a restart must not forget.
    pub state_dir: StateDir,
    /// The registry's address, where it is not a file in the state folder.
    pub registry: Option<String>,
    /// What this process may take of the registry's jobs.
    pub worker: WorkerSettings,
    /// Where shard writers are slowed down, and refused.
    pub pod: Bounds,
    /// Who decides.
    pub choice: Choice,
    /// Where HTTP is answered; `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// To whom, and how.
    pub http: HttpSettings,
    /// What is logged; `None` leaves it to the command.
    pub log_level: Option<String>,
    /// How it is logged.
    pub log_format: LogFormat,
    sources: BTreeMap<&'static str, Source>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Who set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody.
    Default,
    /// A line of a settings file.
    File {
        /// The file, as it was named.
        path: String,
        /// Line, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Env(String),
    /// A flag, without its dashes.
    Flag(String),
}

/// A value as a source gives it, not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Settings key.
    pub key: String,
    /// Value.
    pub text: String,
    /// Where it stands.
    pub source: Source,
}

/// One setting, whoever it belongs to.
#[derive(Clone, Copy)]
pub enum Key {
    /// Of the planner.
    Knob(&'static Knob),
    /// Of the executor.
    Own(&'static Own),
}

/// Old keys of settings that have another name now.
pub fn renamed() -> impl Iterator<Item = &'static str> {
    RENAMED.iter().map(|(old, _, _)| *old)
}

/// Every setting.
pub fn keys() -> impl Iterator<Item = Key> {
    KNOBS.iter().map(Key::Knob).chain(OWN.iter().map(Key::Own))
}

impl Key {
    /// Key in the settings file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Knob(knob) => knob.key,
            Self::Own(own) => own.key,
        }
    }

    /// Name in the environment.
    pub fn env(self) -> String {
        match self {
            Self::Knob(knob) => knob.env(),
            Self::Own(own) => own.env.into(),
        }
    }

    /// Long flag, without its dashes.
    pub fn flag(self) -> String {
        self.name().replace('_', "-")
    }

    /// What a value is called in the help text.
    pub fn value_name(self) -> &'static str {
        match self {
            Self::Knob(knob) => match knob.unit {
                Unit::Count => "COUNT",
                Unit::Bytes => "BYTES",
                Unit::Seconds => "SECONDS",
            },
            Self::Own(own) => own.value_name,
        }
    }

    /// One sentence or two for people.
    pub fn help(self) -> &'static str {
        match self {
            Self::Knob(knob) => knob.help,
            Self::Own(own) => own.help,
        }
    }

    /// What 0 means, where 0 is allowed.
    pub fn zero(self) -> Option<&'static str> {
        match self {
            Self::Knob(knob) => knob.zero,
            Self::Own(_) => None,
        }
    }

    /// The value in `settings`, as every source may write it.
    pub fn text(self, settings: &Settings) -> String {
        match self {
            Self::Knob(knob) => knob.text(&settings.policy),
            Self::Own(own) => (own.text)(settings),
        }
    }

    fn set(self, settings: &mut Settings, text: &str) -> std::result::Result<(), String> {
        match self {
            Self::Knob(knob) => settings.policy.set(knob.key, text).map_err(|refused| refused.why),
            Self::Own(own) => (own.set)(settings, text).map_err(|right| {
                // What stands before an `@` may be a password.
                let shown = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
                format!("`{shown}` is not understood; {right}")
            }),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { path, line } => write!(f, "{path}, line {line}"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag --{name}"),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            tables_at_once: 8,
            state_dir: StateDir::Auto,
            registry: None,
            worker: WorkerSettings::default(),
            pod: Bounds::default(),
            choice: Choice::default(),
            listen: None,
            http: HttpSettings::default(),
            log_level: None,
            log_format: LogFormat::Text,
            sources: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// The defaults with what is given on top; a later value wins over an earlier one.
    ///
    /// # Errors
    /// `Invalid` names every unknown key and impossible value with its source, also of values that
    /// another source overrides: they would bite on the day that one goes.
    pub fn resolve(given: impl IntoIterator<Item = Given>) -> Result<Self> {
        let (mut settings, mut refused) = (Self::default(), Vec::new());
        for Given { key, text, source } in given {
            let Some(known) = keys().find(|known| known.name() == key) else {
                refused.push(format!("`{key}` is not a setting{} ({source})", did_you_mean(&key)));
                continue;
            };
            match known.set(&mut settings, &text) {
                Ok(()) => drop(settings.sources.insert(known.name(), source)),
                Err(why) => refused.push(format!("`{key}`: {why} ({source})")),
            }
        }
        if refused.is_empty() { Ok(settings) } else { Err(Error::Invalid(refused.join("\n"))) }
    }

    /// Who set a value.
    pub fn source(&self, key: Key) -> &Source {
        self.sources.get(key.name()).unwrap_or(&Source::Default)
    }
}

/// What the environment gives.
///
/// # Errors
/// `Invalid` for a value that is not UTF-8.
pub fn from_env(get: impl Fn(&str) -> Option<OsString>) -> Result<Vec<Given>> {
    let names = keys().map(|key| (key.name(), key.env()));
    let names = names.chain(RENAMED.iter().map(|(key, env, _)| (*key, env.to_string())));
    let set = names.filter_map(|(key, env)| Some((key, get(&env)?, env)));
    set.map(|(key, value, env)| {
        let text = value.into_string();
        let text = text.map_err(|_| Error::Invalid(format!("environment {env}: the value is not UTF-8")))?;
        Ok(Given { key: key.into(), text, source: Source::Env(env) })
    })
    .collect()
}

/// What a settings file gives; `path` is for messages.
///
/// # Errors
/// `Invalid` for what is not TOML, and for values that no setting can have.
pub fn from_file(path: &str, content: &str) -> Result<Vec<Given>> {
    let table = DeTable::parse(content).map_err(|e| Error::Invalid(format!("`{path}` is not TOML: {e}")))?;
    let mut pairs: Vec<_> = table.get_ref().iter().collect();
    pairs.sort_by_key(|(key, _)| key.span().start);
    pairs
        .into_iter()
        .map(|(key, value)| {
            let line = content[..key.span().start.min(content.len())].matches('\n').count() + 1;
            let (key, source) = (key.get_ref(), Source::File { path: path.into(), line });
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => number.to_string(),
                other => {
                    let (kind, guess) = (other.type_str(), did_you_mean(key));
                    return Err(Error::Invalid(format!(
                        "`{key}`: a setting is a number or a string, not a {kind}{guess} ({source})"
                    )));
                }
            };
            Ok(Given { key: key.to_string(), text, source })
        })
        .collect()
}

/// Variables of the environment that look like a misspelt setting, each with what it may have meant.
/// Other programs own the environment too, so these are no errors.
pub fn misspelt(names: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    let known: Vec<String> = keys().map(Key::env).chain([CONFIG_ENV.to_string()]).collect();
    let near = |name: &String| nearest(name, known.iter().map(String::as_str)).map(str::to_string);
    let unknown = names.into_iter().filter(|name| name.len() > 8 && !known.contains(name));
    unknown.filter_map(|name| near(&name).map(|meant| (name, meant))).collect()
}

/// The one of `known` that `name` was probably meant to be.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = |other: &str| strsim::damerau_levenshtein(name, other);
    let (distance, other) = known.into_iter().map(|other| (far(other), other)).min()?;
    (distance <= 1 + name.len() / 8).then_some(other)
}

fn did_you_mean(key: &str) -> String {
    if let Some((_, _, now)) = RENAMED.iter().find(|(old, _, _)| *old == key) {
        return format!("; it is called `{now}` now");
    }
    match nearest(&key.to_ascii_lowercase().replace('-', "_"), keys().map(Key::name)) {
        Some(known) if known != key => format!("; did you mean `{known}`?"),
        Some(_) => String::new(),
        None => "; `caretaker init-config` lists them all".into(),
    }
}

/// The reference: every setting with its default, as a settings file.
pub fn reference() -> String {
    let settings = Settings::default();
    let mut out = settings.policy.to_toml();
    for own in OWN {
        let key = Key::Own(own);
        out += &format!("\n# {}\n# Environment {}, flag --{}.\n", own.help, own.env, key.flag());
        let shown = if own.key == "log_level" {
            out += "# An example, since the default depends on the command:\n";
            "warn".into()
        } else {
            key.text(&settings)
        };
        let plain = shown.bytes().all(|b| b.is_ascii_digit());
        let quote = if plain { "" } else { "\"" };
        out += &format!("# {} = {quote}{shown}{quote}\n", own.key);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Place;

    fn given(key: &str, text: &str, source: Source) -> Given {
        Given { key: key.into(), text: text.into(), source }
    }

    fn flag(key: &str, text: &str) -> Given {
        given(key, text, Source::Flag(key.replace('_', "-")))
    }

    fn env(pairs: &[(&str, &str)]) -> Vec<Given> {
        let get = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        from_env(get).expect("the test's environment is UTF-8")
    }

    fn refusal(given: impl IntoIterator<Item = Given>) -> String {
        Settings::resolve(given).expect_err("must be refused").to_string()
    }

    #[test]
    fn flags_win_over_the_environment_that_over_the_file_that_over_defaults() {
        let file = || {
            from_file("c.toml", "wal_compact_trigger_count = 5\nwal_compact_prefix_max = 6\ntables_at_once = 2")
                .unwrap()
        };
        let env = || env(&[("WAL_COMPACT_TRIGGER_COUNT", "7"), ("WAL_COMPACT_PREFIX_MAX", "8")]);
        let flags = || vec![flag("wal_compact_trigger_count", "9")];
        let settings = Settings::resolve([file(), env(), flags()].concat()).unwrap();
        let policy = &settings.policy;
        assert_eq!((policy.trigger_count, policy.prefix_max, settings.tables_at_once), (9, 8, 2));
        assert_eq!(policy.pass_bytes, Policy::default().pass_bytes);
        let source = |key: &str| keys().find(|k| k.name() == key).map(|k| settings.source(k).to_string()).unwrap();
        assert_eq!(source("wal_compact_trigger_count"), "flag --wal-compact-trigger-count");
        assert_eq!(source("wal_compact_prefix_max"), "environment WAL_COMPACT_PREFIX_MAX");
        assert_eq!(source("tables_at_once"), "c.toml, line 3");
        assert_eq!(source("compact_pass_target_bytes"), "default");
    }

    #[test]
    fn an_impossible_value_is_refused_by_name_with_its_source() {
        for bad in ["-1", "0", "4 ", " 4", "", "4.5", "1e3", "99999999999999999999999", "four", "+4"] {
            let why = refusal(env(&[("WAL_COMPACT_TRIGGER_COUNT", bad)]));
            assert!(why.starts_with(&format!("`wal_compact_trigger_count`: `{bad}` ")), "{why}");
            assert!(why.ends_with("(environment WAL_COMPACT_TRIGGER_COUNT)"), "{why}");
            let why = refusal([flag("tables_at_once", bad)]);
            assert!(why.starts_with(&format!("`tables_at_once`: `{bad}` ")) && why.contains("flag --"), "{why}");
        }
    }

    #[test]
    fn a_setting_that_was_renamed_is_refused_with_its_new_name() {
        let both = [flag("sweep_interval_secs", "60"), env(&[("CARETAKER_SWEEP_INTERVAL_SECS", "60")]).remove(0)];
        for given in both {
            let why = refusal([given]);
            assert!(why.contains("it is called `agent_sweep_interval_secs` now"), "{why}");
        }
    }

    #[test]
    fn an_address_is_a_number_with_a_port() {
        for right in ["127.0.0.1:9650", "[::1]:0", "0.0.0.0:9650", "off"] {
            let settings = Settings::resolve([flag("listen", right)]).unwrap();
            assert_eq!(settings.listen.map_or("off".into(), |a| a.to_string()), right);
        }
        let local = Settings::resolve([flag("listen", "localhost:9650")]).unwrap().listen;
        assert_eq!(local.map(|address| address.to_string()).as_deref(), Some("127.0.0.1:9650"));
        for wrong in ["", "9650", "localhost", "localhost:http", "127.0.0.1"] {
            assert!(refusal([flag("listen", wrong)]).contains("write off, or an address"));
        }
    }

    #[test]
    fn the_registry_goes_where_the_users_state_goes_unless_a_folder_is_named() {
        let dir = |given: &str, env: &[(&str, &str)]| {
            let settings = Settings::resolve([flag("state_dir", given)]).unwrap();
            let get = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            settings.place(get).map_err(|e| e.to_string())
        };
        let folder = |path: &str| Ok(Place::Folder(path.into()));
        let home = ("HOME", "/home/a");
        assert_eq!(dir("auto", &[home, ("XDG_STATE_HOME", "/s")]), folder("/s/caretaker"));
        assert_eq!(dir("auto", &[home, ("XDG_STATE_HOME", "")]), folder("/home/a/.local/state/caretaker"));
        assert!(dir("auto", &[]).is_err_and(|why| why.contains("--state-dir")));
        assert_eq!((dir("none", &[]), dir("x/y", &[])), (Ok(Place::Memory), folder("x/y")));
    }

    #[test]
    fn a_value_is_refused_even_where_another_source_overrides_it() {
        let both = [env(&[("TABLES", "1"), ("CARETAKER_TABLES_AT_ONCE", "0")]), vec![flag("tables_at_once", "3")]];
        assert!(refusal(both.concat()).contains("environment CARETAKER_TABLES_AT_ONCE"));
    }

    #[test]
    fn an_address_that_is_refused_shows_no_password() {
        let why = refusal([flag("registry", "mysql://me:secret@h/db")]);
        assert!(why.contains("`h/db` is not understood") && !why.contains("secret"), "{why}");
    }

    #[test]
    fn every_refusal_is_told_at_once() {
        let why = refusal([flag("tables_at_once", "0"), flag("log_format", "xml"), flag("log_level", "loud,=")]);
        assert_eq!(why.lines().count(), 3, "{why}");
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let file =
            from_file("c.toml", "\nwal_compact_triger_count = 5\nwal-compact-prefix-max = 5\ncolour = 1").unwrap();
        let why = refusal(file);
        assert!(why.contains("`wal_compact_triger_count` is not a setting; did you mean `wal_compact_trigger_count`? (c.toml, line 2)"), "{why}");
        assert!(why.contains("did you mean `wal_compact_prefix_max`?"), "{why}");
        assert!(
            why.contains("`colour` is not a setting; `caretaker init-config` lists them all (c.toml, line 4)"),
            "{why}"
        );
    }

    #[test]
    fn a_file_holds_numbers_and_strings_only() {
        for bad in ["1.5", "true", "[1]", "{ a = 1 }", "2026-01-01"] {
            let why = from_file("c.toml", &format!("tables_at_once = {bad}")).expect_err(bad).to_string();
            assert!(why.starts_with("`tables_at_once`: ") && why.ends_with("(c.toml, line 1)"), "{why}");
        }
        let why = from_file("c.toml", "tables_at_once = 1\ntables_at_once = 2").expect_err("twice").to_string();
        assert!(why.contains("c.toml") && why.contains("duplicate key"), "{why}");
        let why = refusal(from_file("c.toml", "tables_at_once = 99999999999999999999999").unwrap());
        assert!(why.contains("99999999999999999999999"), "{why}");
    }

    #[test]
    fn the_reference_gives_the_defaults_whether_commented_or_not() {
        let text = reference();
        assert!(from_file("r.toml", &text).unwrap().is_empty(), "a reference changes nothing until it is edited");
        let is_value = |line: &&str| line.starts_with("# ") && line.contains(" = ");
        let live: Vec<&str> = text.lines().filter(is_value).map(|line| &line[2..]).collect();
        assert_eq!(live.len(), keys().count());
        let settings = Settings::resolve(from_file("r.toml", &live.join("\n")).unwrap()).unwrap();
        let default = Settings { log_level: Some("warn".into()), ..Settings::default() };
        assert_eq!(Settings { sources: BTreeMap::new(), ..settings }, default);
    }

    #[test]
    fn units_are_understood() {
        let settings =
            Settings::resolve([flag("agent_sweep_interval_secs", "10m"), flag("compact_pass_target_bytes", "1GiB")]);
        let settings = settings.unwrap();
        assert_eq!((settings.policy.agent.sweep_ms, settings.policy.pass_bytes), (600_000, 1 << 30));
        assert!(refusal([flag("agent_sweep_interval_secs", "366d")]).contains("365d"));
    }

    #[test]
    fn a_misspelt_variable_of_the_environment_is_noticed() {
        let names = ["WAL_COMPACT_TRIGER_COUNT", "WAL_COMPACT_TRIGGER_COUNT", "PATH", "RUST_BACKTRACE", "LOGNAME"];
        let found = misspelt(names.map(String::from));
        assert_eq!(found, [("WAL_COMPACT_TRIGER_COUNT".to_string(), "WAL_COMPACT_TRIGGER_COUNT".to_string())]);
    }
}
