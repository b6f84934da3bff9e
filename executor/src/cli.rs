//! The command line.

mod bars;
mod cleanup;
mod compact;
mod config;
mod each;
mod facts;
mod flags;
mod jobs;
mod lint;
mod log;
mod out;
mod plan;
mod policy;
mod run;
mod serve;
mod simulate;
mod status;
mod vectors;
mod verify;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use lance::session::Session;
use planner::plan::Trigger;
use tokio_util::sync::CancellationToken;

use self::bars::Bars;
use self::flags::{config_arg, flag, load, of_policy, old};
use crate::catalog::Root;
use crate::decide::Decider;
use crate::error::{Error, Result};
use crate::registry::{Place, Registry};
use crate::settings::{self, Settings};
use crate::signal::{BY_INTERRUPT, BY_TERM};
use crate::tend::Tender;

/// Every exit code and what it says.
pub const EXITS: &[(u8, &str)] = &[
    (0, "done; also when another process did the work first (superseded)"),
    (1, "a table or a job failed; the others were tended"),
    (2, "wrong usage, settings or path; nothing was touched"),
    (3, "refused: a pass runs on the shard already; nothing was queued"),
    (BY_INTERRUPT, "interrupted by Ctrl-C; what was running has ended or is finished by the next run"),
    (BY_TERM, "the same by SIGTERM (`serve` ends with 0 when its passes could end)"),
];

const EXAMPLES: &str = "\
Examples:
  caretaker plan ./db                     what is due, and why; changes nothing
  caretaker status ./db                   how every table is, the worst first
  caretaker run ./db                      do it, until nothing is due
  caretaker serve s3://bucket/db          do it for ever
  caretaker jobs list --table docs        what its jobs do and did
  caretaker compact ./db/docs.lance       fold one table now, whatever the triggers say
  caretaker cleanup ./db/docs.lance --dry-run    who holds its space
  caretaker facts ./db/docs.lance --json > facts.json
  caretaker plan --facts facts.json --at 2026-12-24T18:00:00Z --wal-compact-trigger-count 2
  caretaker init-config > caretaker.toml";

/// Commands with a flag for every setting.
const WITH_SETTINGS: [&str; 14] = [
    "run", "serve", "worker", "plan", "status", "compact", "cleanup", "verify", "facts", "settings", "jobs", "sql",
    "policy", "simulate",
];
/// Bytes of a thread's stack, of which only what is used is there: an expression of a client is planned by functions
/// that call themselves for each of its operators.
pub(crate) const STACK: usize = 64 << 20;
const SETTINGS: &str = "Settings (a flag wins over the environment, that over the file, that over the default)";

