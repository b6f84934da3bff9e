//! Vector search: approximate by design, so that only what no approximation explains is a mismatch.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use futures::TryStreamExt;
use lance_core::ROW_ADDR;
use lance_linalg::distance::DistanceType;
use roaring::RoaringTreemap;

use super::Asked;
use crate::error::{Error, Result};

/// Vectors whose neighbours are asked for; each is a full scan of the column.
const VECTORS: usize = 4;
const NEIGHBOURS: usize = 10;
/// Candidates that are measured exactly, times the neighbours.
const REFINE: u32 = 10;
/// As many partitions as there may be.
const PROBES: usize = 1 << 16;
/// Distances are summed in another order.
const TOLERANCE: f32 = 1e-3;

/// Each answer is a row of its own, there are as many as a full scan finds, and of vectors that are in
/// the table at least half are found.
pub(super) async fn nearest(asked: &Asked<'_>) -> Result<bool> {
    let metric = asked.details.get("metric_type").and_then(|metric| metric.as_str());
    let metric = metric.and_then(|metric| DistanceType::try_from(metric.to_ascii_lowercase().as_str()).ok());
    let (Some(metric), Some(vectors)) = (metric, asked.values.as_fixed_size_list_opt()) else { return Ok(false) };
    let usable = (0..vectors.len()).filter(|row| vectors.is_valid(*row)).map(|row| vectors.value(row));
    let (mut asked_for, mut near) = (0, 0);
    for vector in usable.filter(|vector| vector.null_count() == 0).take(VECTORS) {
        let index = answers(asked, &vector, metric, true).await?;
        let scan = answers(asked, &vector, metric, false).await?;
        let rows: RoaringTreemap = index.iter().map(|(row, _)| *row).collect();
        if rows.len() != index.len() as u64 {
            return Err(Error::Mismatch("answers with a row twice".into()));
        }
        if index.len() < scan.len() {
            let (found, there) = (index.len(), scan.len());
            return Err(Error::Mismatch(format!("finds {found} neighbours of a vector that has {there}")));
        }
        asked_for += 1;
        near += u32::from(match (index.first(), scan.first()) {
            (Some((_, found)), Some((_, best))) => (found - best).abs() <= TOLERANCE * best.abs().max(1.0),
            _ => true,
        });
    }
    if near * 2 < asked_for {
        return Err(Error::Mismatch(format!("finds {near} of {asked_for} vectors that are in the table")));
    }
    Ok(asked_for > 0)
}

/// Row and distance of the neighbours, the nearest first.
async fn answers(asked: &Asked<'_>, vector: &ArrayRef, metric: DistanceType, index: bool) -> Result<Vec<(u64, f32)>> {
    let mut scan = asked.dataset.scan();
    scan.nearest(&asked.column, vector, NEIGHBOURS)?.distance_metric(metric).nprobes(PROBES).refine(REFINE);
    scan.use_index(index).project(&["_distance"])?.with_row_address();
    let mut found = Vec::new();
    let mut batches = scan.try_into_stream().await?;
    while let Some(batch) = batches.try_next().await? {
        let (Some(rows), Some(distances)) = (batch.column_by_name(ROW_ADDR), batch.column_by_name("_distance")) else {
            return Err(Error::Fatal(format!("a search of index `{}` gave no distances", asked.name)));
        };
        let rows = rows.as_primitive::<UInt64Type>().values();
        found.extend(rows.iter().copied().zip(distances.as_primitive::<Float32Type>().values().iter().copied()));
    }
    Ok(found)
}
