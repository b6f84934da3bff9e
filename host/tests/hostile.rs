//! Plugins that misbehave: each ends as its own error, and the host goes on.
//!
//! The guests are written by hand, so that each does one bad thing and nothing else.

mod guests;

use std::{io::Write, time::Duration};

use guests::{DESCRIPTION, ECHO, describing, guest, guest_with};
use host::{Limits, PluginError, PluginPlanner};

/// Bytes of one WebAssembly page.
const PAGE: u64 = 64 << 10;

fn limits() -> Limits {
    Limits { deadline: Duration::from_millis(100), memory_bytes: 4 * PAGE, answer_bytes: 1000, file_bytes: PAGE }
}

fn load(text: &str) -> Result<PluginPlanner, PluginError> {
    PluginPlanner::compile("guest", &wat::parse_str(text).expect("the guest's text"), limits())
}

/// What a call of the plugin ends with, after which a good plugin still answers and the bad one
/// fails in the same way again.
fn failure(text: &str) -> PluginError {
    let (bad, good) = (load(text).expect("loads"), load(&guest(ECHO)).expect("loads"));
    let failure = bad.call(b"hello").expect_err("the plugin misbehaves");
    assert_eq!(good.call(b"hello").as_deref(), Ok(&b"hello"[..]));
    assert_eq!(bad.call(b"hello"), Err(failure.clone()));
    failure
}

#[test]
fn an_endless_loop_ends_at_its_deadline() {
    let forever = guest("(loop $forever (br $forever)) unreachable");
    assert_eq!(failure(&forever), PluginError::Deadline { limit_ms: 100 });
}

#[test]
fn endless_loops_on_many_threads_do_not_delay_a_good_plugin_or_each_other() {
    let bad = load(&guest("(loop $forever (br $forever)) unreachable")).expect("loads");
    let good = load(&guest(ECHO)).expect("loads");
    std::thread::scope(|scope| {
        let stuck: Vec<_> = (0..8).map(|_| scope.spawn(|| bad.call(b"hello"))).collect();
        assert_eq!(good.call(b"hello").as_deref(), Ok(&b"hello"[..]));
        for call in stuck {
            let ended = call.join().expect("no panic");
            assert_eq!(ended, Err(PluginError::Deadline { limit_ms: 100 }));
        }
    });
}

#[test]
fn a_memory_hog_is_stopped_at_its_limit() {
    let hog = guest("(loop $more (drop (memory.grow (i32.const 1))) (br $more)) unreachable");
    let expected = PluginError::Memory { asked: 5 * PAGE, limit: 4 * PAGE };
    assert_eq!(failure(&hog), expected);
}

#[test]
fn memory_and_tables_count_together() {
    let hog = guest_with(
        "(table $table 0 funcref)",
        "(drop (memory.grow (i32.const 2)))
         (drop (table.grow $table (ref.null func) (i32.const 10000)))
         unreachable",
    );
    let expected = PluginError::Memory { asked: 3 * PAGE + 160_000, limit: 4 * PAGE };
    assert_eq!(failure(&hog), expected);
}

