//! The data files a job writes.

use lance_table::format::Fragment;

use crate::table::Table;

/// Bytes of a fragment's data files.
pub(crate) fn data_bytes(fragment: &Fragment) -> u64 {
    fragment.files.iter().filter_map(|f| f.file_size_bytes.get()).map(u64::from).sum()
}

/// Deletes the data files of `fragments`, which were not committed. Best effort: what stays is unreferenced and goes with
/// Lance's cleanup.
pub(crate) async fn discard<'a>(table: &Table, fragments: impl Iterator<Item = &'a Fragment>) {
    let (store, data) = (table.store(), table.base().join("data"));
    for file in fragments.flat_map(|f| &f.files) {
        let path = data.clone().join(file.path.as_str());
        if let Err(error) = store.delete(&path).await {
            tracing::debug!(%path, %error, "left an uncommitted data file behind");
        }
    }
}
