//! A query as a scan of Lance.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;
use lance::dataset::scanner::{ColumnOrdering, Scanner};
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::vector::ApproxMode;
use lance_linalg::distance::DistanceType;

use super::super::Refused;
use super::request::{Columns, Query};

/// Query vectors of one request.
const VECTORS_MAX: usize = 256;
/// Rows that are nearest, where the client names no number.
pub(super) const NEAREST: u64 = 10;

/// The scans of a query: one, or one for each of several query vectors.
pub(super) fn scanners(dataset: &Arc<Dataset>, query: &Query) -> Result<Vec<Scanner>, Refused> {
    let vectors = &query.vector.0;
    if vectors.len() > VECTORS_MAX {
        return Err(Refused::invalid(format!("{} query vectors; send at most {VECTORS_MAX}", vectors.len())));
    }
    let Some(first) = vectors.first() else { return Ok(vec![scanner(dataset, query, None)?]) };
    let schema = Schema::from(dataset.schema());
    let column = match &query.vector_column {
        Some(column) => column.clone(),
        None => vector_column(&schema, first.len())?,
    };
    let of_lists = schema.field_with_name(&column).is_ok_and(|field| matches!(field.data_type(), DataType::List(_)));
    let targets: Vec<ArrayRef> = match of_lists && vectors.len() > 1 {
        // A row has several vectors: they are one target.
        true => vec![matrix(vectors)?],
        false => vectors.iter().map(|vector| Arc::new(Float32Array::from(vector.clone())) as ArrayRef).collect(),
    };
    targets.iter().map(|target| scanner(dataset, query, Some((&column, target)))).collect()
}

/// The column that a query searches, and one of its vectors.
pub(super) fn target(dataset: &Dataset, query: &Query, at: usize) -> Result<(String, ArrayRef), Refused> {
    let vector = query.vector.0.get(at).ok_or_else(|| Refused::invalid("there is no query vector"))?;
    let schema = Schema::from(dataset.schema());
    let column = match &query.vector_column {
        Some(column) => column.clone(),
        None => vector_column(&schema, vector.len())?,
    };
    let length = lance::index::vector::utils::get_vector_dim(dataset.schema(), &column)?;
    if length != vector.len() {
        let is = vector.len();
        return Err(Refused::invalid(format!("the query vector has {is} numbers, those of `{column}` have {length}")));
    }
    Ok((column.clone(), cast(&Float32Array::from(vector.clone()), &element(dataset, &column)?)?))
}

/// By what vectors of a column are compared: as the query says, or as they are indexed.
pub(super) async fn metric_of(dataset: &Dataset, query: &Query, column: &str) -> Result<DistanceType, Refused> {
    if let Some(word) = &query.distance_type {
        return Ok(DistanceType::try_from(word.as_str())?);
    }
    let Some(field) = dataset.schema().field(column) else { return Ok(DistanceType::L2) };
    let indexes = dataset.load_indices().await?;
    for index in indexes.iter().filter(|index| index.fields.contains(&field.id)) {
        if let Ok(index) = dataset.open_vector_index(column, &index.uuid, &NoOpMetricsCollector).await {
            return Ok(index.metric_type());
        }
    }
    Ok(lance::index::vector::utils::default_distance_type_for(&element(dataset, column)?))
}

fn scanner(dataset: &Arc<Dataset>, query: &Query, nearest: Option<(&str, &ArrayRef)>) -> Result<Scanner, Refused> {
    let mut scanner = dataset.scan();
    scanner.prefilter(query.prefilter);
    if let Some((column, target)) = nearest {
        near(&mut scanner, dataset, query, column, target)?;
    }
    let (limit, offset) = query.page();
    scanner.limit(limit, offset)?;
    project(&mut scanner, query)?;
    if query.with_row_id {
        scanner.with_row_id();
    }
    if query.fast_search {
        scanner.fast_search();
    }
    if let Some(filter) = query.filter() {
        scanner.filter(filter)?;
    }
    if let Some(text) = &query.full_text_query {
        scanner.full_text_search(text.query()?)?;
    }
    if !query.order().is_empty() {
        let key = |key: &super::request::Order| ColumnOrdering {
            column_name: key.column_name.clone(),
            ascending: key.ascending,
            nulls_first: key.nulls_first,
        };
        scanner.order_by(Some(query.order().iter().map(key).collect()))?;
        // Of no rows there is no order, and DataFusion can't keep the first none.
        if query.k == Some(0) {
            scanner.order_by(None)?;
        }
    }
    Ok(scanner)
}

