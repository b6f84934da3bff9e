//! What a job that did not commit leaves behind.

use lance_table::format::Fragment;

use crate::table::Table;

/// Deletes the data files of `fragments`. Best effort: what stays is unreferenced and goes with
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
