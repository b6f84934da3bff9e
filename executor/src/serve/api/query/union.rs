//! Reads of a table that takes LSM writes: its base, and what is newer (R2.13).
//!
//! A scan goes through Lance's union. A search asks both sides for their best: the base by its indexes, of
//! which rows that were written again since are left out, and what is newer row by row. So an index that lags
//! hides nothing, and needs no SSTable to stand in for it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Float32Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::{SortExec, sort_batch};
use datafusion::prelude::Expr;
use futures::{FutureExt, StreamExt, TryStreamExt};
use lance::dataset::mem_wal::LsmScanner;
use lance::index::DatasetIndexExt;
use lance::io::exec::Planner;
use lance_core::datatypes::{escape_field_path_for_project, format_field_path};
use lance_index::vector::flat::compute_distance;
use lance_linalg::distance::DistanceType;
use lance_table::format::IndexMetadata;

use super::super::Refused;
use super::project::Projection;
use super::request::{Order, Query};
use super::scan::{metric_of, scanners, target};
use super::{Rows, numbered, wide};
use crate::error::Error;
use crate::pod::Fresh;
use crate::table::Table;

/// Nearness of a row, and fit of its text: the one grows, the other falls.
const DISTANCE: &str = "_distance";
const SCORE: &str = "_score";
/// How often more of the base's best are asked for, each time twice as many.
const ASKED_MAX: u32 = 8;
/// Newer rows that are held at once while the nearest are looked for.
const HELD_MAX: usize = 16_384;
/// Rows of one answer of a search.
const ROWS_MAX: u64 = 1_000_000;

/// The rows of a table that a query is after.
pub(super) async fn query_union(fresh: &Fresh, query: &Query) -> Result<(SchemaRef, Rows), Refused> {
    if query.with_row_id {
        return Err(Refused::invalid("a table with LSM writes does not support with_row_id"));
    }
    if !query.vector.0.is_empty() && query.full_text_query.is_some() {
        return Err(Refused::invalid("one query searches for a vector or for text, not for both"));
    }
    if fresh.is_empty() {
        return super::query_base(&fresh.table.dataset, query).await;
    }
    if !query.is_search() {
        return plain(fresh, query).await;
    }
    let searches =
        if query.full_text_query.is_some() { vec![None] } else { (0..query.vector.0.len()).map(Some).collect() };
    let several = searches.len() > 1;
    let mut found = Vec::with_capacity(searches.len());
    for (at, vector) in (0i32..).zip(searches) {
        let best = best(fresh, query, vector).boxed().await?;
        found.push(if several { numbered(&wide(&best.schema()), &best, at)? } else { best });
    }
    let schema = found.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
    Ok((schema, futures::stream::iter(found.into_iter().map(Ok)).boxed()))
}

/// How many rows a predicate is true of.
pub(super) async fn count_union(fresh: &Fresh, predicate: Option<&str>) -> Result<u64, Refused> {
    let mut rows = keys_where(fresh, predicate, &[]).await?;
    let mut count = 0;
    while let Some(batch) = rows.try_next().await? {
        count += batch.num_rows() as u64;
    }
    Ok(count)
}

/// The keys, and some columns more, of the rows that a predicate is true of.
pub(in super::super) async fn keys_where(
    fresh: &Fresh,
    predicate: Option<&str>,
    more: &[String],
) -> Result<Rows, Refused> {
    let mut names = fresh.table.primary_key();
    names.extend(more.iter().filter(|name| !fresh.table.primary_key().contains(name)).cloned());
    let scanner = filtered(fresh, fresh.union().project(&names)?, predicate, (None, None))?;
    stream(scanner.create_plan().boxed().await?)
}

/// Whole rows that a predicate is true of.
pub(in super::super) async fn rows_where(fresh: &Fresh, predicate: Option<&str>) -> Result<Rows, Refused> {
    stream(filtered(fresh, fresh.union(), predicate, (None, None))?.create_plan().boxed().await?)
}

