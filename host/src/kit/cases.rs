//! Tables as the simulator leaves them, and those that stand still.

use planner::{
    check,
    facts::{
        CleanupFacts, FailedFacts, FragmentFacts, GarbageFacts, GarbageKind, IndexFacts, MismatchFacts, PassFacts,
        RemapFacts, RunningFacts, ShardFacts, ShardStatus, SsTableFacts, TableFacts,
    },
    plan::{Plan, Trigger, plan_table},
    policy::Policy,
    simulate,
};

/// 2026-01-15 12:00:00 UTC.
const NOW_MS: u64 = 1_768_478_400_000;
const HOUR_MS: u64 = 3_600_000;
const MIB: u64 = 1 << 20;

/// Histories, and looks at each.
const HISTORIES: u64 = 8;
const LOOKS: u64 = 6;

/// One question to a planner. Its facts can be true.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is special about it.
    pub name: String,
    /// The table.
    pub facts: TableFacts,
    /// The policy.
    pub policy: Policy,
    /// The time.
    pub now_ms: u64,
    /// Why the plan is asked for.
    pub trigger: Trigger,
}

impl Case {
    /// What the built-in planner says.
    pub fn native(&self) -> Plan {
        plan_table(&self.facts, &self.policy, self.now_ms, self.trigger)
    }
}

/// All of them, always the same.
pub fn cases() -> Vec<Case> {
    let mut cases = standing();
    (1..=HISTORIES).for_each(|seed| history(seed, &mut cases));
    cases
}

/// Numbers without a pattern, always the same ones (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Writers flush, time passes, and most of what is due is done: a look at the table after each.
fn history(seed: u64, cases: &mut Vec<Case>) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut facts = table(1 + numbers.below(3), 0, numbers.below(4));
    facts.fragments = Some(Vec::new());
    let mut policy = Policy { trigger_count: 2 + numbers.below(4), ..Policy::default() };
    policy.index.rows_min = 1 + numbers.below(100_000);
    policy.cleanup.min_age_ms = numbers.below(2) * HOUR_MS;
    policy.compaction.defer_remap = numbers.below(2);
    let mut now_ms = NOW_MS;
    for look in 0..LOOKS {
        let many = facts.shards.len() as u64;
        for _ in 0..numbers.below(6) {
            let at = usize::try_from(numbers.below(many)).unwrap_or(0);
            flush(&mut facts.shards[at], numbers.below(64) * MIB, now_ms);
        }
        now_ms += numbers.below(30) * HOUR_MS;
        let case = Case {
            name: format!("history {seed}, look {look}"),
            facts: facts.clone(),
            policy: policy.clone(),
            now_ms,
            trigger: [Trigger::Tick, Trigger::Relief, Trigger::Forced][usize::from(numbers.below(8) == 0) * 2],
        };
        for job in case.native().jobs().filter(|_| numbers.below(4) > 0) {
            if check::job(job, &facts).is_ok() {
                simulate::apply(&mut facts, job, now_ms);
            }
        }
        cases.push(case);
    }
}

fn flush(shard: &mut ShardFacts, bytes: u64, now_ms: u64) {
    let newest = shard.sstables.iter().map(|s| s.generation).max().unwrap_or(0);
    let sstable = sstable(newest.max(shard.compacted_generation) + 1, bytes);
    shard.sstables.push(SsTableFacts { flushed_at_ms: Some(now_ms), ..sstable });
    shard.manifest_version += 1;
}

fn sstable(generation: u64, bytes: u64) -> SsTableFacts {
    SsTableFacts {
        generation,
        path: format!("gen_{generation}"),
        bytes: Some(bytes),
        rows: Some(bytes / 1000),
        flushed_at_ms: Some(NOW_MS - HOUR_MS),
    }
}

/// A table with so many shards, SSTables in each, and indexes. Half of the shards are folded half way.
pub fn table(shards: u64, sstables: u64, indexes: u64) -> TableFacts {
    let kinds = ["btree", "fts", "ivfpq", "zonemap", "bitmap"];
    let index = |n: u64| IndexFacts {
        name: format!("column_{n}_idx"),
        kind: kinds[usize::try_from(n).unwrap_or(0) % kinds.len()].into(),
        unindexed_rows: Some(n * 1000),
        segments: Some(1 + n),
        ..IndexFacts::default()
    };
    let indexes: Vec<IndexFacts> = (0..indexes).map(index).collect();
    let shard = |n: u64| ShardFacts {
        shard: format!("{n:08x}-0000-5000-8000-000000000000"),
        manifest_version: 100,
        sstables: (1..=sstables).map(|generation| sstable(generation, 16 * MIB)).collect(),
        compacted_generation: if n.is_multiple_of(2) { 0 } else { sstables / 2 },
        recorded_at_ms: Some(NOW_MS - HOUR_MS),
        caught_up: indexes.iter().map(|index| (index.name.clone(), sstables / 4 * (n % 2))).collect(),
        ..ShardFacts::default()
    };
    TableFacts {
        table: "items".into(),
        version: 7,
        rows: Some(1_000_000),
        primary_key: vec!["id".into()],
        shards: (0..shards).map(shard).collect(),
        indexes,
        ..TableFacts::default()
    }
}

