use alloc::{format, string::String, vec, vec::Vec};

use super::{WIDTH, bytes, duration, fit, generations};
use crate::job::{IndexOp, JobSpec};
use crate::plan::{Decision, Hold, Measure, Outcome, Plan, Reason, Verdict};
use crate::time::age_ms;

/// Draws a plan: one line a verdict, with what it would do or what it waits for, and both numbers.
pub fn plan(plan: &Plan) -> String {
    let mut lines = vec![format!("plan {} version {}", plan.table, plan.version)];
    let mut shard = None;
    for verdict in &plan.verdicts {
        if verdict.shard != shard {
            shard.clone_from(&verdict.shard);
            lines.extend(shard.as_ref().map(|shard| format!("  shard {shard}")));
        }
        lines.extend(self::verdict(verdict, plan.at_ms));
    }
    lines.extend(plan.complaints.iter().flat_map(|complaint| words("  not followed:", &format!("{complaint}"))));
    lines.push(match plan.staleness_bound_ms {
        Some(0) => "  the base holds everything".into(),
        // What a writer has in memory is not known here: the bound would be all that is said of it.
        Some(_) if plan.has_folded_everything() => "  the base holds every flushed row".into(),
        Some(bound) => format!("  a reader of the base alone is at most {} behind, plus the job", duration(bound)),
        None => "  a reader of the base alone may fall behind without bound".into(),
    });
    lines.iter().map(|line| fit(line) + "\n").collect()
}

/// `head` and the words behind it, in as many lines as they need: they say what to change, and cut at
/// the width of the picture they would not.
fn words(head: &str, text: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::from(head));
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() >= WIDTH {
            lines.push(core::mem::replace(&mut line, String::from("   ")));
        }
        line = line + " " + word;
    }
    lines.push(line);
    lines
}

/// A decision by the name that plans and settings have for it.
pub fn decision(decision: Decision) -> &'static str {
    match decision {
        Decision::WalCatchup => "wal_catchup",
        Decision::Index => "index",
        Decision::Compaction => "compaction",
        Decision::Cleanup => "cleanup",
        Decision::Remap => "remap",
        Decision::Fold => "fold",
        Decision::Retire => "retire",
        Decision::Collect => "collect",
    }
}

/// A verdict in one line, or one a job, or as many as its reasons need.
pub fn verdict(verdict: &Verdict, at_ms: u64) -> Vec<String> {
    let name = decision(verdict.decision);
    match &verdict.outcome {
        Outcome::Due { jobs, reasons } => jobs
            .iter()
            .map(|job| {
                let why = deciding(job, reasons).map(reason).unwrap_or_default();
                format!("    {name:<12}due   {:<36}  {why}", self::job(job))
            })
            .collect(),
        Outcome::NotDue { reasons, due_at_ms } => {
            let due_in = due_at_ms.map(|at| format!("due in {}", duration(age_ms(at, at_ms))));
            wrap(format!("    {name:<12}-     "), reasons.iter().map(reason).chain(due_in))
        }
        Outcome::Held { hold, reasons } => {
            let by = format!("    {name:<12}held  {}: ", self::hold(hold, at_ms));
            wrap(by, reasons.iter().map(reason))
        }
        Outcome::Disabled { knob } => {
            // A key of the table's config says so in a word, a knob in a number.
            let value = if knob.contains('.') { "false" } else { "0" };
            vec![format!("    {name:<12}off   {knob} = {value}")]
        }
    }
}

/// `head` and the parts behind it, at commas; what does not fit goes to a line below.
fn wrap(head: String, parts: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines = vec![head];
    let mut parts = parts.peekable();
    let mut first = true;
    while let Some(mut part) = parts.next() {
        if parts.peek().is_some() {
            part.push(',');
        }
        let Some(line) = lines.last_mut() else { break };
        if first {
            line.push_str(&part);
        } else if line.chars().count() + 1 + part.chars().count() < WIDTH {
            line.push(' ');
            line.push_str(&part);
        } else {
            lines.push(format!("{:22}{part}", ""));
        }
        first = false;
    }
    lines
}