async fn plain(fresh: &Fresh, query: &Query) -> Result<(SchemaRef, Rows), Refused> {
    let (projection, plan) = plain_plan(fresh, query).await?;
    let schema = projection.schema.clone();
    let rows = stream(plan)?.map(move |batch| projection.apply(&batch?).map_err(lance)).boxed();
    Ok((schema, rows))
}

/// How rows are read that nothing is searched in.
pub(super) async fn plain_plan(fresh: &Fresh, query: &Query) -> Result<(Projection, Arc<dyn ExecutionPlan>), Refused> {
    let schema = Schema::from(fresh.table.dataset.schema());
    let projection = Projection::of(&schema, query.columns.as_ref(), None)?;
    let mut names = projection.needs.clone();
    names.extend(ordered_by(fresh, query)?);
    names.extend(fresh.table.primary_key());
    let (union, filter, page) = (fresh.union().project(&distinct(names))?, query.filter(), query.page());
    // Of no rows there is no order, and DataFusion can't keep the first none.
    if query.order().is_empty() || page.0 == Some(0) {
        return Ok((projection, filtered(fresh, union, filter, page)?.create_plan().boxed().await?));
    }
    let plan = filtered(fresh, union, filter, (None, None))?.create_plan().boxed().await?;
    let Some(keys) = sort_keys(fresh, query, &plan.schema())? else { return Ok((projection, plan)) };
    let (limit, offset) = page;
    let skip = usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX);
    let fetch = limit.map(|fetch| usize::try_from(fetch).unwrap_or(usize::MAX));
    let sorted = SortExec::new(keys, plan).with_fetch(fetch.map(|fetch| fetch.saturating_add(skip)));
    Ok((projection, Arc::new(GlobalLimitExec::new(Arc::new(sorted), skip, fetch))))
}

/// The columns that an answer is ordered by, whole where it is a part of one.
fn ordered_by(fresh: &Fresh, query: &Query) -> Result<Vec<String>, Refused> {
    let schema = fresh.table.dataset.schema();
    let top = |key: &Order| {
        let path = schema.field(&key.column_name).and_then(|_| schema.resolve_case_insensitive(&key.column_name));
        let top = path.and_then(|path| path.first().map(|field| field.name.clone()));
        top.ok_or_else(|| Refused::invalid(format!("there is no column `{}` to order by", key.column_name)))
    };
    query.order().iter().map(top).collect()
}

/// The order of an answer, for rows of some columns; `None`: it has none.
fn sort_keys(fresh: &Fresh, query: &Query, rows: &SchemaRef) -> Result<Option<LexOrdering>, Refused> {
    let planner = Planner::new(rows.clone());
    let table = fresh.table.dataset.schema();
    let key = |key: &Order| {
        let path = table.resolve_case_insensitive(&key.column_name).unwrap_or_default();
        let path: Vec<&str> = path.iter().map(|field| field.name.as_str()).collect();
        let expr = planner.parse_expr(&escape_field_path_for_project(&format_field_path(&path)))?;
        let expr = planner.create_physical_expr(&planner.optimize_expr(expr)?)?;
        let options = arrow_schema::SortOptions { descending: !key.ascending, nulls_first: key.nulls_first };
        Ok::<_, Refused>(PhysicalSortExpr { expr, options })
    };
    Ok(LexOrdering::new(query.order().iter().map(key).collect::<Result<Vec<_>, _>>()?))
}

/// How many rows a search looks for: more than that are left out, or refused where the client wants all.
fn wanted(query: &Query, vector: Option<usize>) -> Result<(u64, u64), Refused> {
    let (limit, offset) = query.page();
    let skip = offset.and_then(|offset| u64::try_from(offset).ok()).unwrap_or(0);
    let most = match limit.and_then(|limit| u64::try_from(limit).ok()) {
        Some(most) => most,
        // What is near has no end of its own, as what has a word does.
        None if query.k.is_none() && vector.is_some() => super::scan::NEAREST,
        None => u64::MAX,
    };
    match most.saturating_add(skip) {
        0 if vector.is_some() => Err(Refused::invalid("`k` must be positive where a vector is searched")),
        wanted => Ok((wanted, skip)),
    }
}

