use alloc::{collections::BTreeSet, format, string::String, vec, vec::Vec};

use super::{base, bytes, cut, duration, fit};
use crate::facts::{GarbageFacts, GarbageKind, ShardFacts, ShardStatus, SsTableFacts, TableFacts};
use crate::time::age_ms;

/// Most columns for generations.
const COLUMNS: u64 = 32;
/// Room of a row's name.
const NAME: usize = 24;

/// Draws a table: one line of its own, then each shard in shard order.
pub fn facts(facts: &TableFacts, now_ms: u64) -> String {
    let mut lines = vec![head(facts, now_ms)];
    lines.extend(base::lines(facts, now_ms));
    let mut shards: Vec<&ShardFacts> = facts.shards.iter().collect();
    shards.sort_by(|a, b| a.shard.cmp(&b.shard));
    for shard in shards {
        lines.extend(self::shard(facts, shard, now_ms));
    }
    lines.iter().map(|line| fit(line) + "\n").collect()
}

fn head(facts: &TableFacts, now_ms: u64) -> String {
    let mut notes = vec![format!("version {}", facts.version)];
    notes.extend(facts.rows.map(|rows| format!("{rows} rows")));
    notes.push(match facts.primary_key.is_empty() {
        true => "no primary key".into(),
        false => format!("key {}", facts.primary_key.join("+")),
    });
    if facts.stable_row_ids {
        notes.push("stable row ids".into());
    }
    notes.extend(facts.versions.map(|versions| format!("{versions} versions")));
    if facts.is_paused() {
        notes.push("paused".into());
    }
    if let Some(mismatch) = &facts.mismatch {
        notes.push(format!("answers changed by {} {} ago", mismatch.kind, duration(age_ms(now_ms, mismatch.at_ms))));
    }
    if facts.shards.is_empty() {
        notes.push("no shard".into());
    }
    format!("table {}     {}", cut(&facts.table, 40), notes.join(", "))
}

fn shard(facts: &TableFacts, shard: &ShardFacts, now_ms: u64) -> Vec<String> {
    let scale = Scale::of(facts, shard);
    let mut indexes: Vec<&str> = facts.indexes.iter().map(|i| i.name.as_str()).collect();
    indexes.sort_unstable();
    // `shard ` is four wider than a row's indent.
    let id = short(&shard.shard);
    let names = indexes.iter().map(|name| name.chars().count());
    let width = names.chain([id.chars().count() + 4]).max().unwrap_or(0).clamp(10, NAME);
    let row = |name: &str, columns: String, notes: String| {
        let name = cut(name, width);
        format!("  {name:<width$}  {columns}     {notes}")
    };
    let (id, room) = (cut(id, width - 4), width - 4);
    let notes = [scale.note(), status(shard, now_ms)].concat().join(", ");
    let mut lines = vec![format!("shard {id:<room$}  {}     {notes}", scale.header())];
    lines.push(row("base", scale.covered(shard.compacted_generation), String::new()));
    let listed = shard.sstables.iter().map(|s| s.generation);
    lines.push(row("sstables", scale.marked(listed), sstables(shard, now_ms)));
    for index in indexes {
        lines.push(row(index, scale.covered(shard.covered_by(index)), String::new()));
    }
    if let Some(retained) = shard.retained_generation.filter(|r| *r < shard.compacted_generation) {
        let by = shard.retained_by.as_ref().map(|by| format!("by {by}"));
        lines.push(row("retained", scale.covered(retained), by.unwrap_or_default()));
    }
    if let Some(files) = shard.garbage.as_ref().filter(|files| !files.is_empty()) {
        let folders = files.iter().filter(|f| f.kind == GarbageKind::SsTable).map(|f| f.position);
        lines.push(row("unlisted", scale.marked(folders), unlisted(files, now_ms)));
    }
    lines
}

/// A UUID's first group tells the shards of a table apart for people.
fn short(shard: &str) -> &str {
    match shard.split_once('-') {
        Some((group, _)) if shard.len() == 36 => group,
        _ => shard,
    }
}

fn status(shard: &ShardFacts, now_ms: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if shard.status == ShardStatus::Sealed {
        notes.push("sealed".into());
    }
    if shard.detached {
        notes.push("detached".into());
    }
    if let Some(pass) = &shard.pass {
        let running = duration(age_ms(now_ms, pass.since_ms));
        notes.push(format!("pass by {} for {running}", pass.holder));
    }
    notes
}

