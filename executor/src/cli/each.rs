//! Many tables looked at at once, and shown one after the other.

use futures::StreamExt;

use super::Work;
use super::out::closed;
use crate::catalog::TableRef;
use crate::error::Result;

/// Looks at each of `tables`, as many at once as the settings say, and shows what came of it in their
/// order, while anybody still reads. One that can't be looked at stops none of the others.
///
/// # Errors
/// Those of `show`.
pub(super) async fn each<'a, T>(
    work: &Work,
    tables: &'a [TableRef],
    look: impl AsyncFn(&'a TableRef) -> Result<T>,
    mut show: impl FnMut(&'a TableRef, Result<T>) -> Result<()>,
) -> Result<()> {
    let look = &look;
    let looks = futures::stream::iter(tables).map(|table| async move { (table, look(table).await) });
    let mut looks = looks.buffered(work.settings.tables_at_once);
    while !closed()
        && let Some((table, seen)) = looks.next().await
    {
        show(table, seen)?;
    }
    Ok(())
}