/// The best rows of one search.
async fn best(fresh: &Fresh, query: &Query, vector: Option<usize>) -> Result<RecordBatch, Refused> {
    let by = if vector.is_some() { DISTANCE } else { SCORE };
    let field = Field::new(by, DataType::Float32, true);
    let schema = Schema::from(fresh.table.dataset.schema());
    let projection = Projection::of(&schema, query.columns.as_ref(), Some(&field))?;
    let late = query.filter().filter(|_| !query.prefilter);
    let late = late.map(|filter| super::project::predicate(&schema, filter, Some(&field))).transpose()?;
    let (all, skip) = wanted(query, vector)?;
    let wanted = all.min(ROWS_MAX);
    let mut names = projection.needs.clone();
    names.extend(late.iter().flat_map(|late| late.needs.clone()));
    names.extend(ordered_by(fresh, query)?);
    names.extend(fresh.table.primary_key());
    let names = distinct(names);
    let base = of_base(fresh, query, vector, &names, wanted).boxed().await?;
    let newer = match vector {
        Some(at) => near(fresh, query, at, &names, wanted).boxed().await?,
        None => matching(fresh, query, &names, wanted).boxed().await?,
    };
    let mut columns = names.clone();
    columns.push(by.to_string());
    let parts = base.iter().chain(&newer).map(|batch| chosen(batch, &columns)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = parts.first() else { return Ok(RecordBatch::new_empty(projection.schema.clone())) };
    let found = concat_batches(&first.schema(), &parts)?;
    if all > ROWS_MAX && found.num_rows() as u64 > ROWS_MAX {
        return Err(Refused::invalid(format!("a search finds more than {ROWS_MAX} rows; ask for fewer with `k`")));
    }
    let mut found = ranked(&found, by, usize::try_from(wanted).unwrap_or(usize::MAX))?;
    if let Some(late) = &late {
        found = late.apply(&found)?;
    }
    if let Some(keys) = sort_keys(fresh, query, &found.schema())? {
        found = sort_batch(&found, &keys, None).map_err(lance_core::Error::from)?;
    }
    let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(found.num_rows());
    projection.apply(&found.slice(skip, found.num_rows() - skip))
}

/// The base's best that nobody has written again.
async fn of_base(
    fresh: &Fresh,
    query: &Query,
    vector: Option<usize>,
    names: &[String],
    wanted: u64,
) -> Result<Vec<RecordBatch>, Refused> {
    // No more than there are: places are set aside for as many as are asked for.
    let rows = fresh.table.dataset.manifest().fragments.iter();
    let there: usize = rows.map(|fragment| fragment.physical_rows.unwrap_or(0)).sum();
    let there = (there as u64).max(1);
    let mut asked = wanted.saturating_add(wanted / 2).saturating_add(8).min(there);
    let only = fresh.only();
    let mut one = query.arm(vector, names);
    if one.filter.is_some() && !query.prefilter {
        one.filter = None;
    }
    for turn in 0.. {
        one.k = Some(asked);
        let mut rows = Vec::new();
        for scanner in scanners(&fresh.table.dataset, &one)? {
            let found = scanner.try_into_stream().boxed().await?;
            rows.extend(found.try_collect::<Vec<_>>().await?);
        }
        let found: u64 = rows.iter().map(|batch| batch.num_rows() as u64).sum();
        let mut kept = Vec::with_capacity(rows.len());
        for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
            let again = only.contains_pks(batch).boxed().await?;
            let keep: BooleanArray = again.iter().map(|again| Some(!again)).collect();
            kept.push(filter_record_batch(batch, &keep)?);
        }
        let count: u64 = kept.iter().map(|batch| batch.num_rows() as u64).sum();
        if count >= wanted || found < asked || asked == there || turn == ASKED_MAX {
            return Ok(kept);
        }
        asked = asked.saturating_mul(2).min(there);
    }
    Ok(Vec::new())
}

