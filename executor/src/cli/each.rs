//! Many tables looked at at once, and shown one after the other.

use std::sync::Arc;

use futures::StreamExt;
use lance::session::Session;

use super::out::{closed, say};
use super::{Exit, Work};
use crate::catalog::{Root, TableRef};
use crate::error::{Error, Result};
use crate::settings;

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

/// The tables under a root, or those of them that are named.
pub(super) async fn selected(root: &Root, session: &Arc<Session>, names: &[String]) -> Result<Vec<TableRef>> {
    let mut tables = root.tables(session).await?;
    for name in names {
        if !tables.iter().any(|table| table.name == *name) {
            let near = settings::nearest(name, tables.iter().map(|table| table.name.as_str()));
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(Error::Invalid(format!("there is no table `{name}` under `{}`{near}", root.uri())));
        }
    }
    tables.retain(|table| names.is_empty() || names.contains(&table.name));
    Ok(tables)
}

pub(super) fn none_found(root: &Root) -> Result<Exit> {
    say(format!("no tables under `{}`; a table is a folder `<name>.lance`", root.uri()))?;
    Ok(Exit::Done)
}
