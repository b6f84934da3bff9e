//! Settings of the executor itself.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use crate::decide::{Fallback, Source};

use super::{LogFormat, Settings, StateDir};

/// A setting that is no policy knob.
pub struct Own {
    pub(super) key: &'static str,
    pub(super) env: &'static str,
    pub(super) value_name: &'static str,
    pub(super) help: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> std::result::Result<(), &'static str>,
    pub(super) text: fn(&Settings) -> String,
}

/// Settings of the executor itself, in the order the reference lists them.
pub const OWN: &[Own] = &[
    Own {
        key: "tables_at_once",
        env: "CARETAKER_TABLES_AT_ONCE",
        value_name: "COUNT",
        help: "Tables that one command works on, or looks at, at the same time. 1 to 1024.",
        set: |s, text| {
            s.tables_at_once = small(number(text, 1024)).ok_or("write a whole number from 1 to 1024")?;
            Ok(())
        },
        text: |s| s.tables_at_once.to_string(),
    },
    Own {
        key: "state_dir",
        env: "CARETAKER_STATE_DIR",
        value_name: "DIR",
        help: "Folder of the job registry, which a restart must not forget: auto ($XDG_STATE_HOME/caretaker, or \
               ~/.local/state/caretaker), none (only in memory), or a path.",
        set: |s, text| {
            s.state_dir = match text {
                "" => return Err("write auto, none or the path of a folder"),
                "auto" => StateDir::Auto,
                "none" => StateDir::None,
                path => StateDir::Path(path.into()),
            };
            Ok(())
        },
        text: |s| match &s.state_dir {
            StateDir::Auto => "auto".into(),
            StateDir::None => "none".into(),
            StateDir::Path(path) => path.display().to_string(),
        },
    },
    Own {
        key: "registry",
        env: "CARETAKER_REGISTRY",
        value_name: "URL",
        help: "Job registry of a fleet: postgres://user@host:5432/database, or file (an SQLite file in the state \
               folder). Every process of the fleet names the same one. A password is best left to the environment \
               (PGPASSWORD) or to ~/.pgpass.",
        set: |s, text| {
            s.registry = match text {
                "file" => None,
                url if url.starts_with("postgres://") || url.starts_with("postgresql://") => Some(url.into()),
                _ => return Err("write file, or an address such as postgres://user@host:5432/database"),
            };
            Ok(())
        },
        text: |s| s.registry.as_deref().map_or_else(|| "file".into(), crate::registry::shown),
    },
    Own {
        key: "worker_jobs",
        env: "CARETAKER_WORKER_JOBS",
        value_name: "COUNT",
        help: "Jobs that this process runs at the same time, as `serve` or `worker`. 0 to 1024; 0: none, it only decides.",
        set: |s, text| {
            let count = if text == "0" { Some(0) } else { number(text, 1024) };
            s.worker.jobs = small(count).ok_or("write a whole number from 0 to 1024")?;
            Ok(())
        },
        text: |s| s.worker.jobs.to_string(),
    },
    Own {
        key: "worker_memory_bytes",
        env: "CARETAKER_WORKER_MEMORY_BYTES",
        value_name: "BYTES",
        help: "Memory of all jobs that this process runs: it takes none that needs more than is left. auto is half of \
               what the machine, or its container, has.",
        set: |s, text| {
            const RIGHT: &str = "write auto, or a size such as 8GiB";
            s.worker.memory_bytes = match text {
                "auto" => None,
                text => Some(bytes(text).ok_or(RIGHT)?),
            };
            Ok(())
        },
        text: |s| s.worker.memory_bytes.map_or_else(|| "auto".into(), |bytes| bytes.to_string()),
    },
    Own {
        key: "remote_maintenance",
        env: "CARETAKER_REMOTE_MAINTENANCE",
        value_name: "SWITCH",
        help: "on: folds are jobs for any worker of the registry. off: `serve` runs those of its tables itself, at most \
               2 at once, and they share one byte budget (R2.6).",
        set: |s, text| {
            s.worker.remote = match text {
                "on" | "true" | "1" => true,
                "off" | "false" | "0" => false,
                _ => return Err("write on or off"),
            };
            Ok(())
        },
        text: |s| if s.worker.remote { "on".into() } else { "off".into() },
    },
    Own {
        key: "job_stall_secs",
        env: "CARETAKER_JOB_STALL_SECS",
        value_name: "SECONDS",
        help: "A job that does nothing for so long is stopped and has failed; three times as long where it can't tell how \
               far it is. It should be longer than the storage's own time-outs with all their retries. 60 to 86400; 0: \
               never.",
        set: |s, text| {
            let secs = if text == "0" { Some(0) } else { number(text, 86_400).filter(|secs| *secs >= 60) };
            s.worker.stall = Duration::from_secs(secs.ok_or("write 0, or a whole number from 60 to 86400")?);
            Ok(())
        },
        text: |s| s.worker.stall.as_secs().to_string(),
    },
    Own {
        key: "pod_memory_bytes",
        env: "CARETAKER_POD_MEMORY_BYTES",
        value_name: "BYTES",
        help: "Memory of all memtables of `serve`, into which clients write: from three quarters of it writes are slower, \
               and the largest memtable is flushed; at all of it they are refused (429). 16MiB to 1TiB.",
        set: |s, text| {
            let fits = |bytes: &u64| (16 << 20..=1 << 40).contains(bytes);
            s.pod.memory_bytes = bytes(text).filter(fits).ok_or("write a size from 16MiB to 1TiB, such as 2GiB")?;
            Ok(())
        },
        text: |s| s.pod.memory_bytes.to_string(),
    },
    Own {
        key: "pod_slow_sstables",
        env: "CARETAKER_POD_SLOW_SSTABLES",
        value_name: "COUNT",
        help: "SSTables of a shard that are not folded, from which on writes to it are slower. 1 to 100000.",
        set: |s, text| {
            s.pod.slow_sstables = number(text, 100_000).ok_or("write a whole number from 1 to 100000")?;
            Ok(())
        },
        text: |s| s.pod.slow_sstables.to_string(),
    },
    Own {
        key: "pod_stop_sstables",
        env: "CARETAKER_POD_STOP_SSTABLES",
        value_name: "COUNT",
        help: "SSTables of a shard that are not folded, from which on writes that would make another are refused (429). 1 \
               to 100000.",
        set: |s, text| {
            s.pod.stop_sstables = number(text, 100_000).ok_or("write a whole number from 1 to 100000")?;
            Ok(())
        },
        text: |s| s.pod.stop_sstables.to_string(),
    },
    Own {
        key: "policy_plugin",
        env: "CARETAKER_POLICY_PLUGIN",
        value_name: "FILE[@SHA256]",
        help: "Plugin that decides in place of the built-in planner, read again when its file changes, or none. With its \
               SHA-256 behind an @ only that very file is taken.",
        set: |s, text| plugin(&mut s.choice.plugin, text),
        text: |s| s.choice.plugin.as_ref().map_or_else(|| "none".into(), ToString::to_string),
    },
    Own {
        key: "policy_shadow",
        env: "CARETAKER_POLICY_SHADOW",
        value_name: "FILE[@SHA256]",
        help: "Candidate: a plugin that is asked what the active planner is asked, and compared with it (`caretaker \
               policy diff`); nothing that it says is done. Or none.",
        set: |s, text| plugin(&mut s.choice.shadow, text),
        text: |s| s.choice.shadow.as_ref().map_or_else(|| "none".into(), ToString::to_string),
    },
    Own {
        key: "policy_config",
        env: "CARETAKER_POLICY_CONFIG",
        value_name: "JSON",
        help: "Settings of the plugin's own, as its description says: a JSON object.",
        set: |s, text| {
            let config = serde_json::from_str(text);
            s.choice.config = config.map_err(|_| "write a JSON object, such as {\"windows\": 3}")?;
            Ok(())
        },
        text: |s| serde_json::Value::Object(s.choice.config.clone()).to_string(),
    },
    Own {
        key: "policy_fallback",
        env: "CARETAKER_POLICY_FALLBACK",
        value_name: "WHO",
        help: "Who decides where the plugin fails: last-good (the plugin before it, if that planned well, else the built-in \
               planner) or built-in.",
        set: |s, text| {
            s.choice.fallback = match text {
                "last-good" => Fallback::LastGood,
                "built-in" => Fallback::BuiltIn,
                _ => return Err("write last-good or built-in"),
            };
            Ok(())
        },
        text: |s| if s.choice.fallback == Fallback::BuiltIn { "built-in".into() } else { "last-good".into() },
    },
    Own {
        key: "policy_gate",
        env: "CARETAKER_POLICY_GATE",
        value_name: "COUNT",
        help: "Evaluations that a candidate must have been compared in, with a plan for each of them, until it may be \
               promoted. 1 to 1000000.",
        set: |s, text| {
            s.choice.gate = number(text, 1_000_000).ok_or("write a whole number from 1 to 1000000")?;
            Ok(())
        },
        text: |s| s.choice.gate.to_string(),
    },
    Own {
        key: "decision_record_bytes",
        env: "CARETAKER_DECISION_RECORD_BYTES",
        value_name: "BYTES",
        help: "Room in the job registry for what was decided and from what (`caretaker policy replay`, `backtest`); the \
               oldest goes first. 0: nothing is recorded. To 1TiB.",
        set: |s, text| {
            let size = if text == "0" { Some(0) } else { bytes(text).filter(|bytes| *bytes <= 1 << 40) };
            s.choice.record_bytes = size.ok_or("write 0, or a size up to 1TiB, such as 256MiB")?;
            Ok(())
        },
        text: |s| s.choice.record_bytes.to_string(),
    },
    Own {
        key: "listen",
        env: "CARETAKER_LISTEN",
        value_name: "ADDRESS",
        help: "Address of this machine at which `serve` and `worker` answer HTTP, such as 127.0.0.1:9650 \
               (localhost:9650 is the same), or off; Flight SQL is answered one port above. One that others can \
               reach needs api_keys.",
        set: |s, text| {
            const RIGHT: &str = "write off, or an address with its port, such as 127.0.0.1:9650 or [::]:9650";
            s.listen = match text.strip_prefix("localhost:") {
                // Where else its name leads is a matter of this machine's files; here it is one address.
                Some(port) => Some((Ipv4Addr::LOCALHOST, port.parse().map_err(|_| RIGHT)?).into()),
                None if text == "off" => None,
                None => Some(text.parse().map_err(|_| RIGHT)?),
            };
            Ok(())
        },
        text: |s| s.listen.map_or_else(|| "off".into(), |address| address.to_string()),
    },
    Own {
        key: "api_keys",
        env: "CARETAKER_API_KEYS",
        value_name: "FILE",
        help: "File of the keys that HTTP asks for in `x-api-key` (`caretaker new-key NAME` makes one), or none: nobody \
               is asked, and only a loopback address is listened at.",
        set: |s, text| file(&mut s.http.keys, text),
        text: |s| shown(&s.http.keys),
    },
    Own {
        key: "tls_cert",
        env: "CARETAKER_TLS_CERT",
        value_name: "FILE",
        help: "Certificate of HTTP with those that vouch for it, PEM, or none: it is not encrypted.",
        set: |s, text| file(&mut s.http.certificate, text),
        text: |s| shown(&s.http.certificate),
    },
    Own {
        key: "tls_key",
        env: "CARETAKER_TLS_KEY",
        value_name: "FILE",
        help: "Private key of the certificate, PEM.",
        set: |s, text| file(&mut s.http.private, text),
        text: |s| shown(&s.http.private),
    },
    Own {
        key: "log_level",
        env: "RUST_LOG",
        value_name: "LEVEL",
        help: "What is logged: off, error, warn, info, debug, trace, or directives (`warn,executor=debug`). Default: \
               errors, and warnings of Caretaker itself; for `serve` warnings, and info of Caretaker itself.",
        set: |s, text| {
            let whole = !text.is_empty() && !text.contains(char::is_whitespace);
            if !whole || EnvFilter::try_new(text).is_err() {
                return Err("write off, error, warn, info, debug, trace, or directives such as `warn,executor=debug`");
            }
            s.log_level = Some(text.to_string());
            Ok(())
        },
        text: |s| s.log_level.clone().unwrap_or_else(|| "by command".into()),
    },
    Own {
        key: "log_format",
        env: "CARETAKER_LOG_FORMAT",
        value_name: "FORMAT",
        help: "How log lines look: text, or json (one object a line).",
        set: |s, text| {
            s.log_format = match text {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err("write text or json"),
            };
            Ok(())
        },
        text: |s| if s.log_format == LogFormat::Json { "json".into() } else { "text".into() },
    },
];

fn file(to: &mut Option<PathBuf>, text: &str) -> std::result::Result<(), &'static str> {
    *to = match text {
        "" => return Err("write none, or the path of a file"),
        "none" => None,
        path => Some(path.into()),
    };
    Ok(())
}

fn plugin(to: &mut Option<Source>, text: &str) -> std::result::Result<(), &'static str> {
    *to = if text == "none" { None } else { Some(text.parse()?) };
    Ok(())
}

fn shown(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "none".into(), |path| path.display().to_string())
}

fn small(number: Option<u64>) -> Option<usize> {
    number.and_then(|n| usize::try_from(n).ok())
}

/// A whole number with or without one of the binary units.
fn bytes(text: &str) -> Option<u64> {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("", 0)];
    let (number, shift) = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    self::number(number, u64::MAX >> shift).map(|n| n << shift)
}

/// A whole number from 1 to `max`.
fn number(text: &str, max: u64) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = plain.then(|| text.parse().ok())??;
    (1..=max).contains(&number).then_some(number)
}