/// The newer rows that are nearest: each is looked at, and few are held.
async fn near(
    fresh: &Fresh,
    query: &Query,
    at: usize,
    names: &[String],
    wanted: u64,
) -> Result<Vec<RecordBatch>, Refused> {
    let dataset = &fresh.table.dataset;
    let (column, vector) = target(dataset, query, at)?;
    let metric: DistanceType = metric_of(dataset, query, &column).await?;
    let mut with = names.to_vec();
    with.push(column.clone());
    let mut rows = stream(newer_plan(fresh, query, with).await?)?;
    let within = |distance: Option<f32>| {
        distance.is_some_and(|distance| {
            !distance.is_nan()
                && query.lower_bound.is_none_or(|lower| distance >= lower)
                && query.upper_bound.is_none_or(|upper| distance < upper)
        })
    };
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let (mut kept, mut held) = (Vec::new(), 0);
    while let Some(batch) = rows.try_next().await? {
        if batch.num_rows() == 0 {
            continue;
        }
        let batch = compute_distance(vector.clone(), metric, &column, batch).await?;
        let keep: BooleanArray = scores(&batch, DISTANCE)?.iter().map(|distance| Some(within(distance))).collect();
        let batch = filter_record_batch(&batch, &keep)?;
        held += batch.num_rows();
        kept.push(batch);
        if held > wanted.saturating_mul(2).max(HELD_MAX) {
            let nearest = ranked(&concat_batches(&kept[0].schema(), &kept)?, DISTANCE, wanted)?;
            (held, kept) = (nearest.num_rows(), vec![nearest]);
        }
    }
    Ok(kept)
}

/// How newer rows are read, where the filter comes first.
pub(super) async fn newer_plan(
    fresh: &Fresh,
    query: &Query,
    names: Vec<String>,
) -> Result<Arc<dyn ExecutionPlan>, Refused> {
    let filter = query.filter().filter(|_| query.prefilter);
    let scanner = filtered(fresh, fresh.only().project(&distinct(names))?, filter, (None, None))?;
    Ok(scanner.create_plan().boxed().await?)
}

/// The newer rows whose text fits best.
async fn matching(fresh: &Fresh, query: &Query, names: &[String], wanted: u64) -> Result<Vec<RecordBatch>, Refused> {
    let Some(text) = &query.full_text_query else { return Ok(Vec::new()) };
    let text = text.query()?;
    let filter = query.filter().filter(|_| query.prefilter);
    let limit = i64::try_from(wanted).unwrap_or(i64::MAX);
    let scanner = filtered(fresh, fresh.only().project(names)?, filter, (Some(limit), None))?;
    let plan = scanner.full_text_search(text)?.create_plan().boxed().await?;
    Ok(stream(plan)?.try_collect().await?)
}

/// Names the column whose text is searched, where the query does not and only one has an index on its text.
pub(super) async fn name_text(table: &Table, query: &mut Query) -> Result<(), Refused> {
    let Some(text) = &mut query.full_text_query else { return Ok(()) };
    let indexes = table.dataset.load_indices().await?;
    let schema = table.dataset.schema();
    let has = |id: &i32| indexes.iter().any(|index| is_text(index, *id));
    let columns: Vec<i32> = schema.field_ids().into_iter().filter(has).collect();
    let [column] = columns[..] else { return Ok(()) };
    text.name(schema.field_path(column)?)
}

/// The column whose text is searched, where newer rows have no index on it yet: those from before the index.
///
/// # Errors
/// The query is about several columns.
pub(super) async fn lacks_text(fresh: &Fresh, query: &Query) -> Result<Option<String>, Refused> {
    let Some(text) = query.full_text_query.as_ref().filter(|_| !fresh.is_empty()) else { return Ok(None) };
    let columns = text.query()?.columns();
    let base = fresh.table.dataset.load_indices().await?;
    let [column] = columns.iter().collect::<Vec<_>>()[..] else {
        let any =
            fresh.table.dataset.schema().field_ids().iter().any(|id| base.iter().any(|index| is_text(index, *id)));
        return Err(Refused::invalid(match any {
            true => "name the one column whose text is searched: its table takes LSM writes",
            false => "no column has a full text index; make one with create_index",
        }));
    };
    let known = fresh.table.dataset.schema().field(column).map(|field| field.id);
    if !base.iter().any(|index| known.is_some_and(|id| is_text(index, id))) {
        return Err(Refused::invalid(format!("`{column}` has no full text index; make one with create_index")));
    }
    let has = fresh.memtables_have_text(column) && indexed(fresh, column).await?;
    Ok((!has).then(|| column.clone()))
}