/// Small, large and half deleted fragments.
pub fn fragments(many: u64) -> Vec<FragmentFacts> {
    let fragment = |id: u64| {
        let rows = if id.is_multiple_of(3) { 2_000_000 } else { 1_000 };
        FragmentFacts {
            id,
            rows,
            deleted: Some(id % 50),
            bytes: Some(rows * 100),
            coverage: 1,
            excluded: id % 100 == 99,
        }
    };
    (0..many).map(fragment).collect()
}

type Change = fn(&mut TableFacts);

/// What a history does not come to.
fn standing() -> Vec<Case> {
    let changes: [(&str, Change); 17] = [
        ("no table to speak of", |t| *t = TableFacts { table: "t".into(), version: 1, ..TableFacts::default() }),
        ("a shard with work", |_| {}),
        ("more than 4 GiB in each SSTable", |t| {
            each(t, |s| s.sstables.iter_mut().for_each(|s| s.bytes = Some(5 << 30)));
        }),
        ("the largest numbers", |t| each(t, |s| s.sstables.iter_mut().for_each(|s| s.bytes = Some(u64::MAX)))),
        ("sizes that nobody measured", |t| each(t, |s| s.sstables.iter_mut().for_each(|s| s.bytes = None))),
        ("paused", |t| t.paused = true),
        ("no primary key", |t| t.primary_key.clear()),
        ("sealed shards", |t| each(t, |s| s.status = ShardStatus::Sealed)),
        ("no MemWAL any more", |t| each(t, |s| s.detached = true)),
        ("a pass that runs", |t| each(t, |s| s.pass = Some(PassFacts { since_ms: NOW_MS - 1, holder: "job".into() }))),
        ("answers that differ", |t| t.mismatch = Some(MismatchFacts { kind: "compact".into(), at_ms: NOW_MS })),
        ("files that nobody needs", |t| each(t, |s| s.garbage = Some(garbage()))),
        ("fragments to rewrite", |t| t.fragments = Some(fragments(300))),
        ("a remap that waits", |t| {
            let oldest_at_ms = Some(NOW_MS - 5 * HOUR_MS);
            let indexes = t.indexes.iter().map(|index| index.name.clone()).collect();
            t.remap = Some(RemapFacts { rewrites: 9, oldest_at_ms, indexes });
        }),
        ("many versions", |t| {
            t.version = 100;
            t.cleanup = Some(CleanupFacts::default());
        }),
        ("indexes that cover all that is folded, but not all rows", |t| {
            each(t, |s| s.caught_up.values_mut().for_each(|covers| *covers = s.compacted_generation));
            t.indexes.iter_mut().for_each(|index| index.unindexed_rows = Some(500_000));
        }),
        ("open and failing jobs", |t| {
            t.fragments = Some(fragments(300));
            t.running = ["compact", "reindex_btree"].map(open).to_vec();
            t.failed = vec![FailedFacts { kind: "remap".into(), times: 3, last_at_ms: NOW_MS - 1 }];
        }),
    ];
    let mut policy = Policy::default();
    policy.cleanup.min_age_ms = HOUR_MS;
    let case = |name: &str, facts: TableFacts, trigger| Case {
        name: name.into(),
        facts,
        policy: policy.clone(),
        now_ms: NOW_MS,
        trigger,
    };
    let changed = changes.map(|(name, change)| {
        let mut facts = table(2, 8, 3);
        change(&mut facts);
        case(name, facts, Trigger::Tick)
    });
    let mut cases = changed.to_vec();
    cases.push(case("forced", table(2, 3, 3), Trigger::Forced));
    cases.push(case("64 shards, 8 SSTables in each, 10 indexes", table(64, 8, 10), Trigger::Tick));
    cases
}

fn each(table: &mut TableFacts, change: fn(&mut ShardFacts)) {
    table.shards.iter_mut().for_each(change);
}

fn open(kind: &str) -> RunningFacts {
    RunningFacts {
        kind: kind.into(),
        since_ms: NOW_MS - HOUR_MS,
        holder: "worker".into(),
        deferred: false,
        indexes: Vec::new(),
    }
}

fn garbage() -> Vec<GarbageFacts> {
    let file = |position| GarbageFacts {
        kind: GarbageKind::WalEntry,
        path: format!("wal/{position:08}"),
        position,
        bytes: MIB,
        since_ms: Some(NOW_MS - 100 * HOUR_MS + position),
    };
    (1..6).map(file).collect()
}
