//! Reads the lines that say something of the base.

use planner::facts::{CleanupSuccess, FailedFacts, FragmentFacts, IndexFacts, RunningFacts, TableFacts};

use crate::scenario::parse::{bytes, duration, known, notes, number};

pub(crate) fn line(facts: &mut TableFacts, line: &str, now_ms: u64) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ago = |span: &str| now_ms - duration(span);
    match words.as_slice() {
        ["fragments", words @ ..] => fragments(facts, words),
        ["index", name, ..] => index(facts, name, &notes(line, name), now_ms),
        ["cleanup", ..] => cleanup(facts, &notes(&format!(" {line}"), "cleanup"), now_ms),
        ["remap", rewrites, "rewrites,", "oldest", age, "of", indexes @ ..] => {
            let remap = facts.remap.get_or_insert_default();
            remap.rewrites = number(rewrites);
            remap.oldest_at_ms = known(age.trim_end_matches(',')).map(ago);
            remap.indexes = indexes.iter().filter(|n| !["no", "index"].contains(*n)).map(|n| (*n).into()).collect();
        }
        ["open", kind, "of", holder, "for", span, rest @ ..] => facts.running.push(RunningFacts {
            kind: (*kind).into(),
            holder: (*holder).into(),
            since_ms: ago(span.trim_end_matches(',')),
            deferred: rest == ["deferred"],
            indexes: rest.strip_prefix(&["on"]).unwrap_or_default().iter().map(|n| (*n).into()).collect(),
        }),
        ["failed", kind, times, "times,", "last", span, "ago"] => {
            facts.failed.push(FailedFacts { kind: (*kind).into(), times: number(times), last_at_ms: ago(span) });
        }
        ["config", key, "=", value @ ..] => {
            facts.overrides.insert((*key).into(), value.join(" "));
        }
        _ => panic!("not a line of the base: `{line}`"),
    }
}

/// `200*10 50-5@1M |1 !40 30-?`, as `draw` writes them behind their number.
fn fragments(facts: &mut TableFacts, words: &[&str]) {
    let (mut coverage, fragments) = (0, facts.fragments.get_or_insert_default());
    for word in words {
        if let Some(number) = word.strip_prefix('|') {
            coverage = number.parse().expect("a number behind `|`");
            continue;
        }
        let (word, count) = word.split_once('*').unwrap_or((word, "1"));
        let (word, size) = word.split_once('@').map_or((word, None), |(word, size)| (word, Some(bytes(size))));
        let (rows, deleted) = word.split_once('-').unwrap_or((word, "0"));
        for _ in 0..number(count) {
            fragments.push(FragmentFacts {
                id: fragments.last().map_or(0, |f: &FragmentFacts| f.id + 1),
                rows: number(rows.trim_start_matches('!')),
                deleted: known(deleted).map(number),
                bytes: size,
                coverage,
                excluded: rows.starts_with('!'),
            });
        }
    }
}

/// `index id_idx btree, 120000 unindexed for 25h, 9 segments, withdrawn`
fn index(facts: &mut TableFacts, name: &str, notes: &[&str], now_ms: u64) {
    let mut index = IndexFacts { name: name.into(), kind: notes[0].into(), ..IndexFacts::default() };
    for note in &notes[1..] {
        match note.split_whitespace().collect::<Vec<_>>().as_slice() {
            [rows, "unindexed"] => index.unindexed_rows = known(rows).map(number),
            [rows, "unindexed", "for", span] => {
                index.unindexed_rows = known(rows).map(number);
                index.unindexed_since_ms = Some(now_ms - duration(span));
            }
            [segments, "segments"] => index.segments = Some(number(segments)),
            ["withdrawn"] => index.withdrawn = true,
            ["inline", "only"] => index.inline_only = true,
            _ => panic!("not a note of an index: `{note}`"),
        }
    }
    facts.indexes.retain(|known| known.name != name);
    facts.indexes.push(index);
}

/// `cleanup never` · `cleanup from version 100 to 110 ended 25h ago, failed 30s ago`
fn cleanup(facts: &mut TableFacts, notes: &[&str], now_ms: u64) {
    let history = facts.cleanup.get_or_insert_default();
    for note in notes {
        match note.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["never"] => history.last_success = None,
            ["opted", "out"] => history.opted_out = true,
            ["from", "version", start, "to", end, "ended", span, "ago"] => {
                let (start_version, recorded_version) = (number(start), number(end));
                let finished_at_ms = now_ms - duration(span);
                history.last_success = Some(CleanupSuccess { start_version, finished_at_ms, recorded_version });
            }
            ["failed", span, "ago"] => history.last_failure_at_ms = Some(now_ms - duration(span)),
            _ => panic!("not a note of cleanups: `{note}`"),
        }
    }
}
