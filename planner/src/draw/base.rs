//! What is known of the base: one line each, as scenarios write it.

use alloc::{format, string::String, vec, vec::Vec};

use super::{WIDTH, bytes, cut, duration};
use crate::facts::{CleanupFacts, FailedFacts, FragmentFacts, IndexFacts, RemapFacts, RunningFacts, TableFacts};
use crate::time::age_ms;

/// Every line that has something to say.
pub(super) fn lines(facts: &TableFacts, now_ms: u64) -> Vec<String> {
    let ago = |at_ms| duration(age_ms(now_ms, at_ms));
    let mut lines = Vec::new();
    lines.extend(facts.fragments.as_ref().map(|all| row("fragments", &fragments(all))));
    let mut indexes: Vec<&IndexFacts> = facts.indexes.iter().collect();
    indexes.sort_unstable();
    lines.extend(indexes.into_iter().filter_map(|index| self::index(facts, index, &ago)));
    lines.extend(facts.cleanup.as_ref().map(|history| row("cleanup", &cleanup(history, &ago))));
    let remap = facts.remap.as_ref().filter(|remap| remap.rewrites > 0);
    lines.extend(remap.map(|remap| row("remap", &self::remap(remap, &ago))));
    let mut running: Vec<&RunningFacts> = facts.running.iter().collect();
    running.sort_unstable();
    lines.extend(running.into_iter().map(|open| row("open", &self::open(open, &ago))));
    let mut failed: Vec<&FailedFacts> = facts.failed.iter().collect();
    failed.sort_unstable();
    let failure = |f: &&FailedFacts| format!("{} {} times, last {} ago", f.kind, f.times, ago(f.last_at_ms));
    lines.extend(failed.iter().map(|failed| row("failed", &failure(failed))));
    lines.extend(facts.overrides.iter().map(|(key, value)| row("config", &format!("{key} = {value}"))));
    lines
}

fn row(name: &str, text: &str) -> String {
    format!("{name:<12}{text}")
}

/// `200*10 50-5@1M | !40`: rows, deleted ones, bytes, how many alike; `!` must stay as it is; `|1`
/// begins another set of index segments.
fn fragments(all: &[FragmentFacts]) -> String {
    let (mut text, mut shown, mut coverage) = (String::new(), 0, 0);
    for run in all.chunk_by(|a, b| FragmentFacts { id: 0, ..*a } == FragmentFacts { id: 0, ..*b }) {
        let mut word = if run[0].coverage == coverage { String::new() } else { format!(" |{}", run[0].coverage) };
        word += &fragment(&run[0]);
        if run.len() > 1 {
            word += &format!("*{}", run.len());
        }
        if text.chars().count() + word.chars().count() > WIDTH - 40 {
            return format!("{} … {} more", text.trim_start(), all.len() - shown);
        }
        text += &word;
        (shown, coverage) = (shown + run.len(), run[0].coverage);
    }
    text.trim_start().into()
}

fn fragment(fragment: &FragmentFacts) -> String {
    let mut word = format!(" {}{}", if fragment.excluded { "!" } else { "" }, fragment.rows);
    match fragment.deleted {
        None => word += "-?",
        Some(0) => {}
        Some(deleted) => word += &format!("-{deleted}"),
    }
    word + &fragment.bytes.map(|size| format!("@{}", bytes(size))).unwrap_or_default()
}

/// An index that is drawn below each shard needs a line only for what those don't say.
fn index(facts: &TableFacts, index: &IndexFacts, ago: &impl Fn(u64) -> String) -> Option<String> {
    let mut notes = vec![index.kind.clone()];
    if let Some(rows) = index.unindexed_rows.filter(|rows| *rows > 0) {
        let since = index.unindexed_since_ms.map(|since| format!(" for {}", ago(since)));
        notes.push(format!("{rows} unindexed{}", since.unwrap_or_default()));
    }
    notes.extend(index.segments.map(|segments| format!("{segments} segments")));
    if index.withdrawn {
        notes.push("withdrawn".into());
    }
    let plain = notes.len() == 1 && !facts.shards.is_empty();
    (!plain).then(|| row("index", &format!("{} {}", cut(&index.name, 24), notes.join(", "))))
}

fn cleanup(history: &CleanupFacts, ago: &impl Fn(u64) -> String) -> String {
    let mut notes = Vec::new();
    if history.opted_out {
        notes.push("opted out".into());
    }
    notes.push(match &history.last_success {
        None => "never".into(),
        Some(last) => {
            let at = ago(last.finished_at_ms);
            format!("from version {} to {} ended {at} ago", last.start_version, last.recorded_version)
        }
    });
    notes.extend(history.last_failure_at_ms.map(|at| format!("failed {} ago", ago(at))));
    notes.join(", ")
}

fn remap(remap: &RemapFacts, ago: &impl Fn(u64) -> String) -> String {
    let mut notes = vec![format!("{} rewrites", remap.rewrites)];
    notes.extend(remap.oldest_at_ms.map(|oldest| format!("oldest {}", ago(oldest))));
    let mut indexes = remap.indexes.clone();
    indexes.sort_unstable();
    notes.push(if indexes.is_empty() { "of no index".into() } else { format!("of {}", indexes.join(" ")) });
    notes.join(", ")
}

fn open(open: &RunningFacts, ago: &impl Fn(u64) -> String) -> String {
    let mut text = format!("{} of {} for {}", open.kind, open.holder, ago(open.since_ms));
    if open.deferred {
        text += ", deferred";
    }
    if !open.indexes.is_empty() {
        text += &format!(", on {}", open.indexes.join(" "));
    }
    text
}
