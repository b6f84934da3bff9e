//! Reads the drawings that [`planner::draw`] makes, and what only a scenario needs to say.

use planner::facts::{GarbageFacts, GarbageKind, IndexFacts, MismatchFacts, PassFacts, ShardFacts, ShardStatus};
use planner::facts::{SsTableFacts, TableFacts};
use planner::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

/// `table t     version 3, 100 rows, key a+b, paused`
pub(crate) fn table(facts: &mut TableFacts, line: &str, now_ms: u64) {
    let words: Vec<&str> = line.split_whitespace().collect();
    facts.table = words[1].into();
    for note in notes(line, words[1]) {
        match note.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["version", version] => facts.version = number(version),
            [rows, "rows"] => facts.rows = Some(number(rows)),
            ["key", columns] => facts.primary_key = columns.split('+').map(Into::into).collect(),
            ["no", "primary", "key"] => facts.primary_key.clear(),
            ["paused"] => facts.paused = true,
            ["answers", "changed", "by", kind, span, "ago"] => {
                facts.mismatch = Some(MismatchFacts { kind: (*kind).into(), at_ms: now_ms - duration(span) });
            }
            ["stable", "row", "ids"] => facts.stable_row_ids = true,
            [versions, "versions"] => facts.versions = Some(number(versions)),
            _ => panic!("not a note of a table: `{note}`"),
        }
    }
}

/// `shard 3f      12345678     from 95, sealed, pass by job-7 for 3m`; answers the generation of the
/// first column.
pub(crate) fn shard(facts: &mut TableFacts, line: &str, now_ms: u64) -> u64 {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut shard = ShardFacts { shard: words[1].into(), manifest_version: 1, ..ShardFacts::default() };
    let mut first = 1;
    for note in notes(line, words[2]) {
        match note.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["from", from] => first = number(from),
            ["sealed"] => shard.status = ShardStatus::Sealed,
            ["detached"] => shard.detached = true,
            ["pass", "by", holder, "for", span] => {
                shard.pass = Some(PassFacts { holder: (*holder).into(), since_ms: now_ms - duration(span) });
            }
            ["manifest", version] => shard.manifest_version = number(version),
            _ => panic!("not a note of a shard: `{note}`"),
        }
    }
    facts.shards.push(shard);
    first
}

/// A row of the last shard: `base`, `sstables`, `retained`, `garbage`, or an index by its name, which
/// is also its type unless a note says another.
pub(crate) fn row(facts: &mut TableFacts, first: u64, line: &str, now_ms: u64) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let shard = facts.shards.last_mut().expect("a row stands below its shard");
    let covered = || first - 1 + words[1].chars().take_while(|c| *c == '=').count() as u64;
    match words.as_slice() {
        ["base", ..] => shard.compacted_generation = covered(),
        ["sstables", columns, ..] => shard.sstables = sstables(columns, first, &notes(line, columns), now_ms),
        ["retained", _, "by", by @ ..] => {
            shard.retained_generation = Some(covered());
            shard.retained_by = Some(by.join(" "));
        }
        ["garbage", what @ ..] => shard.garbage.get_or_insert_default().extend(garbage(what, now_ms)),
        [index, _, kind @ ..] => {
            shard.caught_up.insert((*index).into(), covered());
            if !facts.indexes.iter().any(|i| i.name == *index) {
                let kind = kind.first().unwrap_or(index);
                facts.indexes.push(IndexFacts { name: (*index).into(), kind: (*kind).into(), ..IndexFacts::default() });
            }
        }
        _ => panic!("not a row of a shard: `{line}`"),
    }
}

