//! The built-in planner as a plugin, and the model for writing another one: a world without
//! imports, one door, JSON in and out.

#[cfg(target_family = "wasm")]
mod memory;

/// The planner behind the door.
struct Plugin;

impl bindings::exports::caretaker::planner::door::Guest for Plugin {
    fn call(request: Vec<u8>) -> Vec<u8> {
        planner::wire::call(&request)
    }
}

/// Generated: what crosses the door is raw memory, so this module alone may be unsafe.
#[allow(unsafe_code, missing_docs, unreachable_pub)]
mod bindings {
    wit_bindgen::generate!({ path: "../wit/1.0.0", world: "planner" });
    export!(Plugin with_types_in self);
    use super::Plugin;
}
