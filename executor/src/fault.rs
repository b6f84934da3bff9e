//! Named places between two steps, where a test can stop the process or let others in.
//!
//! `CARETAKER_CRASH_AT=<place>` ends the process there as hard as `kill -9` would.
//! `CARETAKER_HOLD_AT=<place>` holds it where it first comes by: it says `held` on standard output, and
//! goes on after a line on standard input. Debug builds only: a release binary has neither the variables
//! nor the places.

#[cfg(debug_assertions)]
mod real {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, LazyLock, Mutex};

    use futures::future::BoxFuture;

    type Hook = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;
    static HELD: AtomicBool = AtomicBool::new(false);
    static HOOKS: LazyLock<Mutex<HashMap<(String, String), Hook>>> = LazyLock::new(Mutex::default);

    /// Runs `hook` whenever the pass on the table at `uri` comes by `place`; `None` takes it away.
    pub fn hook(uri: &str, place: &str, hook: Option<Hook>) {
        let mut hooks = HOOKS.lock().unwrap_or_else(|e| e.into_inner());
        let key = (uri.to_string(), place.to_string());
        match hook {
            Some(hook) => hooks.insert(key, hook),
            None => hooks.remove(&key),
        };
    }

    pub(crate) async fn at(uri: &str, place: &'static str) {
        if std::env::var("CARETAKER_CRASH_AT").is_ok_and(|p| p == place) {
            eprintln!("crashing at `{place}` as CARETAKER_CRASH_AT asks");
            std::process::abort();
        }
        if std::env::var("CARETAKER_HOLD_AT").is_ok_and(|p| p == place) && !HELD.swap(true, Ordering::SeqCst) {
            println!("held");
            let line = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
            line.expect("nobody stops the reader").expect("whoever holds a process keeps its input open");
        }
        let hook = {
            let hooks = HOOKS.lock().unwrap_or_else(|e| e.into_inner());
            hooks.get(&(uri.to_string(), place.to_string())).cloned()
        };
        if let Some(hook) = hook {
            hook().await;
        }
    }
}

#[cfg(debug_assertions)]
pub(crate) use real::at;
#[cfg(debug_assertions)]
pub use real::hook;

#[cfg(not(debug_assertions))]
pub(crate) async fn at(_uri: &str, _place: &'static str) {}