/// The comparison that made a job due: of catch-ups each has one of its own.
fn deciding<'a>(job: &JobSpec, reasons: &'a [Reason]) -> Option<&'a Reason> {
    let own = |reason: &&Reason| match job {
        JobSpec::CatchUp { indexes, .. } | JobSpec::Index { indexes, .. } => {
            reason.subject.as_ref().is_some_and(|index| indexes.contains(index))
        }
        _ => true,
    };
    reasons.iter().find(own).or(reasons.first())
}

/// A job in one line: `memwal_compaction 5..8 64M`.
pub fn job(job: &JobSpec) -> String {
    let size = |size: &Option<u64>| size.map(|size| format!(" {}", bytes(size)));
    match job {
        JobSpec::Fold { sstables, bytes, .. } => {
            let taken = generations(sstables.iter().map(|s| s.generation));
            format!("{} {taken}{}", job.kind(), size(bytes).unwrap_or_default())
        }
        JobSpec::Retire { sstables, .. } => {
            format!("{} {}", job.kind(), generations(sstables.iter().map(|s| s.generation)))
        }
        JobSpec::CatchUp { indexes, .. } => format!("{} {}", job.kind(), indexes.join(" ")),
        JobSpec::Collect { files, bytes: size, .. } => {
            let many = if files.len() == 1 { "file" } else { "files" };
            format!("{} {} {many} {}", job.kind(), files.len(), bytes(*size))
        }
        JobSpec::Index { indexes, op, .. } => {
            let op = match op {
                IndexOp::Append => "append",
                IndexOp::Merge => "merge",
                IndexOp::Reindex => "anew",
            };
            format!("{} {op} {}", job.kind(), indexes.join(" "))
        }
        JobSpec::Compact { tasks, deferred, predicted, .. } => {
            let many: usize = tasks.iter().map(Vec::len).sum();
            let deferred = if *deferred { ", deferred" } else { "" };
            let size = size(&predicted.bytes).unwrap_or_default();
            format!("{} {many} into {}{size}{deferred}", job.kind(), predicted.fragments)
        }
        JobSpec::Cleanup { min_age_ms, .. } => format!("{} older than {}", job.kind(), duration(*min_age_ms)),
        JobSpec::Remap { indexes } if indexes.is_empty() => format!("{} trim", job.kind()),
        JobSpec::Remap { indexes } => format!("{} {}", job.kind(), indexes.join(" ")),
    }
}

/// What holds a verdict, as it goes on after "held": `by a pause of the table`.
pub fn hold(hold: &Hold, at_ms: u64) -> String {
    match hold {
        Hold::Pass { holder, since_ms } => {
            format!("by a pass of {holder} for {}", duration(age_ms(at_ms, *since_ms)))
        }
        Hold::Index { index } => format!("by index {index}"),
        Hold::Retained { version } => format!("by {version}"),
        Hold::Sealed => "by the drop of the shard".into(),
        Hold::Detached => "by the missing MemWAL index".into(),
        Hold::Paused => "by a pause of the table".into(),
        Hold::Mismatch { kind, at_ms: found } => {
            format!("by answers that {kind} changed {} ago", duration(age_ms(at_ms, *found)))
        }
        Hold::Clone { table } => format!("by the shallow clone {table}, which reads its files"),
        Hold::NoPrimaryKey => "by a missing primary key".into(),
        Hold::Running { kind, holder, since_ms } => {
            format!("by {kind} of {holder} for {}", duration(age_ms(at_ms, *since_ms)))
        }
        Hold::Compaction { holder: Some(holder), since_ms } => {
            let since_ms = since_ms.unwrap_or(at_ms);
            format!("by the inline compaction of {holder} for {}", duration(age_ms(at_ms, since_ms)))
        }
        Hold::Compaction { holder: None, .. } => "by the inline compaction below".into(),
        Hold::Remap { rewrites } => format!("by the remap of {rewrites} earlier rewrites"),
        Hold::CatchUp { index } => format!("by the catch-up of {index}"),
        Hold::Failing { kind, times, until_ms } => {
            format!("by {times} failures of {kind} for {}", duration(age_ms(*until_ms, at_ms)))
        }
    }
}

