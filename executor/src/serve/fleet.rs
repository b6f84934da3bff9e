//! The other agents, and what they and the workers do.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::catalog::TableRef;
use crate::error::Result;
use crate::registry::{Job, Member};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// What an agent knows of the others.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// Those that live, itself among them.
    pub(super) agents: Vec<Member>,
    /// Jobs that wait, and jobs that run.
    pub(super) open: (u64, u64),
    /// The registry does not answer.
    pub(super) away: bool,
    /// An evaluation was given up on its account, which was said; since then none went well.
    pub(super) blamed: bool,
    /// It is asking who is there.
    pub(super) meeting: bool,
    hearing: bool,
    /// Something happened since it asked.
    again: bool,
    asked: Option<Instant>,
    /// Ends before this were heard of. Commits come in any order, so what is a little older may be new.
    since_ms: u64,
    /// Those that were heard of since then.
    known: BTreeSet<String>,
}

/// Ends of jobs since some time.
pub(super) struct Heard {
    pub(super) ended: Vec<Job>,
    /// From when on to ask the next time.
    pub(super) since_ms: u64,
    pub(super) open: (u64, u64),
}

impl Fleet {
    /// From when on to ask for ends; `None` while the answer to the last question is out, or is as good as
    /// new: where many jobs end at once, one question is for all of them.
    pub(super) fn hears(&mut self) -> Option<u64> {
        if self.hearing || self.asked.is_some_and(|asked| asked.elapsed() < PAUSE) {
            self.again = true;
            return None;
        }
        (self.hearing, self.again, self.asked) = (true, false, Some(Instant::now()));
        Some(self.since_ms)
    }

    /// The ends that were not heard of before.
    pub(super) fn heard(&mut self, heard: Result<Heard>) -> Result<Vec<Job>> {
        self.hearing = false;
        let Heard { ended, since_ms, open } = heard?;
        self.open = open;
        let first = self.since_ms == 0;
        self.since_ms = since_ms;
        let ids: BTreeSet<String> = ended.iter().map(|job| job.id.clone()).collect();
        let new = ended.into_iter().filter(|job| !self.known.contains(&job.id)).collect();
        self.known = ids;
        // What ended before this agent began is no news: it evaluates every table anyway.
        Ok(if first { Vec::new() } else { new })
    }

    /// Whether something ended since the last question.
    pub(super) fn asks_again(&self) -> bool {
        self.again && !self.hearing
    }

    /// How many agents of this root live, this one among them.
    pub(super) fn peers(&self, me: &Member) -> usize {
        1 + self.agents.iter().filter(|agent| agent.root == me.root && agent.name != me.name).count()
    }

    /// The tables of `all` that are `me`'s (SPEC section 7).
    pub(super) fn owned(&self, all: &[TableRef], me: &Member) -> Vec<TableRef> {
        let mine = self.owners(all, me).into_iter().zip(all).filter(|((_, other), _)| other.is_none());
        mine.map(|(_, table)| table.clone()).collect()
    }

    /// The names of `all`, and which agent has each of them; `None`: `me`.
    pub(super) fn owners(&self, all: &[TableRef], me: &Member) -> Vec<(String, Option<String>)> {
        let others = self.agents.iter().filter(|agent| agent.root == me.root && agent.name != me.name);
        let agents: Vec<&str> = others.map(|agent| agent.name.as_str()).chain([me.name.as_str()]).collect();
        let owner = |table: &TableRef| {
            let owner = planner::agent::owner(&table.uri, agents.iter().copied());
            owner.filter(|owner| *owner != me.name).map(str::to_string)
        };
        all.iter().map(|table| (table.name.clone(), owner(table))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Role;

    #[test]
    fn agents_of_one_root_divide_its_tables_and_each_counts_itself() {
        let all: Vec<TableRef> =
            (0..100).map(|n| TableRef { name: format!("t{n}"), uri: format!("/db/t{n}.lance") }).collect();
        let (me, other, stranger) =
            (Member::here(Role::Agent, "/db"), Member::here(Role::Agent, "/db"), Member::here(Role::Agent, "/else"));
        let fleet =
            |agents: &[&Member]| Fleet { agents: agents.iter().map(|m| (*m).clone()).collect(), ..Fleet::default() };
        assert_eq!(fleet(&[]).owned(&all, &me).len(), 100);
        assert_eq!(fleet(&[&me, &stranger]).owned(&all, &me).len(), 100);
        let both = fleet(&[&me, &other]);
        let (mine, theirs) = (both.owned(&all, &me), both.owned(&all, &other));
        assert_eq!(mine.len() + theirs.len(), 100);
        assert!(!mine.is_empty() && !theirs.is_empty() && mine.iter().all(|table| !theirs.contains(table)));
    }
}
