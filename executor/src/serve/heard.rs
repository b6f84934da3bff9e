//! Tables that something was heard of since the agent's last tick.
//!
//! A set and no queue: a table that floods events is in it once, and it is never larger than the
//! catalogue.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The owned tables, and which of them were heard of.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard(Arc<Mutex<Names>>);

#[derive(Debug, Default)]
struct Names {
    owned: BTreeSet<String>,
    heard: BTreeSet<String>,
}

impl Heard {
    /// Notes that a table is worth a look. `false`: there is no such table.
    pub(super) fn of(&self, table: &str) -> bool {
        let mut names = self.lock();
        let known = names.owned.contains(table);
        if known {
            names.heard.insert(table.to_string());
        }
        known
    }

    /// These are the tables now.
    pub(super) fn owned(&self, tables: &BTreeSet<String>) {
        let mut names = self.lock();
        names.heard.retain(|table| tables.contains(table));
        names.owned.clone_from(tables);
    }

    /// What was heard of since the last call.
    pub(super) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.lock().heard)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_2_a_flood_of_events_is_one_and_a_table_that_is_gone_none() {
        let heard = Heard::default();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        heard.owned(&names(&["a", "b"]));
        assert!((0..100_000).all(|_| heard.of("a")) && heard.of("b") && !heard.of("c"));
        heard.owned(&names(&["a"]));
        assert_eq!((heard.take(), heard.take()), (names(&["a"]), names(&[])));
    }
}
