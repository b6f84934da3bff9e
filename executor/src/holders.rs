//! Who holds the space of a table, and what a cleanup would give back (R4.6): for `caretaker cleanup --dry-run` and
//! for the fleet page.

use planner::draw::{bytes, duration, generations};
use planner::facts::TableFacts;
use planner::job::JobSpec;
use planner::plan::cleanup_job;
use planner::policy::Policy;
use serde::Serialize;

use crate::error::Result;
use crate::read::space::{Amount, Kept, Pin, Space};
use crate::run::cleanup::{Removal, dry_run};
use crate::show::things;
use crate::tend::Evaluation;

/// What a dry run shows; also its `--json`.
#[derive(Debug, Serialize)]
pub struct Holders {
    /// Table.
    pub table: String,
    /// Its version.
    pub version: u64,
    /// Versions younger than this stay; `None`: cleanup is off.
    pub min_age_ms: Option<u64>,
    /// Newest versions that stay whatever their age.
    pub retain_versions: u64,
    /// Why nothing would be removed.
    pub refused: Option<String>,
    /// What a cleanup would remove now.
    pub removes: Removal,
    /// Every file, by what needs it.
    pub space: Space,
}

/// Files that one holder keeps.
#[derive(Debug, Serialize)]
pub struct Held {
    /// The holder, for people.
    pub who: String,
    /// Its versions, for people; empty where it has none.
    pub versions: String,
    /// Its files.
    #[serde(flatten)]
    pub amount: Amount,
}

impl Holders {
    /// Looks; changes nothing.
    ///
    /// # Errors
    /// Whatever keeps the table's files from being listed or its manifests from being read.
    pub async fn look(seen: &Evaluation, policy: &Policy) -> Result<Self> {
        let (table, facts) = (&seen.table, &seen.facts);
        let job = cleanup_job(facts, policy);
        let refused = if job.is_none() { Some(off(&facts.table)) } else { refusal(facts) };
        let (removes, space) = dry_run(table, facts, job.as_ref(), refused.is_none()).await?;
        let (min_age_ms, retain_versions) = match job {
            Some(JobSpec::Cleanup { min_age_ms, retain_versions, .. }) => (Some(min_age_ms), retain_versions),
            _ => (None, 0),
        };
        let (table, version) = (table.name.clone(), table.version());
        Ok(Self { table, version, min_age_ms, retain_versions, refused, removes, space })
    }

    /// One line a holder that has anything; they add up to the folder's size.
    pub fn rows(&self) -> Vec<Held> {
        let Self { space, removes, .. } = self;
        let wal = &space.mem_wal;
        let needed = wal.retained_by.as_deref().unwrap_or("retained versions");
        let kept = space.kept.iter().map(|Kept { pins, versions, amount }| {
            let who: Vec<String> = pins.iter().map(|pin| self.who(pin)).collect();
            (who.join(", "), generations(versions.iter().copied()), *amount)
        });
        let rest = [
            ("several of these".into(), space.several),
            ("no version: being written, or left by a failed commit".into(), space.unproven),
            ("branches: what they wrote themselves".into(), space.branches),
            ("SSTables not folded yet".into(), wal.unfolded),
            ("SSTables folded, still listed".into(), wal.folded_listed),
            (format!("SSTables folded, needed by {needed}"), wal.retained),
            ("SSTables folded, in their grace".into(), wal.unlisted),
            ("log and manifests of the shards".into(), wal.log),
            ("other files".into(), space.other),
        ];
        let removable = ("would be removed".into(), generations(removes.versions.iter().copied()), space.removable);
        let rest = rest.into_iter().map(|(who, amount)| (who, String::new(), amount));
        let all = std::iter::once(removable).chain(kept).chain(rest);
        let held = all.map(|(who, versions, amount)| Held { who, versions, amount });
        held.filter(|held| held.amount != Amount::default()).collect()
    }

    fn who(&self, pin: &Pin) -> String {
        match pin {
            Pin::Current => "the current version".into(),
            Pin::Young => format!("younger than {}", duration(self.min_age_ms.unwrap_or_default())),
            Pin::Newest => format!("among the newest {}", crate::show::count(self.retain_versions)),
            Pin::Branch { name } => format!("branch `{name}`"),
            Pin::Tag { name } => format!("tag `{name}`"),
            Pin::NoCleanup => "cleanup does not run".into(),
        }
    }
}

/// `3 old versions: 12 files, 1.2M`.
pub fn removed(versions: u64, files: u64, size: u64) -> String {
    match (versions, files) {
        (0, 0) => "nothing".into(),
        _ => format!("{}: {}, {}", things(versions, "old version"), things(files, "file"), bytes(size)),
    }
}

/// Why a cleanup without a minimum age is no cleanup (R4.1), and what to set.
pub fn off(table: &str) -> String {
    format!(
        "cleanup of `{table}` is off: no minimum age of versions is set, so every version stays; set one with \
         --cleanup-min-version-age-secs 7d (or CLEANUP_MIN_VERSION_AGE_SECS, or in the settings file)"
    )
}

/// What the table's own config has against a cleanup.
pub fn refusal(facts: &TableFacts) -> Option<String> {
    let table = &facts.table;
    if facts.is_paused() {
        return Some(format!("`{table}` is paused, so nothing is removed; take `caretaker.paused` out of its config"));
    }
    if let Some(clone) = facts.clones.first() {
        return Some(format!(
            "`{clone}` is a shallow clone that reads files of `{table}`, so nothing is removed; drop it or make it a copy \
             of its own"
        ));
    }
    if let Some(mismatch) = &facts.mismatch {
        return Some(format!(
            "`{table}` has answers that {} changed, so nothing is removed; see `caretaker verify --help`",
            mismatch.kind
        ));
    }
    facts
        .opted_out_of_cleanup()
        .then(|| format!("`{table}` wants no cleanup; take `caretaker.cleanup.enabled` out of its config to have one"))
}
