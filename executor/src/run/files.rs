//! The files a job writes.

use lance_table::format::Fragment;
use object_store::path::Path;
use uuid::Uuid;

use crate::table::Table;

/// Bytes of a fragment's data files.
pub(crate) fn data_bytes(fragment: &Fragment) -> u64 {
    fragment.files.iter().filter_map(|f| f.file_size_bytes.get()).map(u64::from).sum()
}

/// Deletes the data files of `fragments`, which were not committed, and the blobs that lie beside them. Best effort:
/// what stays is unreferenced and goes with Lance's cleanup.
pub(crate) async fn discard<'a>(table: &Table, fragments: impl Iterator<Item = &'a Fragment>) {
    let data = table.base().join("data");
    for file in fragments.flat_map(|f| &f.files) {
        let path = data.clone().join(file.path.as_str());
        left_behind(table.store().delete(&path).await, &path);
        // Blobs have a folder of the file's name, without its ending.
        if let Some(name) = file.path.strip_suffix(".lance") {
            discard_folder(table, data.clone().join(name)).await;
        }
    }
}

/// Deletes files that no commit needs, as [`discard`] does.
pub(crate) async fn discard_paths(table: &Table, files: Vec<Path>) {
    for path in files {
        left_behind(table.store().delete(&path).await, &path);
    }
}

/// Deletes the files of indexes that were not committed, as [`discard`] does.
pub(crate) async fn discard_indexes(table: &Table, indexes: impl Iterator<Item = Uuid>) {
    for index in indexes {
        discard_folder(table, table.base().join("_indices").join(index.to_string())).await;
    }
}

async fn discard_folder(table: &Table, folder: Path) {
    match table.store().remove_dir_all(folder.clone()).await {
        // Most data files have no blobs beside them.
        Err(lance_core::Error::NotFound { .. }) => {}
        done => left_behind(done, &folder),
    }
}

fn left_behind(done: lance_core::Result<()>, path: &Path) {
    if let Err(error) = done {
        tracing::debug!(%path, %error, "left an uncommitted file behind");
    }
}
