//! A timeline as text: sums, a bar for each part of the time, jobs by kind.

use alloc::{format, string::String, vec::Vec};

use super::{bytes, cut, duration, fit, reason};
use crate::simulate::{Fault, JobRecord, KindTotals, Samples, Spread, Timeline};

/// Columns of a series.
const COLUMNS: usize = 60;
/// Jobs that are listed.
const JOBS: usize = 12;
/// Heights of a bar.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How a series is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Count,
    Bytes,
    Time,
}

/// A series with its name and scale.
pub(super) struct Series<'a> {
    pub(super) name: &'static str,
    pub(super) scale: Scale,
    pub(super) values: &'a [u64],
}

impl Scale {
    pub(super) fn text(self, value: u64) -> String {
        match self {
            Self::Count => format!("{value}"),
            Self::Bytes => bytes(value),
            Self::Time => duration(value),
        }
    }
}

/// The series that are drawn.
pub(super) fn series(samples: &Samples) -> [Series<'_>; 12] {
    let of = |name, scale, values| Series { name, scale, values };
    [
        of("SSTables", Scale::Count, &*samples.unfolded),
        of("their bytes", Scale::Bytes, &*samples.unfolded_bytes),
        of("staleness", Scale::Time, &*samples.staleness_ms),
        of("base rows", Scale::Count, &*samples.base_rows),
        of("unindexed", Scale::Count, &*samples.unindexed_rows),
        of("fragments", Scale::Count, &*samples.fragments),
        of("small ones", Scale::Count, &*samples.small_fragments),
        of("deleted", Scale::Count, &*samples.deleted_rows),
        of("versions", Scale::Count, &*samples.versions),
        of("on disk", Scale::Bytes, &*samples.disk_bytes),
        of("garbage", Scale::Bytes, &*samples.garbage_bytes),
        of("held", Scale::Time, &*samples.stalled_ms),
    ]
}

/// A timeline as text: sums, series, jobs by kind, the last jobs, what went wrong.
pub fn timeline(timeline: &Timeline) -> String {
    let mut lines = sums(timeline);
    lines.push(String::new());
    let column = timeline.duration_ms.div_ceil(COLUMNS as u64);
    lines.push(format!("{:<12}{:>8}  one column is {}", "", "most", duration(column)));
    lines.extend(series(&timeline.samples).iter().map(bar));
    lines.push(String::new());
    lines.extend(kinds(timeline));
    lines.push(String::new());
    lines.extend(timeline.faults.iter().take(JOBS).map(fault));
    let left = timeline.jobs.len().saturating_sub(JOBS);
    lines.extend(timeline.jobs.iter().skip(left).map(job));
    let mut out = String::new();
    for line in lines {
        out += &fit(&line);
        out.push('\n');
    }
    out
}

fn sums(timeline: &Timeline) -> Vec<String> {
    let totals = &timeline.totals;
    let row = |name: &str, text: String| format!("{name:<12}{text}");
    let permille = |n: u64| format!("{}.{:02}", n / 1_000, n % 1_000 / 10);
    let held = if totals.stalled_ms > 0 { duration(totals.stalled_ms) } else { "never".into() };
    let stale = &totals.staleness;
    let bound = match stale.bound_ms {
        None => "no bound: the walk is off".into(),
        Some(bound) => {
            let (bound, fold) = (duration(bound), duration(stale.longest_fold_ms));
            let kept = if stale.above { "NOT KEPT" } else { "kept" };
            format!("bound {bound} and a fold of {fold}: {kept}")
        }
    };
    Vec::from([
        format!(
            "{}  {} from {} ms, seed {}",
            cut(&timeline.facts.table, 40),
            duration(timeline.duration_ms),
            timeline.start_ms,
            timeline.seed
        ),
        row("written", format!("{} rows, {}, held {held}", totals.rows, bytes(totals.bytes))),
        row("flushes", format!("{} and {} commits of clients", totals.flushes, totals.commits)),
        row(
            "passes",
            format!("{} of {} SSTables, at most {} waited", totals.passes, totals.folded, totals.unfolded_max),
        ),
        row("staleness", format!("{}; {bound}", spread(&stale.over_time))),
        row("queue", format!("{}, {} jobs failed", spread(&totals.queue_wait), totals.failures)),
        row(
            "amplified",
            format!(
                "{} times written, {} times stored, {} versions at the end",
                permille(totals.write_amplification_permille),
                permille(totals.space_amplification_permille),
                totals.versions
            ),
        ),
    ])
}

fn spread(spread: &Spread) -> String {
    format!("half up to {}, 99 % up to {}, most {}", duration(spread.p50), duration(spread.p99), duration(spread.max))
}

/// `SSTables           4  ▁▃▅█▁▃▅█`: each column is the most of its part of the time.
fn bar(series: &Series<'_>) -> String {
    let most = series.values.iter().copied().max().unwrap_or(0);
    let per_column = series.values.len().div_ceil(COLUMNS).max(1);
    let column = |values: &[u64]| {
        let value = values.iter().copied().max().unwrap_or(0);
        let height = (u128::from(value) * BARS.len() as u128).div_ceil(u128::from(most.max(1)));
        let height = usize::try_from(height).unwrap_or(0).min(BARS.len());
        if height == 0 { ' ' } else { BARS[height - 1] }
    };
    let bars: String = series.values.chunks(per_column).map(column).collect();
    format!("{:<12}{:>8}  {bars}", series.name, series.scale.text(most))
}

fn kinds(timeline: &Timeline) -> impl Iterator<Item = String> {
    let head = format!(
        "{:<26}{:>7}{:>7}{:>9}{:>6}{:>6}{:>8}{:>9}{:>10}",
        "jobs", "done", "failed", "conflict", "lost", "open", "read", "written", "busy"
    );
    let row = |(kind, totals): (&String, &KindTotals)| {
        format!(
            "{:<26}{:>7}{:>7}{:>9}{:>6}{:>6}{:>8}{:>9}{:>10}",
            cut(kind, 25),
            totals.done,
            totals.failed,
            totals.conflicts,
            totals.lost,
            totals.open,
            bytes(totals.read_bytes),
            bytes(totals.written_bytes),
            duration(totals.busy_ms)
        )
    };
    let rows: Vec<String> = timeline.totals.jobs.iter().map(row).collect();
    core::iter::once(head).chain(rows)
}

fn job(job: &JobRecord) -> String {
    let took = match (job.started_ms, job.ended_ms) {
        (Some(started), Some(ended)) => format!("took {}", duration(ended.saturating_sub(started))),
        (Some(_), None) => "runs".into(),
        _ => "waits".into(),
    };
    let outcome = format!("{:?}", job.outcome).to_lowercase();
    let why = job.why.as_ref().map(reason).unwrap_or_default();
    format!("{:<10}{:<26}{outcome:<9}{took:<14}{why}", duration(job.enqueued_ms), cut(&job.kind, 25))
}

fn fault(fault: &Fault) -> String {
    let what = match fault {
        Fault::WorkerDies { .. } => "the worker dies".into(),
        Fault::CommitConflict { .. } => "somebody else commits first".into(),
        Fault::Burst { times, .. } => format!("{times} times as many rows for {}", duration(fault.for_ms())),
        Fault::ClockBack { by_ms, .. } => format!("the clock goes back by {}", duration(*by_ms)),
        Fault::DiskFull { .. } => format!("the disk is full for {}", duration(fault.for_ms())),
        Fault::RegistryAway { .. } => format!("the registry is away for {}", duration(fault.for_ms())),
    };
    format!("{:<10}! {what}", duration(fault.at_ms()))
}