/// Keeps Lance and LanceDB tables in good condition by itself.
///
/// Data that LanceDB writes through its LSM path (`set_lsm_write_spec`, `merge_insert`) piles up as SSTables under
/// `_mem_wal`. Caretaker folds them into the base table, extends the indexes over the new rows, and deletes what nothing
/// needs any more.
///
/// A ROOT is a database (a folder of `<name>.lance` tables) or a single table, as a local path or at s3://, gs://, az://.
#[derive(Parser)]
#[command(name = "caretaker", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Do everything that is due, until nothing is, and say what was done.
    Run(RunArgs),
    /// Do the same for ever: look at every table once a tick.
    Serve(ServeArgs),
    /// Run jobs of a registry that processes of `serve` fill.
    Worker(worker::WorkerArgs),
    /// Show the jobs of the registry, or stop, hold and release one.
    Jobs {
        #[command(subcommand)]
        command: jobs::JobsCommand,
    },
    /// The same as SQL: SHOW JOBS, SHOW JOB EVENTS, DESCRIBE JOB, CANCEL JOB, PAUSE JOB, RESUME JOB.
    #[command(after_long_help = jobs::STATEMENTS)]
    Sql(jobs::SqlArgs),
    /// Check a policy or a plugin, ask it about the past, or see where a candidate decides otherwise.
    Policy {
        #[command(subcommand)]
        command: policy::PolicyCommand,
    },
    /// Show what is due and why, and change nothing.
    Plan(PlanArgs),
    /// Show how every table is: one line each, the worst first.
    #[command(after_long_help = status::WORDS)]
    Status(status::StatusArgs),
    /// Fold a table now, whatever the triggers say.
    Compact(CompactArgs),
    /// Remove old versions of a table now, or show who holds its space.
    ///
    /// What is younger than --cleanup-min-version-age-secs stays, and so do tags, what branches need and the current
    /// version. The triggers don't count.
    Cleanup(cleanup::CleanupArgs),
    /// Ask each index of a table, compare with a full scan, and let a table go on whose answers a job changed.
    Verify(verify::VerifyArgs),
    /// Simulate what a policy would do with a workload, for days in a moment.
    Simulate(simulate::SimulateArgs),
    /// Hold the picks of strategies against cases with known answers.
    Vectors(vectors::VectorsArgs),
    /// Show everything that decisions about a table are made from.
    Facts(FactsArgs),
    /// Show every setting, its value, and who set it.
    Settings {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a settings file with every setting explained.
    InitConfig,
    /// Make a key for HTTP: it is shown once, and its digest goes into the file of --api-keys.
    NewKey {
        /// Whose it is.
        name: String,
        /// What it may do.
        #[arg(long, value_name = "SCOPE", default_value = "read", value_parser = ["read", "admin"])]
        scope: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script.
    Completions {
        /// Shell to complete for.
        shell: clap_complete::Shell,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Database or table.
    root: String,
    /// Only this table; may be given again.
    #[arg(long = "table", value_name = "NAME")]
    tables: Vec<String>,
    /// Show the plan and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// One JSON object a line: each table as it ends, then the summary.
    #[arg(long)]
    json: bool,
    /// Also list tables that had nothing to do.
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Args)]
struct ServeArgs {
    /// Database or table.
    root: String,
}

#[derive(Args)]
struct PlanArgs {
    /// Database or table.
    #[arg(required_unless_present = "facts", conflicts_with = "facts")]
    root: Option<String>,
    /// Only this table; may be given again.
    #[arg(long = "table", value_name = "NAME")]
    tables: Vec<String>,
    /// Plan from facts as `caretaker facts --json` prints them (`-`: standard input); no storage is touched.
    #[arg(long, value_name = "FILE")]
    facts: Option<String>,
    /// Plan with this settings file alone: neither --config nor the environment counts.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    policy: Option<String>,
    /// Plan for this time instead of now: RFC 3339, or milliseconds since the epoch.
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// One JSON object a line, one for each table.
    #[arg(long)]
    json: bool,
    /// Also show tables that take no LSM writes.
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Args)]
struct CompactArgs {
    /// Table.
    table: String,
    /// Only this shard.
    #[arg(long, value_name = "ID")]
    shard: Option<String>,
    /// One JSON object a line: the table, then the summary.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct FactsArgs {
    /// Table, or a database for all of its tables.
    table: String,
    /// As JSON, for `caretaker plan --facts`.
    #[arg(long)]
    json: bool,
}

/// How a command ended, where it did not stop at an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Done,
    Failed,
    Refused,
    Interrupted(u8),
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Refused => 3,
            Self::Interrupted(code) => code,
        }
    }
}

/// The exit code of a command that stopped at an error.
fn code_of(error: &Error) -> u8 {
    match error {
        Error::Invalid(_) => 2,
        Error::Busy(_) => 3,
        Error::Superseded(_) => 0,
        Error::Retry(_) | Error::Away(_) | Error::Conflict(_) | Error::Mismatch(_) | Error::Fatal(_) => 1,
        Error::Fenced(_) | Error::Draining(_) => 1,
    }
}

/// What every command that opens tables has.
struct Work {
    root: Root,
    session: Arc<Session>,
    settings: Settings,
    registry: Registry,
    decider: Arc<Decider>,
}

impl Work {
    fn tender(&self, stop: CancellationToken) -> Tender {
        let mut tender = Tender::new(self.settings.policy.clone(), self.session.clone(), stop);
        tender.registry = self.registry.clone();
        tender.decider = self.decider.clone();
        tender.stall = self.settings.worker.stall;
        tender
    }
}

/// What a command is about. One that only looks leaves the job registry as it is, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Look,
    Tend,
    Serve,
}

async fn registry(settings: &Settings, intent: Intent) -> Result<Registry> {
    match (settings.place(|name| std::env::var_os(name))?, intent) {
        (Place::Memory, _) => Ok(Registry::default()),
        (place, Intent::Look) => Registry::look(&place).await,
        (place, Intent::Tend | Intent::Serve) => Registry::open(&place).await,
    }
}

