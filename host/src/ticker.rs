//! The clock behind deadlines: while a call runs, the engine's epoch moves on at a steady pace.
//! Whoever starts a call passes here, so this is also where calls wait for their turn.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use wasmtime::Engine;

/// Time between two epochs, and so the precision of a deadline.
const TICK: Duration = Duration::from_millis(5);

/// Calls at once; further ones wait. Each has memory reserved for it.
pub(crate) const CALLS_MAX: u32 = 16;

/// A thread that ticks while calls run and sleeps while none does.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// For the thread: a call began, or the end has come.
    changed: Condvar,
    /// For calls that wait.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    calls: u32,
    closed: bool,
}

impl Shared {
    /// Every change of the state is one assignment, so a poisoned lock still guards a valid one.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, engine: &Engine) {
        let mut state = self.lock();
        while !state.closed {
            if state.calls == 0 {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(state);
            std::thread::sleep(TICK);
            engine.increment_epoch();
            state = self.lock();
        }
    }
}

impl Ticker {
    pub(crate) fn start(engine: &Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("plugin-ticker".into()).spawn({
            let (shared, engine) = (Arc::clone(&shared), engine.clone());
            move || shared.run(&engine)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Epochs that make up a deadline; one more, since the first one may be nearly over.
    pub(crate) fn epochs(deadline: Duration) -> u64 {
        u64::try_from(deadline.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Ticks until the answer is dropped. Waits while [`CALLS_MAX`] calls run; each of them ends at
    /// its deadline at the latest.
    pub(crate) fn call(&self) -> Call<'_> {
        let state = self.shared.lock();
        let full = |state: &mut State| state.calls >= CALLS_MAX;
        self.shared.ended.wait_while(state, full).unwrap_or_else(PoisonError::into_inner).calls += 1;
        self.shared.changed.notify_one();
        Call(&self.shared)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It can only have panicked if wasmtime did, and there is no one left to tell.
            let _ = thread.join();
        }
    }
}

/// A running call.
pub(crate) struct Call<'a>(&'a Shared);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.lock().calls -= 1;
        self.0.ended.notify_one();
    }
}