#[test]
fn a_module_that_starts_too_large_is_refused_when_it_is_loaded() {
    let large = guest(ECHO).replace(r#"(memory (export "memory") 1)"#, r#"(memory (export "memory") 5)"#);
    let expected = PluginError::Memory { asked: 5 * PAGE, limit: 4 * PAGE };
    assert_eq!(load(&large).err(), Some(expected));
}

#[test]
fn a_start_function_that_never_ends_is_refused_when_it_is_loaded() {
    let stuck = guest_with("(func $stuck (loop $forever (br $forever))) (start $stuck)", ECHO);
    assert_eq!(load(&stuck).err(), Some(PluginError::Deadline { limit_ms: 100 }));
}

#[test]
fn each_kind_of_crash_is_a_trap() {
    let crashes = [
        ("unreachable", "wasm trap: wasm `unreachable` instruction executed"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "wasm trap: integer divide by zero"),
        ("(i32.load (i32.const -8))", "wasm trap: out of bounds memory access"),
        ("(call $call (local.get $at) (local.get $length))", "wasm trap: call stack exhausted"),
    ];
    for (crash, expected) in crashes {
        assert_eq!(failure(&guest(crash)), PluginError::Trap { trap: expected.into() });
    }
}

#[test]
fn an_answer_outside_of_the_plugins_memory_is_a_bad_answer() {
    let wild =
        guest("(i32.store (i32.const 16) (i32.const -8)) (i32.store (i32.const 20) (i32.const 100)) (i32.const 16)");
    assert!(matches!(failure(&wild), PluginError::BadOutput { .. }));
}

#[test]
fn an_answer_over_its_limit_is_a_bad_answer() {
    let answer = |bytes| guest(&format!("(i32.store (i32.const 20) (i32.const {bytes})) (i32.const 16)"));
    let plugin = load(&answer(1000)).expect("loads");
    assert_eq!(plugin.call(b"").map(|answer| answer.len()), Ok(1000));
    assert!(matches!(failure(&answer(1001)), PluginError::BadOutput { .. }));
}

#[test]
fn an_answer_of_100_mb_is_a_bad_answer() {
    let large = guest(
        "(drop (memory.grow (i32.const 1600)))
         (i32.store (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (i32.const 100000000)) (i32.const 16)",
    );
    let plugin = PluginPlanner::compile("guest", &wat::parse_str(large).expect("text"), Limits::default());
    let answer = plugin.expect("loads").call(b"hello");
    assert!(matches!(answer, Err(PluginError::BadOutput { .. })), "{answer:?}");
}

#[test]
fn recursion_that_fills_its_memory_is_a_trap() {
    // Frames on a stack in linear memory, as compilers lay them out: it grows down, below the start.
    let deep = guest_with(
        "(global $stack (mut i32) (i32.const 65536))
         (func $deeper (global.set $stack (i32.sub (global.get $stack) (i32.const 4096)))
           (i32.store (global.get $stack) (i32.const 1)) (call $deeper))",
        "(call $deeper) unreachable",
    );
    assert_eq!(failure(&deep), PluginError::Trap { trap: "wasm trap: out of bounds memory access".into() });
}

#[test]
fn more_calls_than_there_is_room_for_wait_for_their_turn() {
    // A busy machine may let a thread wait for seconds.
    let limits = Limits { deadline: Duration::from_secs(60), ..limits() };
    let echo = wat::parse_str(guest(ECHO)).expect("text");
    let good = PluginPlanner::compile("guest", &echo, limits).expect("loads");
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..100).map(|_| scope.spawn(|| good.call(b"hello"))).collect();
        for call in calls {
            assert_eq!(call.join().expect("no panic").as_deref(), Ok(&b"hello"[..]));
        }
    });
}