/// Runs the process.
pub fn main() -> ExitCode {
    let matches = command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let flags = matches.subcommand().map(|(_, flags)| flags);
    let code = dispatch(cli.command, flags).map_or_else(
        |error| {
            // A program that reads JSON gets its answer there; people read the other stream.
            if flags.is_some_and(wants_json) {
                let _ = run::line(&serde_json::json!({ "error": error.to_string(), "kind": error.kind() }));
            }
            out::complain(&error);
            code_of(&error)
        },
        Exit::code,
    );
    ExitCode::from(code)
}

/// Whether the command, or that of a command, was told so.
fn wants_json(flags: &ArgMatches) -> bool {
    let here = matches!(flags.try_get_one::<bool>("json"), Ok(Some(true)));
    here || flags.subcommand().is_some_and(|(_, flags)| wants_json(flags))
}

fn dispatch(command: Command, flags: Option<&ArgMatches>) -> Result<Exit> {
    let settings = || load(flags);
    match command {
        Command::InitConfig => config::init(),
        Command::NewKey { name, scope, json } => config::new_key(&name, &scope, json),
        Command::Completions { shell } => config::completions(shell),
        Command::Settings { json } => config::settings(&settings()?, json),
        Command::Plan(PlanArgs { facts: Some(file), policy, at, json, .. }) => {
            let settings = of_policy(policy.as_deref(), flags)?;
            log::start(&settings, log::QUIET, Bars::default());
            plan::of_facts(&file, at.as_deref(), &settings.policy, json)
        }
        Command::Plan(PlanArgs { root: Some(root), at: Some(at), .. }) => Err(Error::Invalid(format!(
            "`{root}` is storage, which is planned for now, as it is now; to plan for another time save its facts \
             with `caretaker facts {root} --json > facts.json`, then `caretaker plan --facts facts.json --at {at}`"
        ))),
        Command::Plan(PlanArgs { root: Some(root), policy: Some(policy), .. }) => Err(Error::Invalid(format!(
            "--policy is for plans from saved facts (--facts); to plan `{root}` with a settings file use \
             `--config {policy}`"
        ))),
        Command::Plan(args) => {
            let root = args.root.clone().unwrap_or_default();
            on(&root, settings()?, Intent::Look, async |work, _| plan::of_root(&args, &work, Trigger::Tick).await)
        }
        Command::Status(args) => {
            on(&args.root, settings()?, Intent::Look, async |work, _| status::run(&args, &work).await)
        }
        Command::Run(args) if args.dry_run => {
            let (root, plan) = (args.root.clone(), args.into_plan());
            on(&root, settings()?, Intent::Look, async |work, _| plan::of_root(&plan, &work, Trigger::Relief).await)
        }
        Command::Run(args) => {
            on(&args.root, settings()?, Intent::Tend, async |work, bars| run::run(&args, work, bars).await)
        }
        Command::Compact(args) => {
            on(&args.table, settings()?, Intent::Tend, async |work, bars| compact::run(&args, work, bars).await)
        }
        Command::Cleanup(args) => {
            let intent = if args.dry_run { Intent::Look } else { Intent::Tend };
            on(&args.table, settings()?, intent, async |work, _| cleanup::run(&args, &work).await)
        }
        Command::Verify(args) => {
            let intent = if args.writes() { Intent::Tend } else { Intent::Look };
            on(&args.table, settings()?, intent, async |work, _| verify::run(&args, &work).await)
        }
        Command::Facts(args) => {
            on(&args.table, settings()?, Intent::Look, async |work, _| facts::run(&args, &work).await)
        }
        Command::Worker(args) => worker::run(&args, settings()?),
        Command::Jobs { command } => jobs::run(command, settings()?),
        Command::Policy { command } => policy::run(command, settings()?),
        Command::Simulate(args) => simulate::run(&args, of_policy(args.policy(), flags)?),
        Command::Vectors(args) => vectors::run(&args),
        Command::Sql(args) => jobs::sql(&args, settings()?),
        Command::Serve(args) => on(&args.root, settings()?, Intent::Serve, async |work, _| serve::run(work).await),
    }
}

