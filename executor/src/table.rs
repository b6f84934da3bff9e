//! One open table, and the few addresses everything else derives from it.

use std::sync::Arc;

use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::mem_wal::util::shard_base_path;
use lance::dataset::mem_wal::{DatasetMemWalExt, ShardManifestStore};
use lance::session::Session;
use lance_index::mem_wal::{MemWalIndexDetails, ShardManifest};
use lance_io::object_store::ObjectStore;
use object_store::path::Path;
use uuid::Uuid;

use crate::error::{Doing, Error, Result};
use crate::fence::Fence;

/// Bytes of index and metadata that one process keeps in memory, over all its tables.
const INDEX_CACHE_BYTES: usize = 64 << 20;
const METADATA_CACHE_BYTES: usize = 64 << 20;
/// HEAD requests sent at once when looking for the newest shard manifest.
const MANIFEST_PROBE: usize = 2;

/// A session whose caches are small: maintenance reads each thing once.
pub fn session() -> Arc<Session> {
    Arc::new(Session::new(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES, Arc::default()))
}

/// A table as of one version of its base.
#[derive(Clone)]
pub struct Table {
    /// Name below the root, for people.
    pub name: String,
    /// Where it lies.
    pub uri: String,
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) session: Arc<Session>,
    pub(crate) store: Arc<ObjectStore>,
    pub(crate) fence: Fence,
}

impl Table {
    /// Opens the newest version of the table at `uri`.
    ///
    /// # Errors
    /// `Invalid` when there is no Lance table, `Retry` when storage fails.
    pub async fn open(name: &str, uri: &str, session: &Arc<Session>) -> Result<Self> {
        let dataset = open_dataset(uri, session).await.map_err(|e| match e {
            Error::Invalid(m) => Error::Invalid(format!("`{uri}` is not a Lance table: {m}")),
            other => other.context(format!("opening `{uri}`")),
        })?;
        Self::of(name, uri, session, dataset).await
    }

    /// The same; `None` where there is nothing at all.
    ///
    /// # Errors
    /// As [`Self::open`], of what is there.
    pub async fn find(name: &str, uri: &str, session: &Arc<Session>) -> Result<Option<Self>> {
        match DatasetBuilder::from_uri(uri).with_session(session.clone()).load().await {
            Ok(dataset) => Self::of(name, uri, session, dataset).await.map(Some),
            Err(lance_core::Error::DatasetNotFound { .. } | lance_core::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::from(error).context(format!("opening `{uri}`"))),
        }
    }

    async fn of(name: &str, uri: &str, session: &Arc<Session>, dataset: Dataset) -> Result<Self> {
        let store = dataset.object_store(None).await.doing(|| format!("opening the storage of `{uri}`"))?;
        let (dataset, session) = (Arc::new(dataset), session.clone());
        Ok(Self { name: name.into(), uri: uri.into(), dataset, session, store, fence: Fence::default() })
    }

    /// The same table, to be changed only while `fence` lets it.
    #[must_use]
    pub(crate) fn fenced(&self, fence: Fence) -> Self {
        Self { fence, ..self.clone() }
    }

    /// The same table at its newest version.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn refreshed(&self) -> Result<Self> {
        let mut dataset = (*self.dataset).clone();
        dataset.checkout_latest().await.doing(|| format!("reopening `{}`", self.uri))?;
        Ok(Self { dataset: Arc::new(dataset), ..self.clone() })
    }

    /// The same table at its newest version, with nothing remembered from earlier reads.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) async fn again(&self) -> Result<Self> {
        Self::open(&self.name, &self.uri, &session()).await
    }

    /// The same table at another version.
    ///
    /// # Errors
    /// `Invalid` when that version is gone.
    pub(crate) async fn at(&self, version: u64) -> Result<Self> {
        let dataset = self.dataset.checkout_version(version).await;
        let dataset = dataset.doing(|| format!("opening version {version} of `{}`", self.uri))?;
        Ok(Self { dataset: Arc::new(dataset), ..self.clone() })
    }

    /// Version of the base.
    pub fn version(&self) -> u64 {
        self.dataset.manifest().version
    }

    /// The base, for reading.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Columns of the primary key, in key order.
    pub fn primary_key(&self) -> Vec<String> {
        let key = self.dataset.schema().unenforced_primary_key();
        key.iter().map(|field| field.name.clone()).collect()
    }

    /// What the base records of its MemWAL; `None` if the table takes no LSM writes.
    pub(crate) async fn mem_wal(&self) -> Result<Option<MemWalIndexDetails>> {
        self.dataset.mem_wal_index_details().await.doing(|| format!("reading the MemWAL index of `{}`", self.name))
    }

    pub(crate) fn store(&self) -> Arc<ObjectStore> {
        self.store.clone()
    }

    /// Folder of the base, as the object store names it.
    pub(crate) fn base(&self) -> Path {
        self.dataset.branch_location().path
    }

    pub(crate) fn shard_dir(&self, shard: &Uuid) -> Path {
        shard_base_path(&self.base(), shard)
    }

    pub(crate) fn shard_store(&self, shard: Uuid) -> ShardManifestStore {
        ShardManifestStore::new(self.store(), &self.base(), shard, MANIFEST_PROBE)
    }

    /// The newest manifest of a shard, read from storage; `None` where no writer has made one.
    pub(crate) async fn shard_manifest(&self, shard: Uuid) -> Result<Option<ShardManifest>> {
        self.shard_store(shard).latest().await.doing(|| format!("reading the manifest of shard `{shard}`"))
    }

    /// The newest manifest of a shard that must have one.
    pub(crate) async fn listed_manifest(&self, shard: Uuid) -> Result<ShardManifest> {
        let manifest = self.shard_manifest(shard).await?;
        manifest.ok_or_else(|| Error::Invalid(format!("shard `{shard}` has no manifest")))
    }

    /// Opens one SSTable as the Lance dataset it is (R2.8).
    pub(crate) async fn open_sstable(&self, shard: &Uuid, path: &str) -> Result<Dataset> {
        let uri = format!("{}/_mem_wal/{shard}/{path}", self.uri.trim_end_matches('/'));
        open_dataset(&uri, &self.session).await.map_err(|e| match e {
            Error::Invalid(m) => Error::Invalid(format!(
                "SSTable `{path}` of shard `{shard}` is listed but can't be read ({m}); nothing was folded; \
                 restore `{uri}` from a backup, its rows are nowhere else"
            )),
            other => other.context(format!("opening SSTable `{path}`")),
        })
    }
}

async fn open_dataset(uri: &str, session: &Arc<Session>) -> Result<Dataset> {
    Ok(DatasetBuilder::from_uri(uri).with_session(session.clone()).load().await?)
}

/// A shard id from text.
pub(crate) fn shard_id(text: &str) -> Result<Uuid> {
    Uuid::parse_str(text).map_err(|e| Error::Invalid(format!("`{text}` is not a shard id: {e}")))
}