fn is_text(index: &IndexMetadata, field: i32) -> bool {
    let details = index.index_details.as_ref();
    index.fields.contains(&field) && details.is_some_and(|of| of.type_url.ends_with("InvertedIndexDetails"))
}

/// Whether every SSTable has an index on a column's text.
async fn indexed(fresh: &Fresh, column: &str) -> Result<bool, Refused> {
    for (shard, path) in fresh.sstables() {
        let sstable = fresh.table.open_sstable(&shard, path).await?;
        let Some(field) = sstable.schema().field(column) else { return Ok(false) };
        let indexes = sstable.load_indices().await?;
        let has = indexes.iter().any(|index| is_text(index, field.id));
        if !has {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A scan of the rows that a filter is true of, and of a page of them.
fn filtered(
    fresh: &Fresh,
    scanner: LsmScanner,
    filter: Option<&str>,
    (limit, offset): (Option<i64>, Option<i64>),
) -> Result<LsmScanner, Refused> {
    let Some(filter) = filter else { return Ok(scanner.limit(limit, offset)?) };
    let schema = Arc::new(Schema::from(fresh.table.dataset.schema()));
    let (expr, _) = super::project::condition(&schema, filter)?;
    // Of a list of keys Lance looks each up by itself, in all parts of the table, and of a key with capitals by another
    // name. With an offset it scans.
    let plain = |name: &String| name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'));
    let scanned = matches!(expr, Expr::InList(_)) || !fresh.table.primary_key().iter().all(plain);
    let offset = offset.or(scanned.then_some(0));
    Ok(scanner.filter_expr(expr).limit(limit, offset)?)
}

fn stream(plan: Arc<dyn ExecutionPlan>) -> Result<Rows, Refused> {
    let rows = plan.execute(0, Arc::new(TaskContext::default())).map_err(lance_core::Error::from)?;
    Ok(rows.map_err(lance_core::Error::from).boxed())
}

fn chosen(batch: &RecordBatch, names: &[String]) -> Result<RecordBatch, Refused> {
    let columns = names.iter().map(|name| {
        let column = batch.column_by_name(name).cloned();
        let column = column.ok_or_else(|| Refused::invalid(format!("there is no column `{name}`")))?;
        Ok::<(String, ArrayRef, bool), Refused>((name.clone(), column, true))
    });
    Ok(RecordBatch::try_from_iter_with_nullable(columns.collect::<Result<Vec<_>, _>>()?)?)
}

fn scores<'a>(batch: &'a RecordBatch, by: &str) -> Result<&'a Float32Array, Refused> {
    let column = batch.column_by_name(by).and_then(|column| column.as_primitive_opt::<Float32Type>());
    column.ok_or_else(|| Error::Fatal(format!("a search gave no `{by}`")).into())
}

/// The first rows by distance or score; of equals those of the base first.
fn ranked(batch: &RecordBatch, by: &str, first: usize) -> Result<RecordBatch, Refused> {
    let scores = scores(batch, by)?;
    let rows = u32::try_from(batch.num_rows()).map_err(|_| Refused::invalid("the answer would be too large"))?;
    let mut order: Vec<u32> = (0..rows).filter(|row| scores.is_valid(*row as usize)).collect();
    let score = |row: &u32| scores.value(*row as usize);
    match by {
        DISTANCE => order.sort_by(|a, b| score(a).total_cmp(&score(b))),
        _ => order.sort_by(|a, b| score(b).total_cmp(&score(a))),
    }
    order.truncate(first);
    Ok(take_record_batch(batch, &UInt32Array::from(order))?)
}

fn distinct(names: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

fn lance(refused: Refused) -> lance_core::Error {
    lance_core::Error::invalid_input(refused.why)
}
