//! What the agent hands on, what workers take, and what becomes of it.

use alloc::{collections::BTreeSet, format, string::String, vec::Vec};

use super::clock::Clock;
use super::faults::Fault;
use super::queue::{Lane, Open, Run, is_fold};
use super::timeline::JobOutcome;
use super::work::Extra;
use crate::check;
use crate::facts::{FailedFacts, GarbageFacts, GarbageKind, PassFacts, RunningFacts, SsTableFacts};
use crate::job::JobSpec;
use crate::plan::{Outcome, Plan, Reason};

impl Clock<'_> {
    pub(super) fn next_fault(&self) -> Option<u64> {
        let ends = [self.full_until_ms, self.away_until_ms].into_iter().filter(|at| *at > self.now_ms);
        ends.chain(self.faults.last().map(Fault::at_ms)).min()
    }

    /// Faults whose moment has come.
    pub(super) fn strike(&mut self) {
        while let Some(fault) = self.faults.pop_if(|fault| fault.at_ms() <= self.now_ms) {
            let until = fault.at_ms().saturating_add(fault.for_ms());
            match fault {
                Fault::WorkerDies { silent_ms, .. } => self.die(silent_ms),
                Fault::CommitConflict { .. } => self.conflicts += 1,
                // Its rows come with the others.
                Fault::Burst { .. } => {}
                Fault::ClockBack { by_ms, .. } => {
                    self.back_ms = self.back_ms.saturating_add(by_ms);
                    self.table_moved = true;
                }
                Fault::DiskFull { .. } => self.full_until_ms = self.full_until_ms.max(until),
                Fault::RegistryAway { .. } => self.away_until_ms = self.away_until_ms.max(until),
            }
        }
    }

    /// What runs is lost, and nobody knows until its worker has been silent for long enough.
    fn die(&mut self, silent_ms: u64) {
        let at_ms = self.now_ms.saturating_add(silent_ms);
        for open in self.queue.open.iter_mut() {
            let Some(run) = open.run.as_mut().filter(|run| !run.dead) else { continue };
            (run.dead, run.at_ms) = (true, at_ms);
            let kind = self.records.totals.jobs.entry(open.kind.clone()).or_default();
            kind.lost += 1;
        }
    }

    /// Hands due jobs on; one of which an equal is open is refused, and one that keeps failing or losing
    /// waits.
    pub(super) fn enqueue(&mut self, plan: &Plan) {
        let now = self.wall_ms();
        for verdict in &plan.verdicts {
            let Outcome::Due { jobs, reasons } = &verdict.outcome else { continue };
            for job in jobs {
                let until = self.waits_until(job);
                if now < until {
                    self.wake_at_ms = Some(self.wake_at_ms.map_or(until, |at| at.min(until)));
                    self.table_moved |= job.shard().is_none();
                    continue;
                }
                let why = why(job, reasons);
                let taken = self.queue.push(job, verdict.decision, why, self.now_ms);
                self.table_moved |= taken && job.shard().is_none();
            }
        }
    }

    /// Until when a job waits, by the machine's clock. The planner holds the base's own back by itself.
    fn waits_until(&self, job: &JobSpec) -> u64 {
        let kind = job.kind();
        let lost = self.lost.get(&kind).map_or(0, |(_, until)| *until);
        let failed = self.world.facts.failed.iter().find(|failed| failed.kind == kind);
        let failed = failed.filter(|_| !matches!(job, JobSpec::Cleanup { .. }));
        let backoff = |failed: &FailedFacts| self.policy().agent.backoff_after(failed.times);
        lost.max(failed.map_or(0, |failed| failed.last_at_ms.saturating_add(backoff(failed))))
    }

    /// The open jobs, as facts show them.
    pub(super) fn show_open(&mut self) {
        let facts = &mut self.world.facts;
        facts.running.clear();
        facts.shards.iter_mut().for_each(|shard| shard.pass = None);
        let (start, back) = (self.start_ms, self.back_ms);
        for open in &self.queue.open {
            let since_ms = start.saturating_add(open.started_ms.unwrap_or(open.enqueued_ms)).saturating_sub(back);
            let waits = if open.run.is_some() { "" } else { ", which waits" };
            let holder = format!("job {}{waits}", open.id);
            match &open.spec {
                JobSpec::Fold { shard, .. } | JobSpec::Retire { shard, .. } => {
                    for shard in facts.shards.iter_mut().filter(|s| s.shard == *shard) {
                        shard.pass.get_or_insert_with(|| PassFacts { since_ms, holder: holder.clone() });
                    }
                }
                spec => facts.running.push(RunningFacts {
                    kind: open.kind.clone(),
                    since_ms,
                    holder,
                    deferred: matches!(spec, JobSpec::Compact { deferred: true, .. }),
                    indexes: match spec {
                        JobSpec::CatchUp { indexes, .. } | JobSpec::Index { indexes, .. } => indexes.clone(),
                        _ => Vec::new(),
                    },
                }),
            }
        }
    }

    /// Workers take what they have room for.
    pub(super) fn begin_attempts(&mut self) {
        if self.away_until_ms > self.now_ms {
            return;
        }
        let (slots, policy) = (self.simulation.workload.worker_slots, self.policy());
        loop {
            let taken = self.queue.claim(slots, policy.concurrency, policy.pass_bytes);
            let Some(first) = taken.first().map(|at| self.queue.open[*at].id) else { return };
            let (mut runs, mut ended, mut until) = (Vec::new(), Vec::new(), self.now_ms);
            for at in taken {
                let open = &mut self.queue.open[at];
                open.attempts += 1;
                if open.started_ms.is_none() {
                    self.records.waits.push(self.now_ms - open.enqueued_ms);
                }
                open.started_ms = Some(self.now_ms);
                // What was overtaken since it was planned is given up (R3.6).
                if check::job(&open.spec, &self.world.facts).is_err() {
                    ended.push(open.id);
                    continue;
                }
                let work = self.world.cost(&open.spec);
                until = until.saturating_add(work.ms);
                runs.push((at, work));
            }
            // One pass reads one prefix after the other, and commits once.
            let commits = (runs.len() as u64).saturating_sub(1).saturating_mul(self.simulation.workload.commit_ms);
            let at_ms = until.saturating_sub(commits).max(self.now_ms + 1);
            for (at, work) in runs {
                self.queue.open[at].run = Some(Run { claim: first, at_ms, dead: false, work });
            }
            for id in ended {
                self.close(id, JobOutcome::Conflict);
            }
        }
    }

    /// Attempts that end now.
    pub(super) fn end_attempts(&mut self) {
        loop {
            let due = |open: &&Open| open.run.as_ref().is_some_and(|run| run.at_ms <= self.now_ms);
            let Some(first) = self.queue.open.iter().find(due) else { return };
            let Some(run) = first.run.clone() else { return };
            let of_claim = |open: &&Open| open.run.as_ref().is_some_and(|other| other.claim == run.claim);
            let ids: Vec<u64> = self.queue.open.iter().filter(of_claim).map(|open| open.id).collect();
            if run.dead {
                for open in self.queue.open.iter_mut().filter(|open| ids.contains(&open.id)) {
                    open.run = None;
                }
                continue;
            }
            let outcome = self.outcome(&ids);
            if outcome == JobOutcome::Done {
                self.carry_out(&ids);
            }
            for id in ids {
                self.close(id, outcome);
            }
        }
    }

    /// What becomes of a claim.
    fn outcome(&mut self, ids: &[u64]) -> JobOutcome {
        let Some(first) = self.queue.open.iter().find(|open| open.id == ids[0]) else { return JobOutcome::Conflict };
        let frees = matches!(first.spec, JobSpec::Cleanup { .. } | JobSpec::Collect { .. });
        if self.full_until_ms > self.now_ms && !frees {
            return JobOutcome::Failed;
        }
        if first.lane == Lane::Base && self.conflicts > 0 {
            self.conflicts -= 1;
            return JobOutcome::Conflict;
        }
        let chance = mixed(self.simulation.seed ^ mixed(first.id ^ mixed(first.attempts))) % 1_000;
        if chance < self.simulation.workload.failure_permille {
            return JobOutcome::Failed;
        }
        let fits = |open: &Open| check::job(&open.spec, &self.world.facts).is_ok();
        match self.queue.open.iter().filter(|open| ids.contains(&open.id)).all(fits) {
            true => JobOutcome::Done,
            false => JobOutcome::Conflict,
        }
    }

    fn carry_out(&mut self, ids: &[u64]) {
        let now = self.wall_ms();
        let of_claim = |open: &&Open| ids.contains(&open.id);
        let (folds, rest): (Vec<&Open>, Vec<&Open>) =
            self.queue.open.iter().filter(of_claim).partition(|open| is_fold(open));
        let prefix = |open: &&Open| match &open.spec {
            JobSpec::Fold { shard, sstables, .. } => Some((shard.clone(), sstables.clone())),
            _ => None,
        };
        let folds: Vec<_> = folds.iter().filter_map(prefix).collect();
        if !folds.is_empty() {
            self.records.totals.passes += 1;
            self.records.totals.folded += folds.iter().map(|(_, sstables)| sstables.len() as u64).sum::<u64>();
            self.world.fold(&folds, now);
            self.world.facts.failed.retain(|failed| failed.kind != "memwal_compaction");
        }
        for open in rest {
            self.world.run(&open.spec, now);
            if matches!(open.spec, JobSpec::Collect { .. }) {
                // There may be more.
                self.walked_at_ms = None;
            }
        }
    }

    /// Writes down what became of a job; the agent hears of it.
    fn close(&mut self, id: u64, outcome: JobOutcome) {
        let Some(at) = self.queue.open.iter().position(|open| open.id == id) else { return };
        let open = self.queue.open.remove(at);
        let now = self.wall_ms();
        let agent = &self.policy().agent;
        self.table_moved |= !matches!(open.spec, JobSpec::Retire { .. } | JobSpec::Collect { .. });
        if outcome == JobOutcome::Conflict {
            let (times, until) = self.lost.entry(open.kind.clone()).or_default();
            *times += 1;
            *until = now.saturating_add(agent.backoff_after(*times - 1));
        } else {
            self.lost.remove(&open.kind);
        }
        if outcome == JobOutcome::Failed {
            self.fail(&open, now);
        }
        self.records.close(open, outcome, self.now_ms);
        self.notify();
    }

    fn fail(&mut self, open: &Open, now: u64) {
        let facts = &mut self.world.facts;
        if matches!(open.spec, JobSpec::Cleanup { .. }) {
            facts.cleanup.get_or_insert_default().last_failure_at_ms = Some(now);
        }
        match facts.failed.iter_mut().find(|failed| failed.kind == open.kind) {
            Some(failed) => (failed.times, failed.last_at_ms) = (failed.times.saturating_add(1), now),
            None => facts.failed.push(FailedFacts { kind: open.kind.clone(), times: 1, last_at_ms: now }),
        }
    }

    /// Memtables become SSTables, or full writes commits; where they can't, clients wait.
    pub(super) fn flush(&mut self) {
        let full = self.full_until_ms > self.now_ms;
        let was_held = core::mem::take(&mut self.writer.held);
        for nth in 0..self.writer.memtables.len() {
            let lsm = self.simulation.workload.lsm > 0;
            let depth = if lsm { self.world.unfolded[self.targets[nth]].len() as u64 } else { 0 };
            let blocked = full || depth >= self.simulation.workload.stop_sstables && lsm;
            self.writer.memtables[nth].blocked = blocked;
            let is_full = self.writer.is_full(nth);
            if blocked {
                self.writer.held |= is_full;
            } else if !lsm {
                while self.writer.is_full(nth) && !self.is_too_much() {
                    self.steps += 1;
                    self.commit(nth);
                }
            } else if is_full || self.writer.is_old(nth) {
                self.freeze(nth);
            }
        }
        if self.writer.held && !was_held {
            self.relief = true;
            self.notify();
        }
    }

    fn commit(&mut self, nth: usize) {
        let (now, row_bytes) = (self.wall_ms(), self.simulation.workload.row_bytes);
        let (_, written) = self.writer.flush(nth);
        self.records.wrote("commit", written.rows().saturating_mul(row_bytes));
        self.records.totals.commits += 1;
        self.world.commit(written, now);
        self.table_moved = true;
        self.change();
    }

    /// One flush makes one SSTable, and what its log held is replayed no more.
    fn freeze(&mut self, nth: usize) {
        let (now, at) = (self.wall_ms(), self.targets[nth]);
        let (first, written) = self.writer.flush(nth);
        let newest = self.world.newest(written, self.targets.len() as u64);
        let bytes = written.rows().saturating_mul(self.simulation.workload.row_bytes);
        let (generation, log) = self.world.next_generation(at);
        let shard = &mut self.world.facts.shards[at];
        shard.manifest_version = shard.manifest_version.saturating_add(1);
        shard.sstables.push(SsTableFacts {
            generation,
            path: format!("simulated_{generation}"),
            bytes: Some(bytes),
            rows: Some(newest.rows.saturating_add(newest.tombstones)),
            flushed_at_ms: Some(now),
        });
        let (kind, path) = (GarbageKind::WalEntry, format!("wal/simulated_{log}"));
        let entry = GarbageFacts { kind, path, position: log, bytes, since_ms: Some(now) };
        self.world.garbage.log(at, shard, entry);
        let first_ms = self.start_ms.saturating_add(first);
        self.world.unfolded[at].push(Extra { generation, first_ms, written });
        self.world.flushed = true;
        self.records.wrote("wal", bytes);
        self.records.wrote("flush", bytes);
        self.records.totals.flushes += 1;
        self.change();
    }
}

/// The comparison that made a job due: its own where several were, or else the verdict's.
fn why(job: &JobSpec, reasons: &[Reason]) -> Option<Reason> {
    let names: BTreeSet<&String> = match job {
        JobSpec::CatchUp { indexes, .. } | JobSpec::Index { indexes, .. } => indexes.iter().collect(),
        _ => BTreeSet::new(),
    };
    let own = |reason: &&Reason| reason.subject.as_ref().is_some_and(|subject| names.contains(subject));
    reasons.iter().find(own).or_else(|| reasons.first()).cloned()
}

/// Spreads every bit of `n` over all of them (the finalizer of SplitMix64).
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