/// One comparison in words and numbers: `count 4 >= 4`, `bytes unmeasured, 1G needed`.
pub fn reason(reason: &Reason) -> String {
    if reason.measure == Measure::UnindexedRows && reason.subject.is_none() && reason.observed == Some(0) {
        return "no index".into();
    }
    let (name, unit) = match reason.measure {
        Measure::SsTables => ("count", Unit::Count),
        Measure::SsTableBytes => ("bytes", Unit::Bytes),
        Measure::SsTableAgeMs => ("age", Unit::Millis),
        Measure::Forced => ("forced", Unit::Count),
        Measure::FoldedListed => ("folded but listed", Unit::Count),
        Measure::FoldAgeMs => ("fold age", Unit::Millis),
        Measure::CaughtUpGeneration => ("covers", Unit::Count),
        Measure::GarbageAgeMs => ("unlisted age", Unit::Millis),
        Measure::RetainedGeneration => ("at generation", Unit::Count),
        Measure::Files => ("unlisted files", Unit::Count),
        Measure::IndexesBehind => ("indexes behind", Unit::Count),
        Measure::Withdrawn => ("withdrawn", Unit::Count),
        Measure::UnindexedRows => ("unindexed", Unit::Count),
        Measure::UnindexedAgeMs => ("unindexed for", Unit::Millis),
        Measure::Segments => ("segments", Unit::Count),
        Measure::SmallFragments => ("small fragments", Unit::Count),
        Measure::DeletedPermille => ("deleted", Unit::Permille),
        Measure::TargetRows => ("row target", Unit::Count),
        Measure::VetoedFragments => ("would be candidates again", Unit::Count),
        Measure::ExcludedFragments => ("excluded", Unit::Count),
        Measure::InitialVersion => ("version", Unit::Count),
        Measure::VersionsSince => ("versions since", Unit::Count),
        Measure::CleanupAgeMs => ("last cleanup", Unit::Millis),
        Measure::RecordedVersion => ("recorded version", Unit::Count),
        Measure::FailureAgeMs => ("failed for", Unit::Millis),
        Measure::Rewrites => ("rewrites", Unit::Count),
        Measure::RewriteAgeMs => ("oldest", Unit::Millis),
    };
    let subject = reason.subject.as_deref();
    // An index or a version is what the sentence is about; anything else is a remark on it.
    let (before, after) = match reason.measure {
        Measure::CaughtUpGeneration
        | Measure::RetainedGeneration
        | Measure::Withdrawn
        | Measure::UnindexedRows
        | Measure::UnindexedAgeMs
        | Measure::Segments => (subject, None),
        _ => (None, subject),
    };
    let before = before.map(|subject| format!("{subject} ")).unwrap_or_default();
    let after = after.map(|subject| format!(" ({subject})")).unwrap_or_default();
    let text = match (reason.observed, reason.threshold) {
        (Some(observed), Some(threshold)) => compared(observed, threshold, &unit),
        (Some(observed), None) => unit.rounded(observed),
        (None, Some(threshold)) => format!("unmeasured, {} needed", unit.rounded(threshold)),
        (None, None) => "unmeasured".into(),
    };
    format!("{before}{name} {text}{after}")
}

fn compared(observed: u64, threshold: u64, unit: &Unit) -> String {
    let sign = if observed >= threshold { ">=" } else { "<" };
    let (left, right) = (unit.rounded(observed), unit.rounded(threshold));
    // Rounded to the same text although they differ: then the numbers themselves.
    if left == right && observed != threshold {
        return format!("{} {sign} {}", unit.exact(observed), unit.exact(threshold));
    }
    format!("{left} {sign} {right}")
}

/// What a comparison counts.
enum Unit {
    Count,
    Bytes,
    Millis,
    Permille,
}

impl Unit {
    fn rounded(&self, number: u64) -> String {
        match self {
            Self::Count => format!("{number}"),
            Self::Bytes => bytes(number),
            Self::Millis => duration(number),
            Self::Permille => format!("{}.{}%", number / 10, number % 10),
        }
    }

    fn exact(&self, number: u64) -> String {
        match self {
            Self::Count | Self::Bytes | Self::Permille => format!("{number}"),
            Self::Millis => format!("{number}ms"),
        }
    }
}
