//! The clock: it goes from event to event, and asks the planner when the agent would.

use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};

use super::faults::Fault;
use super::queue::Queue;
use super::records::{Left, Records};
use super::series::{Recorder, State};
use super::start::{Simulation, Unfit};
use super::timeline::Timeline;
use super::work::World;
use super::writer::Writer;
use crate::agent::{Agent, Effect, Event};
use crate::facts::ShardStatus;
use crate::plan::{Hold, Outcome, Plan, Trigger, Verdict, plan_shard, plan_table};
use crate::policy::Policy;

/// Most events of a simulation.
const STEPS_MAX: u64 = 500_000;
/// Most things that are looked at in it: fragments, SSTables and files, whenever a plan is made or one of them moves.
const WORK_MAX: u64 = 30_000_000;

/// Runs a simulation. The same one gives the same timeline.
///
/// # Errors
/// What is out of range, and one of too many events.
pub fn run(simulation: &Simulation) -> Result<Timeline, Unfit> {
    simulation.check()?;
    let mut clock = Clock::new(simulation);
    while clock.step()? {}
    Ok(clock.end())
}

/// A simulation in progress. Times are milliseconds since the start, but where they say what the clock of
/// the machine says: that may be put back.
pub(super) struct Clock<'a> {
    pub(super) simulation: &'a Simulation,
    pub(super) start_ms: u64,
    /// Of the table's own policy.
    grace_ms: u64,
    pub(super) now_ms: u64,
    /// By how much the machine's clock was put back.
    pub(super) back_ms: u64,
    pub(super) world: World,
    pub(super) writer: Writer,
    /// The shards that are written to, as positions in the facts.
    pub(super) targets: Vec<usize>,
    pub(super) queue: Queue,
    agent: Agent,
    /// By time, the next one last.
    pub(super) faults: Vec<Fault>,
    pub(super) full_until_ms: u64,
    pub(super) away_until_ms: u64,
    /// Commits that somebody else will be faster than.
    pub(super) conflicts: u64,
    /// From when on the agent knows that something happened.
    pub(super) notice_ms: Option<u64>,
    /// When time alone makes something due, by the machine's clock.
    pub(super) wake_at_ms: Option<u64>,
    /// Since the last plan something has moved that the table's decisions look at.
    pub(super) table_moved: bool,
    /// When time alone changes one of them, by the machine's clock.
    table_due_at_ms: Option<u64>,
    /// When the table was last evaluated, and its folders walked, by the machine's clock.
    tried_at_ms: Option<u64>,
    pub(super) walked_at_ms: Option<u64>,
    ticked_ms: Option<u64>,
    /// Writes are held: the next evaluation is a relief pass.
    pub(super) relief: bool,
    /// By kind of job: races lost in a row, and until when the next one waits, by the machine's clock.
    pub(super) lost: BTreeMap<String, (u64, u64)>,
    pub(super) records: Records,
    recorder: Recorder,
    state: State,
    pub(super) steps: u64,
    work: u64,
}

impl<'a> Clock<'a> {
    fn new(simulation: &'a Simulation) -> Self {
        let (start_ms, workload) = (simulation.start_ms(), &simulation.workload);
        let facts = simulation.table();
        let mut faults = simulation.faults.clone();
        faults.sort_by_key(Fault::at_ms);
        let bursts = faults.iter().filter_map(|fault| match fault {
            Fault::Burst { at_ms, for_ms, times } => Some((*at_ms, at_ms.saturating_add(*for_ms), *times)),
            _ => None,
        });
        let own = simulation.policy.for_table(&facts.overrides).policy;
        let (age_ms_max, grace_ms) = (own.age_ms_max, own.grace_ms);
        let takes = |shard: &crate::facts::ShardFacts| shard.status == ShardStatus::Active && !shard.detached;
        let each = facts.shards.iter().enumerate();
        let targets: Vec<usize> = each.filter(|(_, shard)| takes(shard)).map(|(at, _)| at).collect();
        let writer = Writer::new(workload, targets.len(), age_ms_max, start_ms, bursts.collect());
        let shards: Vec<String> = facts.shards.iter().map(|shard| shard.shard.clone()).collect();
        let mut agent = Agent::new(simulation.policy.agent.clone());
        let tables = [facts.table.clone()].into();
        agent.handle(Event::OwnershipChanged { tables }, start_ms);
        faults.reverse();
        let mut clock = Self {
            simulation,
            start_ms,
            grace_ms,
            now_ms: 0,
            back_ms: 0,
            world: World::new(workload, facts, start_ms),
            writer,
            targets,
            queue: Queue::default(),
            agent,
            faults,
            full_until_ms: 0,
            away_until_ms: 0,
            conflicts: 0,
            notice_ms: None,
            wake_at_ms: None,
            table_moved: true,
            table_due_at_ms: None,
            tried_at_ms: None,
            walked_at_ms: None,
            ticked_ms: None,
            relief: false,
            lost: BTreeMap::new(),
            records: Records::default(),
            recorder: Recorder::new(start_ms, simulation.duration_ms, simulation.samples, &shards),
            state: State::default(),
            steps: 0,
            work: 0,
        };
        clock.note();
        clock
    }

