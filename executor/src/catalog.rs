//! Which tables exist under a root.

use std::sync::Arc;

use lance::session::Session;
use lance_io::object_store::{ObjectStore, ObjectStoreParams};
use object_store::path::Path;

use crate::error::{Doing, Error, Result};

/// A folder of this ending is a table, as LanceDB lays them out.
const TABLE_ENDING: &str = ".lance";
/// Bytes of a table's name: with the ending it is a folder's on every file system. Bytes that are percent-encoded
/// count as what becomes of them, since Lance makes folders by such names too.
const NAME_MAX: usize = 240;
/// Every table has this folder.
const VERSIONS: &str = "_versions";

/// Where tables lie: a database (a folder of `<name>.lance`), or one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    uri: String,
}

/// A table found under a root, not opened yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableRef {
    /// Name, without the ending.
    pub name: String,
    /// Where it lies.
    pub uri: String,
}

impl Root {
    /// Reads a root as a person writes it: a local path (`~` is the shell's), `file://`, `s3://`,
    /// `gs://` or `az://`. One place has one spelling: `file:///t.lance/?` is `/t.lance`.
    ///
    /// # Errors
    /// `Invalid` for an empty root, a scheme nobody serves, and a local folder that is not there.
    pub fn parse(text: &str) -> Result<Self> {
        let plain = text.trim_end_matches(['/', '?']);
        if plain.trim().is_empty() {
            return Err(Error::Invalid(format!("`{text}` names no folder; give a path or s3://, gs://, az://")));
        }
        if text.trim_end_matches(['/', '?']).ends_with(':') && text.contains("://") {
            return Err(Error::Invalid(format!("`{text}` names no bucket; give one, such as s3://bucket/folder")));
        }
        match plain.split_once("://") {
            None => Self::local(plain),
            Some(("file", _)) => {
                let path = url::Url::parse(plain).ok().and_then(|url| url.to_file_path().ok());
                let path = path.as_deref().and_then(std::path::Path::to_str);
                Self::local(path.ok_or_else(|| Error::Invalid(format!("`{text}` is not a local file URL")))?)
            }
            Some(("s3" | "gs" | "az", _)) => Ok(Self { uri: plain.to_string() }),
            Some((scheme, _)) => Err(Error::Invalid(format!(
                "`{scheme}://` is not served; use a local path, file://, s3://, gs:// or az://"
            ))),
        }
    }