fn near(
    scanner: &mut Scanner,
    dataset: &Dataset,
    query: &Query,
    column: &str,
    target: &ArrayRef,
) -> Result<(), Refused> {
    let physical = |rows: &lance_table::format::Fragment| rows.physical_rows.unwrap_or(0);
    // Lance sets places aside for as many rows as are asked for.
    let there: usize = dataset.manifest().fragments.iter().map(physical).sum();
    let wanted = query.k.unwrap_or(NEAREST).saturating_add(query.offset.unwrap_or(0));
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).min(there.max(1));
    match element(dataset, column)? {
        DataType::UInt8 => {
            let bytes = cast(target, &DataType::UInt8)?;
            scanner.nearest(column, bytes.as_primitive::<UInt8Type>(), wanted)?;
        }
        _ => drop(scanner.nearest(column, target.as_ref(), wanted)?),
    }
    if let Some(word) = &query.approx_mode {
        scanner.approx_mode(match word.to_ascii_lowercase().as_str() {
            "fast" => ApproxMode::Fast,
            "normal" => ApproxMode::Normal,
            "accurate" => ApproxMode::Accurate,
            odd => return Err(Refused::invalid(format!("`{odd}` is no `approx_mode`; use fast, normal or accurate"))),
        });
    }
    match query.nprobes.filter(|_| query.search_effort.is_none()) {
        Some(probes) if query.maximum_nprobes == Some(0) => drop(scanner.minimum_nprobes(probes)),
        Some(probes) => drop(scanner.nprobes(probes)),
        None => {}
    }
    if let Some(probes) = query.minimum_nprobes {
        scanner.minimum_nprobes(probes);
    }
    if let Some(probes) = query.maximum_nprobes.filter(|probes| *probes > 0) {
        scanner.maximum_nprobes(probes);
    }
    if let Some(effort) = query.search_effort {
        scanner.search_effort(effort)?;
    }
    if let Some(ef) = query.ef {
        scanner.ef(ef);
    }
    if let Some(factor) = query.refine_factor {
        scanner.refine(factor);
    }
    if let Some(word) = &query.distance_type {
        scanner.distance_metric(DistanceType::try_from(word.as_str())?);
    }
    scanner.distance_range(query.lower_bound, query.upper_bound);
    scanner.use_index(!query.bypass_vector_index);
    Ok(())
}

fn project(scanner: &mut Scanner, query: &Query) -> Result<(), Refused> {
    let Some(Columns(columns)) = &query.columns else { return Ok(()) };
    // Lance can order only by what is in the answer.
    let unseen = query.unseen().into_iter().map(|name| (name.to_string(), String::new()));
    let columns: Vec<(String, String)> = columns.iter().cloned().chain(unseen).collect();
    if columns.iter().all(|(_, expression)| expression.is_empty()) {
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        scanner.project(&names)?;
    } else {
        let named = |(name, value): &(String, String)| {
            // A name that is its own value may have letters that an expression can't have.
            let value = if value.is_empty() { format!("`{name}`") } else { value.clone() };
            (name.clone(), value)
        };
        scanner.project_with_transform(&columns.iter().map(named).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// What a vector of a column is made of.
fn element(dataset: &Dataset, column: &str) -> Result<DataType, Refused> {
    let (_, element) = lance::index::vector::utils::get_vector_type(dataset.schema(), column)?;
    Ok(element)
}

/// The one column whose vectors are of a length.
fn vector_column(schema: &Schema, length: usize) -> Result<String, Refused> {
    let fits = |field: &Field| match field.data_type() {
        DataType::List(item) => of_length(item.data_type(), length),
        vectors => of_length(vectors, length),
    };
    let names: Vec<&String> = schema.fields().iter().filter(|field| fits(field)).map(|field| field.name()).collect();
    match names.as_slice() {
        [name] => Ok((*name).clone()),
        [] => Err(Refused::invalid(format!("no column has vectors of {length} numbers, as the query vector has"))),
        several => {
            let names = several.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            Err(Refused::invalid(format!("more than one column has vectors of {length} numbers: {names}; name one")))
        }
    }
}

fn of_length(vectors: &DataType, length: usize) -> bool {
    let number = |t: &DataType| t.is_floating() || matches!(t, DataType::UInt8 | DataType::Int8);
    matches!(vectors, DataType::FixedSizeList(item, size)
        if usize::try_from(*size).is_ok_and(|size| size == length) && number(item.data_type()))
}

fn matrix(vectors: &[Vec<f32>]) -> Result<ArrayRef, Refused> {
    let length = vectors.first().map_or(0, Vec::len);
    if let Some(odd) = vectors.iter().find(|vector| vector.len() != length) {
        return Err(Refused::invalid(format!("query vectors of {length} and of {} numbers", odd.len())));
    }
    let size = i32::try_from(length).map_err(|_| Refused::invalid("a query vector is too long"))?;
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let numbers = Arc::new(Float32Array::from(vectors.concat()));
    Ok(Arc::new(FixedSizeListArray::try_new(item, size, numbers, None)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_column_is_the_one_of_the_query_vectors_length() {
        let vectors = |name: &str, size| {
            Field::new(name, DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), size), true)
        };
        let schema = Schema::new(vec![vectors("a", 2), vectors("b", 4), vectors("c", 4)]);
        assert_eq!(vector_column(&schema, 2).ok().as_deref(), Some("a"));
        assert!(vector_column(&schema, 4).is_err_and(|refused| refused.why.contains("b, c")));
        assert!(vector_column(&schema, 3).is_err());
    }
}