/// `16M each, oldest 9m` · `10K+300+?, ages 9m+5m+?`
fn sstables(columns: &str, first: u64, notes: &[&str], now_ms: u64) -> Vec<SsTableFacts> {
    let mut listed: Vec<SsTableFacts> = columns
        .chars()
        .zip(first..)
        .filter(|(mark, _)| *mark == '#')
        .map(|(_, generation)| sstable(generation, None, None))
        .collect();
    for note in notes {
        match note.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["oldest", age] => listed.iter_mut().for_each(|s| s.flushed_at_ms = Some(now_ms - duration(age))),
            ["ages", ages] => {
                for (sstable, age) in listed.iter_mut().zip(ages.split('+')) {
                    sstable.flushed_at_ms = known(age).map(|age| now_ms - duration(age));
                }
            }
            ["ahead", span] => listed.iter_mut().for_each(|s| s.flushed_at_ms = Some(now_ms + duration(span))),
            ["none" | "unmeasured"] => {}
            [size, "each"] => listed.iter_mut().for_each(|s| s.bytes = Some(bytes(size))),
            [sizes] => {
                for (sstable, size) in listed.iter_mut().zip(sizes.split('+')) {
                    sstable.bytes = known(size).map(bytes);
                }
            }
            _ => panic!("not a note of SSTables: `{note}`"),
        }
    }
    listed
}

/// `sstable 1..4 16M 25h` · `wal 7 1K ?` · `manifest 1..3 300 2d` · `none`
fn garbage(words: &[&str], now_ms: u64) -> Vec<GarbageFacts> {
    let (kind, range, size, age) = match words {
        ["none"] => return Vec::new(),
        ["sstable", range, size, age] => (GarbageKind::SsTable, range, size, age),
        ["wal", range, size, age] => (GarbageKind::WalEntry, range, size, age),
        ["manifest", range, size, age] => (GarbageKind::Manifest, range, size, age),
        _ => panic!("not garbage: `{}`", words.join(" ")),
    };
    let (from, to) = range.split_once("..").unwrap_or((range, range));
    (number(from)..=number(to))
        .map(|position| GarbageFacts {
            kind,
            path: if kind == GarbageKind::SsTable { folder(position) } else { format!("{}/{position}", words[0]) },
            position,
            bytes: bytes(size),
            since_ms: known(age).map(|age| now_ms - duration(age)),
        })
        .collect()
}

/// A writer's flush, put at the front of the list: no rule says where a new one goes.
pub(crate) fn flushed(shard: &mut ShardFacts, generation: &str, size: &str, now_ms: u64) {
    shard.sstables.insert(0, sstable(number(generation), Some(bytes(size)), Some(now_ms)));
    shard.manifest_version += 1;
}

/// A shard by its id.
pub(crate) fn named<'a>(facts: &'a mut TableFacts, id: &str) -> &'a mut ShardFacts {
    facts.shards.iter_mut().find(|s| s.shard == id).unwrap_or_else(|| panic!("no shard `{id}`"))
}

fn sstable(generation: u64, bytes: Option<u64>, flushed_at_ms: Option<u64>) -> SsTableFacts {
    SsTableFacts { generation, path: folder(generation), bytes, rows: None, flushed_at_ms }
}

fn folder(generation: u64) -> String {
    format!("{generation:04x}_gen_{generation}")
}

/// What stands behind `before` in `line`, at the commas.
pub(crate) fn notes<'a>(line: &'a str, before: &str) -> Vec<&'a str> {
    let (_, notes) = line.split_once(&format!(" {before}")).expect("a word of the line");
    notes.split(", ").map(str::trim).filter(|note| !note.is_empty()).collect()
}

pub(crate) fn known(text: &str) -> Option<&str> {
    Some(text).filter(|text| *text != "?")
}

/// A whole number.
pub(crate) fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("not a number: `{text}`"))
}

/// `300`, `16M`, `2G`, as drawings round them.
pub(crate) fn bytes(text: &str) -> u64 {
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    match units.iter().find(|(suffix, _)| text.ends_with(*suffix)) {
        Some((suffix, shift)) => number(text.trim_end_matches(*suffix)) << shift,
        None => number(text),
    }
}

/// `250ms`, `9m`, `6d23h`.
pub(crate) fn duration(text: &str) -> u64 {
    let mut rest = text;
    let mut sum = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, unit) = rest.split_at(digits);
        let unit = &unit[..unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len())];
        rest = &rest[digits + unit.len()..];
        sum += number(count)
            * match unit {
                "ms" => 1,
                "s" => SECOND_MS,
                "m" => MINUTE_MS,
                "h" => HOUR_MS,
                "d" => DAY_MS,
                _ => panic!("not a time span: `{text}`"),
            };
    }
    sum
}
