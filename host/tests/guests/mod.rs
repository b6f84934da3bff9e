//! Plugins written by hand, for the tests.

#![allow(dead_code, reason = "each test file uses its own part")]

/// A component with the right door whose module has `$call` as given: it gets the request's
/// address and length and returns the address of the answer's address and length.
pub(crate) fn guest(call: &str) -> String {
    guest_with("", call)
}

/// How the guests describe themselves.
pub(crate) const DESCRIPTION: &str = r#"{"ok":{"name":"guest","version":"1","abi":"caretaker:planner@1.0.0","encodings":["json"],"ops":["describe","plan_table"],"config":{}}}"#;

/// Bytes as a string of the text format.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\{byte:02x}")).collect()
}

pub(crate) fn guest_with(module_items: &str, call: &str) -> String {
    describing(DESCRIPTION, module_items, call)
}

/// The same with a description of its own. `describe` is told by its length, 17 bytes.
pub(crate) fn describing(description: &str, module_items: &str, call: &str) -> String {
    let (said, length) = (escaped(description.as_bytes()), description.len());
    format!(
        r#"(component
          (core module $module
            (memory (export "memory") 1)
            {module_items}
            (data (i32.const 32768) "{said}")
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
            (func $call (export "call") (param $at i32) (param $length i32) (result i32)
              (if (i32.eq (local.get $length) (i32.const 17)) (then
                (i32.store (i32.const 16) (i32.const 32768))
                (i32.store (i32.const 20) (i32.const {length}))
                (return (i32.const 16))))
              {call}))
          (core instance $instance (instantiate $module))
          (func $call (param "request" (list u8)) (result (list u8))
            (canon lift (core func $instance "call")
              (memory (core memory $instance "memory")) (realloc (core func $instance "realloc"))))
          (instance $door (export "call" (func $call)))
          (export "caretaker:planner/door@1.0.0" (instance $door)))"#
    )
}

/// Answers with the request.
pub(crate) const ECHO: &str = "(i32.store (i32.const 16) (local.get $at))
                    (i32.store (i32.const 20) (local.get $length))
                    (i32.const 16)";