    pub(super) fn policy(&self) -> &'a Policy {
        &self.simulation.policy
    }

    /// What the machine's clock says.
    pub(super) fn wall_ms(&self) -> u64 {
        self.start_ms.saturating_add(self.now_ms).saturating_sub(self.back_ms)
    }

    /// When the machine's clock will say `wall_ms`.
    fn since_start(&self, wall_ms: u64) -> u64 {
        wall_ms.saturating_add(self.back_ms).saturating_sub(self.start_ms)
    }

    /// The next event; `false`: there is none until the end.
    fn step(&mut self) -> Result<bool, Unfit> {
        let tick = self.next_tick();
        let others = [self.writer.next(), self.queue.next(), self.next_fault()];
        let next = others.into_iter().flatten().chain([tick]).min().unwrap_or(tick).max(self.now_ms);
        if next > self.simulation.duration_ms {
            return Ok(false);
        }
        self.steps += 1;
        self.work += self.writer.memtables.len() as u64;
        if self.is_too_much() {
            return Err(Unfit::TooMany { at_ms: self.now_ms, steps: self.steps });
        }
        self.writer.advance(next);
        self.now_ms = next;
        self.strike();
        self.end_attempts();
        self.flush();
        if tick == next && self.away_until_ms <= next {
            self.tick();
        }
        self.begin_attempts();
        self.note();
        Ok(true)
    }

    /// Whether there were more events than anybody should wait for.
    pub(super) fn is_too_much(&self) -> bool {
        self.steps > STEPS_MAX || self.work > WORK_MAX
    }

    /// Something changed that the next walk sees (R2.1).
    pub(super) fn change(&mut self) {
        let period = self.policy().tick_ms;
        if period > 0 {
            let walk = self.now_ms.div_ceil(period).saturating_mul(period);
            self.notice_ms = Some(self.notice_ms.map_or(walk, |at| at.min(walk)));
        }
    }

    /// Something happened that the agent is told of at once.
    pub(super) fn notify(&mut self) {
        self.notice_ms = Some(self.now_ms);
    }

    /// When the agent's next tick is that does anything.
    fn next_tick(&self) -> u64 {
        let agent = &self.policy().agent;
        let sweep = self.tried_at_ms.map_or(0, |at| self.since_start(at.saturating_add(agent.sweep_ms)));
        let wake = self.wake_at_ms.map(|at| self.since_start(at));
        let from = wake.into_iter().chain(self.notice_ms).chain([sweep]).min().unwrap_or(sweep);
        let after = self.ticked_ms.map_or(0, |at| at.saturating_add(1));
        let from = from.max(after).max(self.now_ms).max(self.away_until_ms);
        from.div_ceil(agent.tick_ms).saturating_mul(agent.tick_ms)
    }

    /// The agent's tick: it says whether the table's turn has come (R3.1).
    fn tick(&mut self) {
        let (now, table) = (self.wall_ms(), self.world.facts.table.clone());
        self.ticked_ms = Some(self.now_ms);
        let woken = self.wake_at_ms.is_some_and(|at| at <= now);
        if woken || self.notice_ms.is_some_and(|at| at <= self.now_ms) {
            self.wake_at_ms = self.wake_at_ms.filter(|_| !woken);
            self.agent.handle(Event::Notified { table }, now);
        }
        for effect in self.agent.handle(Event::Tick, now) {
            let Effect::Read { table, evaluation } = effect else { continue };
            let plan = Box::new(self.evaluate());
            let enqueue = self.agent.handle(Event::FactsRead { table, evaluation, plan }, now);
            for effect in enqueue {
                if let Effect::Enqueue { plan } = effect {
                    self.enqueue(&plan);
                }
            }
        }
    }

    /// Facts as they are read, and the plan made of them. Folders are walked once a sweep.
    fn evaluate(&mut self) -> Plan {
        let (now, policy) = (self.wall_ms(), self.policy());
        let trigger = if core::mem::take(&mut self.relief) { Trigger::Relief } else { Trigger::Tick };
        (self.notice_ms, self.tried_at_ms) = (None, Some(now));
        self.records.totals.evaluations += 1;
        self.show_open();
        let walks = self.walked_at_ms.is_none_or(|at| now.saturating_sub(at) >= policy.agent.sweep_ms);
        let unwalked: Vec<_> = match walks {
            true => {
                self.world.garbage.surface(&mut self.world.facts, self.grace_ms, now);
                Vec::new()
            }
            false => self.world.facts.shards.iter_mut().map(|shard| shard.garbage.take()).collect(),
        };
        let plan = self.plan(now, trigger);
        for (shard, garbage) in self.world.facts.shards.iter_mut().zip(unwalked) {
            shard.garbage = garbage;
        }
        if walks {
            self.walked_at_ms = Some(now);
        }
        self.wake_at_ms = self.table_due_at_ms.into_iter().chain(wake_at_ms(plan.verdicts.iter())).min();
        plan
    }

    /// What the planner says. Of a base in which nothing has moved, and whose decisions time alone has not
    /// changed, only the shards are asked: the other verdicts would be those of the plan before.
    fn plan(&mut self, now: u64, trigger: Trigger) -> Plan {
        let (facts, policy) = (&self.world.facts, self.policy());
        let moved = core::mem::take(&mut self.table_moved) || self.table_due_at_ms.is_some_and(|at| at <= now);
        self.work += self.world.size(moved);
        if moved {
            let plan = plan_table(facts, policy, now, trigger);
            self.table_due_at_ms = wake_at_ms(plan.verdicts.iter().filter(|verdict| verdict.shard.is_none()));
            return plan;
        }
        let shards = facts.shards.iter().flat_map(|shard| plan_shard(facts, shard, policy, now, trigger));
        Plan {
            table: facts.table.clone(),
            version: facts.version,
            at_ms: now,
            verdicts: shards.collect(),
            staleness_bound_ms: None,
            complaints: Vec::new(),
        }
    }

    /// Writes down how things are from now on.
    fn note(&mut self) {
        if self.world.changed || self.world.flushed {
            self.work += self.world.size(self.world.changed);
        }
        self.world.count(self.policy(), &mut self.state);
        let waiting =
            (0..self.writer.memtables.len()).map(|shard| self.writer.waiting(shard)).fold(0, u64::saturating_add);
        let first = self.writer.memtables.iter().filter_map(|memtable| memtable.first_ms).min();
        let first = first.map(|at| self.start_ms.saturating_add(at));
        self.state.oldest_ms = self.world.oldest_ms().into_iter().chain(first).min();
        self.state.held = self.writer.held;
        let running = self.queue.claims() as u64;
        let open = self.queue.open.len() as u64;
        self.state.running = (running, open - self.queue.open.iter().filter(|open| open.run.is_some()).count() as u64);
        self.state.log_bytes = waiting.saturating_mul(self.simulation.workload.row_bytes);
        self.recorder.note(self.now_ms, &self.state);
    }

    /// The timeline.
    fn end(mut self) -> Timeline {
        let left = self.simulation.duration_ms;
        self.writer.advance(left);
        self.now_ms = left;
        self.note();
        self.world.garbage.show(&mut self.world.facts);
        self.show_open();
        let plan = plan_table(&self.world.facts, self.policy(), self.wall_ms(), Trigger::Tick);
        self.records.totals.steps = self.steps;
        self.finish(plan)
    }

    /// What the recorder and the records have, as one.
    fn finish(mut self, plan: Plan) -> Timeline {
        let memtable_rows = (0..self.writer.memtables.len()).map(|shard| self.writer.waiting(shard));
        let totals = &mut self.records.totals;
        totals.memtable_rows = memtable_rows.fold(0, u64::saturating_add);
        totals.rows = self.writer.rows();
        totals.stalled_ms = self.recorder.held_total_ms;
        let (samples, staleness) = self.recorder.end();
        let left = Left { open: self.queue.open, live_rows: self.world.live_rows(), facts: self.world.facts, plan };
        self.records.end(self.simulation, left, samples, staleness)
    }
}

/// When time alone changes a verdict, by the machine's clock.
fn wake_at_ms<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Option<u64> {
    let times = verdicts.filter_map(|verdict| match &verdict.outcome {
        Outcome::NotDue { due_at_ms, .. } => *due_at_ms,
        Outcome::Held { hold: Hold::Failing { until_ms, .. }, .. } => Some(*until_ms),
        _ => None,
    });
    times.min()
}
