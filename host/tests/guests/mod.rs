//! Plugins written by hand, for the tests.

#![allow(dead_code, reason = "each test file uses its own part")]

/// A component with the right door whose module has `$call` as given: it gets the request's
/// address and length and returns the address of the answer's address and length.
pub(crate) fn guest(call: &str) -> String {
    guest_with("", call)
}

pub(crate) fn guest_with(module_items: &str, call: &str) -> String {
    format!(
        r#"(component
          (core module $module
            (memory (export "memory") 1)
            {module_items}
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
            (func $call (export "call") (param $at i32) (param $length i32) (result i32) {call}))
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