    fn local(path: &str) -> Result<Self> {
        let found = std::fs::canonicalize(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::Invalid(format!("`{path}` does not exist; give a database's or a table's folder"))
            }
            _ => Error::Invalid(format!("`{path}`: {e}")),
        })?;
        if !found.is_dir() {
            return Err(Error::Invalid(format!("`{path}` is a file; a table or a database is a folder")));
        }
        let uri = found.to_str().ok_or_else(|| Error::Invalid(format!("`{}` is not UTF-8", found.display())))?;
        Ok(Self { uri: uri.to_string() })
    }

    /// The root as every error and log shows it.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The table of a name, whether it is there or not. A root that is a table itself has only that.
    ///
    /// # Errors
    /// `Invalid` for a name that would lead out of the root, or that can't be a folder's everywhere.
    pub fn table(&self, name: &str) -> Result<TableRef> {
        let remote = self.uri.contains("://");
        let odd = |c: char| {
            c.is_control() || matches!(c, '/' | '\\' | '$' | ':' | '*') || remote && matches!(c, '%' | '?' | '#')
        };
        if name.is_empty() || name.starts_with('.') || encoded_len(name) > NAME_MAX || name.contains(odd) {
            // In a URL these would end the path, or name another one.
            let more = if remote { " % ? #" } else { "" };
            return Err(Error::Invalid(format!(
                "`{}` can't be a table's name here: 1 to {NAME_MAX} bytes, no dot in front, and none of / \\ $ : *{more}; letters beyond ASCII count three for each byte",
                name.escape_debug()
            )));
        }
        if let Some(folder) = self.uri.rsplit('/').next().and_then(|last| last.strip_suffix(TABLE_ENDING)) {
            return match folder == name {
                true => Ok(TableRef { name: name.into(), uri: self.uri.clone() }),
                false => Err(Error::Invalid(format!("`{}` is one table, `{folder}`, and no database", self.uri))),
            };
        }
        Ok(TableRef { name: name.into(), uri: format!("{}/{name}{TABLE_ENDING}", self.uri) })
    }

    /// Every table, sorted by name. A root that is a table itself is the only one.
    ///
    /// # Errors
    /// `Invalid` where there is neither a table nor a folder of tables.
    pub async fn tables(&self, session: &Arc<Session>) -> Result<Vec<TableRef>> {
        let folders = match self.uri.contains("://") {
            true => self.remote_folders(session).await?,
            false => self.local_folders().await?,
        };
        if folders.iter().any(|folder| folder == VERSIONS) {
            let name = self.uri.rsplit('/').next().unwrap_or(&self.uri);
            let name = name.strip_suffix(TABLE_ENDING).unwrap_or(name).to_string();
            return Ok(vec![TableRef { name, uri: self.uri.clone() }]);
        }
        let mut tables: Vec<TableRef> = folders
            .iter()
            .filter_map(|folder| Some((folder, folder.strip_suffix(TABLE_ENDING)?)))
            .map(|(folder, name)| TableRef { name: name.to_string(), uri: format!("{}/{folder}", self.uri) })
            .collect();
        if tables.is_empty() && self.uri.ends_with(TABLE_ENDING) {
            return Err(Error::Invalid(format!("`{}` is not a Lance table: it has no `_versions` folder", self.uri)));
        }
        tables.sort();
        Ok(tables)
    }

    async fn remote_folders(&self, session: &Arc<Session>) -> Result<Vec<String>> {
        let params = ObjectStoreParams::default();
        let opened = ObjectStore::from_uri_and_params(session.store_registry(), &self.uri, &params).await;
        let (store, path) = opened.doing(|| format!("opening `{}`", self.uri))?;
        let listed = store.inner.list_with_delimiter(Some(&path)).await;
        let listed = listed.map_err(lance_core::Error::from).doing(|| format!("listing `{}`", self.uri))?;
        let folders = listed.common_prefixes.iter().filter_map(Path::filename).map(str::to_string);
        // The URL of one would be that of another table.
        Ok(folders.filter(|folder| !folder.contains(['%', '?', '#'])).collect())
    }

    /// Read without the object store, for which one entry that it can't follow or name (a link to
    /// itself, a name that is not UTF-8) spoils the whole listing.
    async fn local_folders(&self) -> Result<Vec<String>> {
        let failed = |error: std::io::Error| Error::Retry(format!("listing `{}`: {error}", self.uri));
        let mut entries = tokio::fs::read_dir(&self.uri).await.map_err(failed)?;
        let mut folders = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            let name = match entry.file_name().into_string() {
                Ok(name) if !name.contains(char::is_control) => name,
                odd => {
                    tracing::warn!(root = self.uri, entry = ?odd, "left out: no table can be addressed by this name");
                    continue;
                }
            };
            match tokio::fs::metadata(entry.path()).await {
                Ok(found) if found.is_dir() && is_shell(&entry.path()).await => {
                    tracing::warn!(
                        root = self.uri,
                        folder = name,
                        "left out: it holds no version and no data of a table"
                    );
                }
                Ok(found) if found.is_dir() => folders.push(name),
                Ok(_) => {}
                Err(error) => tracing::warn!(root = self.uri, entry = name, %error, "left out"),
            }
        }
        Ok(folders)
    }
}

fn encoded_len(name: &str) -> usize {
    name.bytes().map(|byte| if byte.is_ascii_alphanumeric() || b"_-. ".contains(&byte) { 1 } else { 3 }).sum()
}

/// Whether a table's folder holds nothing of a table. Lance makes such a folder for the shards of a
/// table whose name needs percent-encoding, and a table that is dropped while it is written leaves one.
async fn is_shell(folder: &std::path::Path) -> bool {
    let is_table = folder.extension().is_some_and(|ending| ending == "lance");
    let holds = async |name: &str| tokio::fs::try_exists(folder.join(name)).await.unwrap_or(true);
    is_table && !holds(VERSIONS).await && !holds("data").await
}