#[test]
fn another_version_of_the_interface_is_an_error_of_its_own() {
    let other_door = guest(ECHO).replace("caretaker:planner/door@1.0.0", "caretaker:planner/door@2.0.0");
    let other_words = describing(&DESCRIPTION.replace("planner@1.0.0", "planner@2.0.0"), "", ECHO);
    // Another version may describe itself in another way.
    let other_shape = describing(r#"{"ok":{"abi":"caretaker:planner@2.0.0","title":"guest"}}"#, "", ECHO);
    for text in [other_door, other_words, other_shape] {
        let expected = PluginError::Abi {
            plugin: "guest".into(),
            found: "caretaker:planner@2.0.0".into(),
            served: "caretaker:planner@1.0.0",
        };
        assert_eq!(load(&text).err(), Some(expected));
    }
}

#[test]
fn a_description_that_is_none_is_refused_when_the_plugin_is_loaded() {
    let without = |key: &str, with: &str| DESCRIPTION.replace(key, with);
    let refused = [
        (String::new(), "its description is none"),
        ("{}".into(), "its description is none"),
        (r#"{"error":{"kind":"invalid","message":"what?"}}"#.into(), "it does not describe itself: what?"),
        (without(r#""name":"guest","#, ""), "missing field `name`"),
        (without("guest", ""), "its name is not"),
        (without("guest", "a\\nb"), "its name is not"),
        (without("guest", &"x".repeat(65)), "its name is not"),
        (without(r#""version":"1""#, r#""version":"""#), "its version is not"),
        (without(r#"["json"]"#, r#"["cbor"]"#), r#"it takes ["cbor"], but not `json`"#),
        (without(r#","plan_table""#, ""), "it does not answer `plan_table`"),
        (without(r#""config":{}"#, r#""config":7"#), "invalid type"),
    ];
    for (description, expected) in refused {
        match load(&describing(&description, "", ECHO)).err() {
            Some(PluginError::Load { why, .. }) => assert!(why.contains(expected), "`{why}` is not `{expected}`"),
            other => panic!("expected `{expected}`, got {other:?}"),
        }
    }
}

#[test]
fn a_plugin_is_known_by_the_hash_of_its_file() {
    let plugin = load(&guest(ECHO)).expect("loads");
    assert_eq!(plugin.description().name, "guest");
    assert_eq!(plugin.sha256().len(), 64);
    assert_eq!(plugin.sha256(), load(&guest(ECHO)).expect("loads").sha256());
    assert_ne!(plugin.sha256(), load(&guest("unreachable")).expect("loads").sha256());
}

#[test]
fn a_plugin_keeps_nothing_between_calls() {
    let counter = guest_with(
        "(global $calls (mut i32) (i32.const 0))",
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
         (i32.store (i32.const 20) (global.get $calls))
         (i32.const 16)",
    );
    let plugin = load(&counter).expect("loads");
    for _ in 0..3 {
        assert_eq!(plugin.call(b"").map(|answer| answer.len()), Ok(1));
    }
}

#[test]
fn whatever_is_not_a_plugin_is_refused_with_the_reason() {
    let core_module = wat::parse_str("(module)").expect("text");
    let no_door = wat::parse_str("(component)").expect("text");
    let text = guest(ECHO);
    let echo = wat::parse_str(&text).expect("text");
    let curious = guest(ECHO).replace(
        "(component",
        r#"(component (import "wasi:clocks/wall-clock@0.2.0"
            (instance (export "now" (func (result u64)))))"#,
    );
    let curious = wat::parse_str(curious).expect("text");
    let other_type = guest(ECHO).replacen(
        r#"(param "request" (list u8)) (result (list u8))"#,
        r#"(param "request" string) (result string)"#,
        1,
    );
    let other_type = wat::parse_str(other_type).expect("text");
    let refused: [(&[u8], &str); 8] = [
        (b"", "unexpected end"),
        (b"no plugin at all", "magic header not detected"),
        (text.as_bytes(), "magic header not detected"),
        (&echo[..echo.len() / 2], "out of bounds"),
        (&core_module, "module with a component parser"),
        (&no_door, "does not export `call` of `caretaker:planner/door@1.0.0`"),
        (&curious, "wasi:clocks/wall-clock"),
        (&other_type, "type mismatch"),
    ];
    for (bytes, expected) in refused {
        match PluginPlanner::compile("guest", bytes, limits()).err() {
            Some(PluginError::Load { plugin, why }) => {
                assert_eq!(plugin, "guest");
                assert!(why.contains(expected), "`{why}` does not say `{expected}`");
            }
            other => panic!("expected a refusal that says `{expected}`, got {other:?}"),
        }
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let whole = wat::parse_str(guest(ECHO)).expect("text");
    for at in (0..whole.len()).step_by(29) {
        let refused = PluginPlanner::compile("guest", &whole[..at], limits()).err();
        assert!(matches!(refused, Some(PluginError::Load { .. })), "{at} of {} bytes: {refused:?}", whole.len());
    }
}

#[test]
fn a_file_over_the_limit_is_refused_before_it_is_compiled_or_read_to_its_end() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&vec![0; 64 << 10]).expect("written");
    let refusal = |path: &std::path::Path| match PluginPlanner::load(path, limits()).err() {
        Some(PluginError::Load { why, .. }) => why,
        other => panic!("expected a refusal, got {other:?}"),
    };
    assert!(refusal(file.path()).contains("magic header not detected"));
    file.write_all(&[0]).expect("written");
    assert_eq!(refusal(file.path()), "it is larger than the limit of 65536 bytes");
    assert_eq!(refusal("/dev/zero".as_ref()), "it is larger than the limit of 65536 bytes");
    assert!(refusal("/no/such/plugin.wasm".as_ref()).contains("No such file"));
}
