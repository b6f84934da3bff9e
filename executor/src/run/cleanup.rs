//! Removes old versions and what only they needed (R4.5), by Lance's own cleanup.

use std::collections::{BTreeSet, HashSet};

use chrono::{DateTime, Utc};
use lance::dataset::cleanup::{CleanupFileKind, CleanupPolicy, CleanupPolicyBuilder, RemovalStats};
use lance_table::io::commit::ManifestNamingScheme;
use object_store::path::Path;
use planner::facts::TableFacts;
use planner::job::JobSpec;

use crate::env::now_ms;
use crate::error::{Doing, Error, Result};
use crate::read::space::{Space, space, version};
use crate::table::Table;

/// Files that a dry run has named: Lance names manifests last, and the versions are read from them.
const FILES_EXPLAINED_MAX: usize = 10_000_000;

/// What a cleanup removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CleanupReport {
    /// Version it started from.
    pub start_version: u64,
    /// Version of the table when it ended: writers go on meanwhile.
    pub end_version: u64,
    /// Old versions.
    pub versions: u64,
    /// Files of every kind, manifests aside.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Files that could not be deleted: the next cleanup finds them again.
    pub failed: u64,
    /// Tags whose versions stay (R4.5).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Tags whose version or branch is gone: they hold nothing, and nothing holds them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dangling_tags: Vec<String>,
}

/// What a cleanup would remove, if it ran now.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Removal {
    /// Every file, manifests included, as the store names it.
    #[serde(skip)]
    pub paths: HashSet<String>,
    /// Old versions, ascending.
    pub versions: BTreeSet<u64>,
    /// Files of every kind, manifests aside.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// What `spec` would remove from the table as it is open, by the code that would delete, and who holds
/// the rest (R4.6). One that `runs` not, or that no policy allows, removes nothing.
pub(crate) async fn dry_run(
    table: &Table,
    facts: &TableFacts,
    spec: Option<&JobSpec>,
    runs: bool,
) -> Result<(Removal, Space)> {
    let policy = match spec {
        Some(spec) => Some(policy(table, spec).await?),
        None => None,
    };
    let removal = match &policy {
        Some(policy) if runs => explain(table, policy.clone()).await?,
        _ => Removal::default(),
    };
    let space = space(table, facts, policy.as_ref(), &removal).await?;
    Ok((removal, space))
}

async fn explain(table: &Table, policy: CleanupPolicy) -> Result<Removal> {
    let operation = table.dataset.cleanup(policy).with_max_candidate_files(FILES_EXPLAINED_MAX);
    let explained =
        operation.explain().await.doing(|| format!("looking what a cleanup of `{}` removes", table.name))?;
    let manifests = explained.candidate_files.iter().filter(|file| file.kind == CleanupFileKind::Manifest);
    let version = |path: &str| path.rsplit('/').next().and_then(version);
    Ok(Removal {
        versions: manifests.filter_map(|file| version(&file.path)).collect(),
        files: files(&explained.stats),
        bytes: explained.stats.bytes_removed,
        paths: explained.candidate_files.into_iter().map(|file| file.path).collect(),
    })
}

fn files(removed: &RemovalStats) -> u64 {
    removed.data_files_removed
        + removed.transaction_files_removed
        + removed.index_files_removed
        + removed.deletion_files_removed
}

/// Runs `spec`. A tagged version, and what a branch or a clone needs, stays (R4.5).
pub(crate) async fn cleanup(table: &Table, spec: &JobSpec) -> Result<CleanupReport> {
    let table = table.refreshed().await?;
    let policy = policy(&table, spec).await?;
    let (tags, dangling_tags) = tags(&table).await?;
    for tag in &dangling_tags {
        tracing::warn!(table = table.name, tag, "the version or the branch of a tag is gone");
    }
    crate::fault::at(&table.uri, "cleanup.before").await;
    table.fence.check().await?;
    let removed = table.dataset.cleanup(policy).execute().await;
    let removed = removed.doing(|| format!("cleaning up `{}`", table.name))?;
    crate::fault::at(&table.uri, "cleanup.after").await;
    Ok(CleanupReport {
        start_version: table.version(),
        end_version: table.refreshed().await?.version(),
        versions: removed.old_versions,
        files: files(&removed),
        bytes: removed.bytes_removed,
        failed: removed.failed_deletes,
        tags,
        dangling_tags,
    })
}

/// The tags that hold a version, and those that hold none.
///
/// # Errors
/// `Invalid` names a tag that can't be read: what it holds is not known.
async fn tags(table: &Table) -> Result<(Vec<String>, Vec<String>)> {
    let (mut holding, mut dangling) = (Vec::new(), Vec::new());
    let names = table.store().read_dir(table.base().join("_refs").join("tags")).await;
    let names = names.doing(|| format!("listing the tags of `{}`", table.name))?;
    for name in names.iter().filter_map(|name| name.strip_suffix(".json")) {
        let reading = || format!("reading tag `{name}` of `{}`", table.name);
        let tag = table.dataset.tags().get(name).await.doing(reading)?;
        let base = table.dataset.branch_location().find_branch(tag.branch.as_deref()).doing(reading)?.path;
        let mut held = false;
        for naming in [ManifestNamingScheme::V2, ManifestNamingScheme::V1] {
            let manifest = naming.manifest_path(&base, tag.version);
            if table.store().exists(&manifest).await.doing(reading)? {
                held = true;
            } else if is_listed(table, &manifest).await.doing(reading)? {
                // Lance would take it for a version that somebody else removed, and remove what it needs.
                return Err(Error::Retry(format!("{}: `{manifest}` is listed, and can't be read", reading())));
            }
        }
        if held { &mut holding } else { &mut dangling }.push(name.to_string());
    }
    Ok((holding, dangling))
}

async fn is_listed(table: &Table, file: &Path) -> Result<bool> {
    let Some((folder, name)) = file.as_ref().rsplit_once('/') else { return Ok(false) };
    let names = table.store().read_dir(Path::from(folder)).await.doing(|| format!("listing `{file}`"))?;
    Ok(names.iter().any(|listed| listed == name))
}

/// Lance's policy for a job's.
async fn policy(table: &Table, spec: &JobSpec) -> Result<CleanupPolicy> {
    let JobSpec::Cleanup { min_age_ms, retain_versions, delete_rate_max, .. } = spec else {
        return Err(Error::Fatal("cleanup was given another job".into()));
    };
    let mut builder = CleanupPolicyBuilder::default().before_timestamp(before(*min_age_ms)?);
    // Tags are skipped, not a refusal; files that no manifest proves garbage stay for Lance's 7 days.
    builder = builder.error_if_tagged_old_versions(false).delete_unverified(false);
    if let Ok(retain @ 1..) = usize::try_from(*retain_versions) {
        builder = builder.retain_n_versions(&table.dataset, retain).await?;
    }
    if *delete_rate_max > 0 {
        builder = builder.delete_rate_limit(*delete_rate_max)?;
    }
    Ok(builder.build())
}

fn before(min_age_ms: u64) -> Result<DateTime<Utc>> {
    let at = now_ms().saturating_sub(min_age_ms);
    let at = i64::try_from(at).ok().and_then(DateTime::from_timestamp_millis);
    at.ok_or_else(|| Error::Invalid(format!("a minimum age of {min_age_ms} ms is out of range")))
}