/// Runs a command that opens tables.
fn on(
    root: &str,
    settings: Settings,
    intent: Intent,
    command: impl AsyncFnOnce(Work, Bars) -> Result<Exit>,
) -> Result<Exit> {
    let bars = Bars::default();
    log::start(&settings, if intent == Intent::Serve { log::TALKING } else { log::QUIET }, bars.clone());
    let root = Root::parse(root)?;
    block_on(async {
        let registry = registry(&settings, intent).await?;
        let choice = settings.choice.clone();
        let decider = match intent {
            Intent::Serve => Decider::serve(choice, registry.clone()).await,
            Intent::Tend => Decider::open(choice, Some(registry.clone())).await?,
            Intent::Look => Decider::open(choice, None).await?,
        };
        let session = crate::table::session();
        let ended = command(Work { root, session, settings, registry, decider: decider.clone() }, bars).await;
        decider.flush().await;
        ended
    })
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.enable_all().thread_stack_size(STACK).build();
    let runtime = runtime.map_err(|e| Error::Fatal(format!("can't start threads: {e}")))?;
    let done = runtime.block_on(work);
    // Reads that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    done
}

impl RunArgs {
    fn into_plan(self) -> PlanArgs {
        let Self { root, tables, json, verbose, .. } = self;
        PlanArgs { root: Some(root), tables, facts: None, policy: None, at: None, json, verbose }
    }
}

/// The derived command with a flag for every setting.
fn command() -> clap::Command {
    let exits: Vec<String> = EXITS.iter().map(|(code, what)| format!("  {code:>3}  {what}")).collect();
    let exits = format!("Exit codes:\n{}", exits.join("\n"));
    let mut command = Cli::command()
        .after_help(
            "`caretaker <command> --help` shows every setting; `caretaker --help` shows examples and exit codes.",
        )
        .after_long_help(format!("{EXAMPLES}\n\n{exits}"));
    for name in WITH_SETTINGS {
        command = command.mut_subcommand(name, |sub| {
            // Those of commands with commands stand behind these, too.
            let all = |arg: clap::Arg| arg.global(["jobs", "policy"].contains(&name));
            sub.arg(all(config_arg()))
                .args(settings::keys().map(flag).map(all))
                .args(settings::renamed().map(old).map(all))
        });
    }
    command
}

#[cfg(test)]
mod tests {
    use super::flags::from_flags;
    use super::*;
    use crate::settings::Source;

    #[test]
    fn every_setting_is_a_flag_of_every_command_that_uses_settings() {
        command().debug_assert();
        for name in WITH_SETTINGS {
            let root = match name {
                "settings" | "worker" => vec![],
                "jobs" | "policy" => vec!["list"],
                _ => vec!["db"],
            };
            let line = ["caretaker", name].into_iter().chain(root).map(String::from);
            let flags = settings::keys().flat_map(|key| [format!("--{}", key.flag()), key.flag()]);
            let matches = command().try_get_matches_from(line.chain(flags)).expect("all flags are known");
            let given = from_flags(matches.subcommand().map(|(_, flags)| flags));
            assert_eq!(given.len(), settings::keys().count());
            assert!(given.iter().all(|g| g.source == Source::Flag(g.text.clone())), "each flag sets its own key");
        }
    }

    #[test]
    fn storage_is_planned_for_now_and_by_the_settings_that_count() {
        let plan = |args: &[&str]| {
            let matches = command().try_get_matches_from([&["caretaker", "plan"], args].concat()).ok()?;
            let cli = Cli::from_arg_matches(&matches).expect("clap has checked it");
            Some(dispatch(cli.command, matches.subcommand().map(|(_, flags)| flags)))
        };
        let why = |args: &[&str]| plan(args).expect("clap lets it through").expect_err("refused").to_string();
        let at = why(&["db", "--at", "5"]);
        assert!(at.contains("planned for now") && at.contains("`caretaker facts db --json > facts.json`"), "{at}");
        assert!(why(&["db", "--policy", "p.toml"]).contains("`--config p.toml`"));
        for stored_only in [["--at", "5"], ["--policy", "p.toml"]] {
            assert!(plan(&stored_only).is_none(), "neither a root nor facts");
        }
    }

    #[test]
    fn a_negative_number_reaches_the_setting_that_refuses_it() {
        let matches = command().try_get_matches_from(["caretaker", "run", "db", "--tables-at-once", "-1"]);
        let why = load(matches.expect("clap lets it through").subcommand().map(|(_, flags)| flags));
        assert!(why.expect_err("refused").to_string().contains("`-1`"));
    }

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let documented: Vec<u8> = EXITS.iter().map(|(code, _)| *code).collect();
        assert_eq!(documented, [0, 1, 2, 3, 130, 143]);
        let text = || String::from("why");
        let codes = [Error::Superseded(text()), Error::Fatal(text()), Error::Invalid(text()), Error::Busy(text())];
        assert_eq!(codes.map(|error| code_of(&error)), [0, 1, 2, 3]);
    }
}
