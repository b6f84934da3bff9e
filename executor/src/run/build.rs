//! An index that somebody asks for, built and committed.

mod params;

use std::sync::Arc;

use async_trait::async_trait;
use lance::Dataset;
use lance::dataset::CommitBuilder;
use lance::dataset::transaction::{Operation, TransactionBuilder};
use lance::index::DatasetIndexExt;
use lance_index::progress::IndexBuildProgress;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub(crate) use self::params::CreateIndex;
use crate::error::{Doing, Error, Result};
use crate::run::files::discard_indexes;
use crate::run::{Progress, properties};
use crate::table::Table;

/// The work, as the registry keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Build {
    /// What is asked for.
    pub(crate) create: CreateIndex,
}

impl Build {
    /// The job's type: `create_<algorithm>`, beside the `reindex_<algorithm>` of upkeep.
    ///
    /// # Errors
    /// `Invalid` where the table can't have such an index.
    pub(crate) fn kind(&self, dataset: &Dataset) -> Result<String> {
        self.create.plan(dataset).map(|planned| format!("create_{}", planned.algorithm))
    }

    /// Builds the index from the newest version, and commits it.
    ///
    /// # Errors
    /// `Invalid` where the table can't have such an index, `Conflict` where one of its name has come meanwhile.
    pub(crate) async fn run(&self, table: &Table, progress: &Arc<Progress>) -> Result<()> {
        let table = table.refreshed().await?;
        let planned = self.create.plan(&table.dataset)?;
        let name = self.create.full_name(&planned.column);
        let doing = || format!("building index `{name}` of `{}`", table.name);
        let (mut dataset, columns) = ((*table.dataset).clone(), [planned.column.as_str()]);
        let told = Arc::new(Told(progress.clone()));
        let (stop, uuid) = (table.fence.stop(), Uuid::new_v4());
        let building = dataset.create_index_builder(&columns, planned.kind, planned.params.as_ref());
        let mut building = building.name(name.clone()).replace(self.create.replace()).index_uuid(uuid).progress(told);
        let built = tokio::select! {
            built = building.execute_uncommitted() => built.doing(doing),
            // As in a rewrite, what was written when it stops is Lance's cleanup's.
            () = stop.cancelled() => Err(table.fence.pass().err().unwrap_or_else(|| Error::Superseded("stopped".into()))),
        }?;
        crate::fault::at(&table.uri, "build.before_commit").await;
        table.fence.check().await?;
        let known = dataset.load_indices().await.doing(doing)?;
        let removed_indices = known.iter().filter(|index| index.name == name).cloned().collect();
        let operation = Operation::CreateIndex { new_indices: vec![built.clone()], removed_indices };
        let transaction = TransactionBuilder::new(built.dataset_version, operation)
            .transaction_properties(Some(Arc::new(properties(&table, "create_index").into_iter().collect())))
            .build();
        let committed = CommitBuilder::new(Arc::new(dataset)).execute(transaction).await.doing(doing);
        if let Err(Error::Conflict(_)) = &committed {
            discard_indexes(&table, std::iter::once(uuid)).await;
        }
        committed.map(drop)
    }
}

/// Tells how far Lance is.
#[derive(Debug)]
struct Told(Arc<Progress>);

#[async_trait]
impl IndexBuildProgress for Told {
    async fn stage_start(&self, _: &str, total: Option<u64>, _: &str) -> lance_core::Result<()> {
        self.0.start("index", total.unwrap_or(0));
        Ok(())
    }

    async fn stage_progress(&self, _: &str, completed: u64) -> lance_core::Result<()> {
        self.0.at(completed);
        self.0.alive();
        Ok(())
    }

    async fn stage_complete(&self, _: &str) -> lance_core::Result<()> {
        self.0.alive();
        Ok(())
    }
}
