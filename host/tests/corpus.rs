//! One corpus of requests for every build of the planner: native, plugin, browser (`web/test`).
//!
//! `UPDATE=1` writes the native answers anew; what changed is then there to be reviewed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use host::{Limits, PluginError, PluginPlanner};
use planner::{
    facts::TableFacts,
    plan::{Trigger, plan_table},
    policy::Policy,
};

/// Room for a debug host on a busy machine; what the deadline does is tested elsewhere.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Compiling takes seconds in a debug host, so the tests share one.
static PLUGIN: LazyLock<Result<PluginPlanner, String>> = LazyLock::new(|| {
    let file = plugin_file();
    if !file.is_file() {
        return Err(format!(
            "there is no plugin at `{}`: run `make wasm`, or set CARETAKER_PLUGIN to where it is",
            file.display()
        ));
    }
    let limits = Limits { deadline: PATIENCE, ..Limits::default() };
    PluginPlanner::load(&file, limits).map_err(|e| e.to_string())
});

fn plugin() -> &'static PluginPlanner {
    PLUGIN.as_ref().unwrap_or_else(|why| panic!("{why}"))
}

fn room() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where `.ci/wasm.sh` puts it. A relative CARETAKER_PLUGIN counts from the repository's root.
fn plugin_file() -> PathBuf {
    let below_target = || {
        let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        Path::new(&target).join("wasm/planner.wasm")
    };
    let file = env::var_os("CARETAKER_PLUGIN").map_or_else(below_target, PathBuf::from);
    room().join("..").join(file)
}

/// Name, request and the file of the answer, in the order of names.
fn corpus() -> Vec<(String, Vec<u8>, PathBuf)> {
    let folder = room().join("corpus");
    let entries = fs::read_dir(&folder).expect("host/corpus");
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| Some(file.strip_suffix(".request.json")?.to_owned()))
        .collect();
    names.sort();
    let case = |name: String| {
        let request = fs::read(folder.join(format!("{name}.request.json"))).expect("a request");
        let answer = folder.join(format!("{name}.answer.json"));
        (name, request, answer)
    };
    names.into_iter().map(case).collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("an answer is UTF-8")
}

#[test]
fn the_native_planner_gives_the_recorded_answers() {
    let update = env::var_os("UPDATE").is_some_and(|value| value == "1");
    let corpus = corpus();
    assert!(corpus.len() >= 10, "the corpus is gone");
    for (name, request, file) in corpus {
        let answer = planner::wire::call(&request);
        if update {
            fs::write(&file, &answer).expect("the answer is written");
        }
        let recorded = fs::read(&file).unwrap_or_default();
        assert_eq!(
            text(&answer),
            text(&recorded),
            "`{name}`: if the change is meant, record it with `UPDATE=1 cargo test -p caretaker-host`"
        );
    }
}

#[test]
fn the_plugin_gives_byte_for_byte_the_native_answers() {
    for (name, request, _) in corpus() {
        let answer = plugin().call(&request).expect("an answer");
        assert_eq!(
            text(&answer),
            text(&planner::wire::call(&request)),
            "`{name}`: if the planner changed since, run `make wasm`"
        );
    }
}

#[test]
fn the_picks_of_the_plugin_agree_with_every_case() {
    for file in ["upstream.json", "constructed.json"] {
        let file = room().join("../planner/tests/data/paimon").join(file);
        let cases = fs::read_to_string(&file).expect("cases");
        let request = format!(r#"{{"op":"vectors","cases":{cases}}}"#);
        let answer = plugin().call(request.as_bytes()).expect("an answer");
        assert_eq!(text(&answer), text(&planner::wire::call(request.as_bytes())), "{}", file.display());
        assert!(!text(&answer).contains(r#""agrees":false"#), "{}: {}", file.display(), text(&answer));
        assert!(text(&answer).contains(r#""agrees":true"#), "{}", file.display());
    }
}

#[test]
fn a_plan_of_the_plugin_equals_the_native_one() {
    let (facts, policy) = (example(), Policy::default());
    for trigger in [Trigger::Tick, Trigger::Relief, Trigger::Forced] {
        let native = plan_table(&facts, &policy, EXAMPLE_NOW_MS, trigger);
        assert!(native.jobs().count() > 0, "the example has something to do");
        assert_eq!(plugin().plan_table(&facts, &policy, EXAMPLE_NOW_MS, trigger), Ok(native));
    }
}

#[test]
fn facts_that_contradict_themselves_are_refused_in_the_plugins_words() {
    let mut facts = example();
    facts.shards[1].shard = facts.shards[0].shard.clone();
    match plugin().plan_table(&facts, &Policy::default(), EXAMPLE_NOW_MS, Trigger::Tick) {
        Err(PluginError::Refused { why }) => assert!(why.contains(&facts.shards[0].shard), "{why}"),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn calls_from_many_threads_do_not_mix() {
    let (corpus, plugin) = (corpus(), plugin());
    std::thread::scope(|scope| {
        for (name, request, _) in &corpus {
            scope.spawn(move || {
                let answer = plugin.call(request).expect("an answer");
                assert_eq!(text(&answer), text(&planner::wire::call(request)), "`{name}`");
            });
        }
    });
}

/// 2026-01-15 12:00:00 UTC.
const EXAMPLE_NOW_MS: u64 = 1_768_478_400_000;

/// The facts that the browser page starts with.
fn example() -> TableFacts {
    let text = include_str!("../../web/src/example.json");
    serde_json::from_str(text).expect("the example is valid")
}
