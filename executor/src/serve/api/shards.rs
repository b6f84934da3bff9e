//! Writes to a table's shards, where it takes LSM writes.

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use futures::TryStreamExt;

use super::call::Call;
use super::ipc::Incoming;
use super::query::{Columns, Projection, keys_where, rows_where};
use super::write::{MergeRequest, UpdateRequest};
use super::{Refused, call};
use crate::pod::Fresh;
use crate::table::Table;

/// Bytes of one request's rows: they are held until all are known to be right.
const ROWS_MAX: usize = 256 << 20;
/// Rows that one request may delete or update.
const CHANGED_MAX: usize = 1_000_000;

impl Call {
    /// Whether a request is about a table's shards too: where it takes LSM writes, unless the client says
    /// otherwise.
    ///
    /// # Errors
    /// The client wants LSM writes, and the table takes none.
    pub(super) async fn to_shards(&self, table: &Table, asked: Option<bool>) -> Result<bool, Refused> {
        match asked {
            Some(false) => Ok(false),
            _ if table.mem_wal().await?.is_some() => Ok(true),
            Some(true) => Err(Refused::invalid(format!(
                "table `{}` takes no LSM writes: it has no write spec; set_lsm_write_spec installs one, or leave the flag unset",
                self.id
            ))),
            None => Ok(false),
        }
    }

    /// The table with what is newer than its base.
    pub(super) async fn fresh(&self, table: &Table) -> Result<Fresh, Refused> {
        let fresh = self.api.pod.fresh(table).await?;
        fresh.ok_or_else(|| Refused::invalid(format!("table `{}` takes no LSM writes any more", self.id)))
    }
}

/// Refuses a merge that LSM writes can't do: they replace rows by key, and nothing else.
///
/// # Errors
/// Says what it asks too much.
pub(super) fn upserts(table: &Table, request: &MergeRequest, rows: &Schema) -> Result<(), Refused> {
    // The rows that they replace are not read: what is in another column would be gone.
    let missing = table.dataset.schema().fields.iter().find(|field| rows.field_with_name(&field.name).is_err());
    if let Some(field) = missing {
        return Err(Refused::invalid(format!(
            "LSM writes replace whole rows: column `{}` is missing; send it, or set use_lsm to false",
            field.name
        )));
    }
    let key = table.primary_key();
    if !request.on.is_empty() && request.on != key {
        return Err(Refused::invalid(format!(
            "`on` must be the primary key {key:?} of a table with LSM writes, and is {:?}",
            request.on
        )));
    }
    let only = request.update_matched && request.insert_new && request.update_matched_if.is_none();
    if !only || request.delete_unmatched {
        return Err(Refused::invalid(
            "LSM writes replace and insert: ask for when_matched_update_all and when_not_matched_insert_all without \
             conditions, or set use_lsm to false, which writes to the base",
        ));
    }
    Ok(())
}

/// Writes rows. Gives how many.
///
/// # Errors
/// They are too many for one request, or not as the table's.
pub(super) async fn put(call: &Call, table: &Table, rows: Incoming) -> Result<u64, Refused> {
    let (fault, mut stream) = (rows.fault, rows.batches);
    let (mut batches, mut bytes, mut held) = (Vec::<RecordBatch>::new(), 0, Vec::new());
    while let Some(batch) = stream.try_next().await.map_err(|e| fault.or(lance_core::Error::from(e)))? {
        // Not what its arrays hold: the columns of a message are slices of one buffer, which each would count.
        let size = bytes_of(&batch)?;
        bytes += size;
        if bytes > ROWS_MAX {
            return Err(call::too_large(ROWS_MAX as u64));
        }
        held.push(call.api.pod.pressure.room(size as u64).await?);
        batches.push(batch);
    }
    Ok(call.api.pod.put(table, batches).await?)
}

/// Bytes of the rows of a batch.
fn bytes_of(batch: &RecordBatch) -> Result<usize, Refused> {
    let sizes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size());
    let bytes = sizes.sum::<Result<usize, _>>();
    bytes.map_err(|e| Refused::invalid(format!("rows whose size can't be told: {e}")))
}

/// Deletes the rows that a predicate is true of, by their keys. Gives how many.
///
/// # Errors
/// It is none, or true of too many rows.
pub(super) async fn delete(call: &Call, table: &Table, predicate: &str) -> Result<u64, Refused> {
    // Alone: a row that somebody writes between must not go for what it was before.
    let turn = call.api.pod.alone(&table.uri).await?;
    let fresh = call.fresh(&call.table().await?).await?;
    let rows = keys_where(&fresh, Some(predicate), &sharded_by(&fresh.table).await?).await?;
    let keys = few(rows).await?;
    Ok(call.api.pod.delete(&turn, &fresh.table, keys).await?)
}

/// Gives the rows that a predicate is true of new values. Gives how many.
///
/// # Errors
/// A value is for the key, which names the row, or can't be computed; there are too many rows.
pub(super) async fn update(call: &Call, table: &Table, request: &UpdateRequest) -> Result<u64, Refused> {
    // Alone: what somebody writes between must not be undone.
    let turn = call.api.pod.alone(&table.uri).await?;
    let fresh = call.fresh(&call.table().await?).await?;
    let schema = Schema::from(fresh.table.dataset.schema());
    let mut fixed = fresh.table.primary_key();
    fixed.extend(sharded_by(&fresh.table).await?);
    if let Some((column, _)) = request.updates.iter().find(|(column, _)| fixed.contains(column)) {
        return Err(Refused::invalid(format!("`{column}` names the row or its shard, and can't be updated")));
    }
    let value =
        |name: &String| request.updates.iter().find(|(column, _)| column == name).map(|(_, value)| value.clone());
    let columns = schema.fields().iter().map(|field| (field.name().clone(), value(field.name()).unwrap_or_default()));
    let projection = Projection::of(&schema, Some(&Columns(columns.collect())), None)?;
    let rows = few(rows_where(&fresh, request.predicate.as_deref()).await?).await?;
    let rows = rows.iter().map(|batch| projection.apply(batch)).collect::<Result<Vec<_>, _>>()?;
    Ok(call.api.pod.replace(&turn, &fresh.table, rows).await?)
}

/// The columns by whose values rows are sent to shards.
pub(super) async fn sharded_by(table: &Table) -> Result<Vec<String>, Refused> {
    let details = table.mem_wal().await?;
    let fields = details.iter().flat_map(|details| &details.sharding_specs).flat_map(|spec| &spec.fields);
    let ids = fields.flat_map(|field| &field.source_ids);
    Ok(ids.filter_map(|id| table.dataset.schema().field_by_id(*id)).map(|field| field.name.clone()).collect())
}

async fn few(mut rows: super::query::Rows) -> Result<Vec<RecordBatch>, Refused> {
    let (mut batches, mut count) = (Vec::new(), 0);
    while let Some(batch) = rows.try_next().await? {
        count += batch.num_rows();
        if count > CHANGED_MAX {
            return Err(Refused::invalid(format!("more than {CHANGED_MAX} rows would change; name fewer at a time")));
        }
        batches.push(batch);
    }
    Ok(batches)
}