fn sstables(shard: &ShardFacts, now_ms: u64) -> String {
    let listed = &shard.sstables;
    if listed.is_empty() {
        return "none".into();
    }
    let mut notes = vec![sizes(listed)];
    if let Some(oldest) = listed.iter().filter_map(|s| s.flushed_at_ms).min() {
        notes.push(format!("oldest {}", duration(age_ms(now_ms, oldest))));
    }
    match shard.leftovers().len() {
        0 => {}
        all if all == listed.len() => notes.push("folded".into()),
        some => notes.push(format!("{some} folded")),
    }
    notes.join(", ")
}

fn sizes(listed: &[SsTableFacts]) -> String {
    let measured: Vec<u64> = listed.iter().filter_map(|s| s.bytes).collect();
    let missing = listed.len() - measured.len();
    let sum = measured.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    match measured.as_slice() {
        [] => "unmeasured".into(),
        [one] if missing == 0 => bytes(*one),
        [first, rest @ ..] if missing == 0 && rest.iter().all(|b| b == first) => {
            format!("{} each", bytes(*first))
        }
        _ if missing == 0 => format!("{} in {}", bytes(sum), listed.len()),
        _ => format!("{} in {}, {missing} unmeasured", bytes(sum), measured.len()),
    }
}

fn unlisted(files: &[GarbageFacts], now_ms: u64) -> String {
    let mut notes = Vec::new();
    for (kind, one, many) in [
        (GarbageKind::SsTable, "SSTable", "SSTables"),
        (GarbageKind::WalEntry, "WAL entry", "WAL entries"),
        (GarbageKind::Manifest, "manifest", "manifests"),
    ] {
        match files.iter().filter(|f| f.kind == kind).count() {
            0 => {}
            1 => notes.push(format!("1 {one}")),
            count => notes.push(format!("{count} {many}")),
        }
    }
    notes.push(bytes(files.iter().fold(0, |sum, f| sum.saturating_add(f.bytes))));
    if let Some(oldest) = files.iter().filter_map(|f| f.since_ms).min() {
        notes.push(format!("oldest {}", duration(age_ms(now_ms, oldest))));
    }
    notes.join(", ")
}

/// Which generations stand in which column.
struct Scale {
    first: u64,
    last: u64,
    /// Generations a column.
    step: u64,
}

impl Scale {
    /// Everything from generation 1 where that fits, else from a little before the first one where
    /// anything differs.
    fn of(facts: &TableFacts, shard: &ShardFacts) -> Self {
        let folded = shard.compacted_generation;
        let listed = shard.sstables.iter().map(|s| s.generation);
        let covered = facts.indexes.iter().map(|i| shard.covered_by(&i.name));
        let folders = shard.garbage.iter().flatten().filter(|f| f.kind == GarbageKind::SsTable);
        let marks: Vec<u64> = listed.chain(folders.map(|f| f.position)).collect();
        let edges: Vec<u64> =
            covered.chain(shard.retained_generation).map(|edge| edge.min(folded)).chain([folded]).collect();
        let last = marks.iter().chain(&edges).copied().max().unwrap_or(0).max(1);
        let lowest = marks.iter().chain(&edges).copied().min().unwrap_or(0);
        let first = if last <= COLUMNS { 1 } else { lowest.saturating_sub(2).max(1) };
        Self { first, last, step: (last - first) / COLUMNS + 1 }
    }

    fn columns(&self) -> impl Iterator<Item = (u64, u64)> {
        let count = (self.last - self.first) / self.step;
        (0..=count).map(|column| {
            let from = self.first + column * self.step;
            (from, from.saturating_add(self.step - 1).min(self.last))
        })
    }

    fn header(&self) -> String {
        let digit = |from: u64| char::from_digit((from % 10) as u32, 10).unwrap_or('?');
        self.columns().map(|(from, _)| if self.step == 1 { digit(from) } else { '-' }).collect()
    }

    fn note(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.first > 1 || self.step > 1 {
            notes.push(format!("from {}", self.first));
        }
        if self.step > 1 {
            notes.push(format!("to {}", self.last));
            notes.push(format!("{} a column", self.step));
        }
        notes
    }

    fn covered(&self, up_to: u64) -> String {
        self.columns().map(|(_, to)| if to <= up_to { '=' } else { '.' }).collect()
    }

    fn marked(&self, generations: impl Iterator<Item = u64>) -> String {
        let marked: BTreeSet<u64> = generations.collect();
        let any = |from, to| marked.range(from..=to).next().is_some();
        self.columns().map(|(from, to)| if any(from, to) { '#' } else { '.' }).collect()
    }
}
