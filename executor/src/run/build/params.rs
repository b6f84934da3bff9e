//! Which index a client asks for, and by which parameters Lance builds it.

use std::num::NonZeroU32;

use arrow_schema::{DataType, Field};
use lance::Dataset;
use lance::index::IndexParams;
use lance::index::vector::VectorIndexParams;
use lance_index::IndexType;
use lance_index::scalar::{BuiltinIndexType, InvertedIndexParams, ScalarIndexParams};
use lance_index::vector::bq::RQBuildParams;
use lance_index::vector::hnsw::builder::HnswBuildParams;
use lance_index::vector::ivf::IvfBuildParams;
use lance_index::vector::pq::PQBuildParams;
use lance_index::vector::sq::builder::SQBuildParams;
use lance_linalg::distance::DistanceType;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

/// Bits of a code of a product quantizer, as the client has it.
const PQ_BITS: u32 = 8;

/// An index that a client asks for; parameters of its kind lie beside the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CreateIndex {
    column: String,
    name: Option<String>,
    #[serde(default = "yes")]
    replace: bool,
    index_type: Option<String>,
    #[serde(flatten)]
    params: Map<String, Value>,
}

fn yes() -> bool {
    true
}

/// Parameters of an index of vectors, as LanceDB has them.
#[derive(Deserialize)]
#[serde(default)]
struct OfVectors {
    #[serde(alias = "distance_type")]
    metric_type: Option<String>,
    num_partitions: Option<NonZeroU32>,
    target_partition_size: Option<NonZeroU32>,
    sample_rate: NonZeroU32,
    max_iterations: NonZeroU32,
    num_sub_vectors: Option<NonZeroU32>,
    num_bits: Option<u32>,
    m: NonZeroU32,
    ef_construction: NonZeroU32,
}

impl Default for OfVectors {
    fn default() -> Self {
        let number = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self {
            metric_type: None,
            num_partitions: None,
            target_partition_size: None,
            sample_rate: number(256),
            max_iterations: number(50),
            num_sub_vectors: None,
            num_bits: None,
            m: number(20),
            ef_construction: number(300),
        }
    }
}

/// What Lance is to build.
pub(crate) struct Planned {
    /// The column's path.
    pub(crate) column: String,
    pub(crate) kind: IndexType,
    pub(crate) params: Box<dyn IndexParams>,
    /// The kind as job types spell it: `ivf_pq`, `btree`.
    pub(crate) algorithm: String,
}

impl CreateIndex {
    /// The name the client gives it.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref().filter(|name| !name.is_empty())
    }

    /// The name that the index gets.
    pub(crate) fn full_name(&self, column: &str) -> String {
        self.name().map_or_else(|| format!("{column}_idx"), str::to_string)
    }

    /// Whether it takes the place of one of its name.
    pub(crate) fn replace(&self) -> bool {
        self.replace
    }

    /// What Lance is to build.
    ///
    /// # Errors
    /// There is no such column or kind, or the kind is not for the column.
    pub(crate) fn plan(&self, dataset: &Dataset) -> Result<Planned> {
        let schema = dataset.schema();
        let path = schema.resolve_case_insensitive(&self.column).ok_or_else(|| {
            let names = schema.field_paths().join(", ");
            invalid(format!("the table has no column `{}`; it has {names}", self.column))
        })?;
        let names: Vec<&str> = path.iter().map(|field| field.name.as_str()).collect();
        let column = lance_core::datatypes::format_field_path(&names);
        let field = path.last().map(|field| Field::from(*field));
        let field = field.ok_or_else(|| invalid("name a column"))?;
        let dimension = dimension(field.data_type());
        let asked = match self.index_type.as_deref().unwrap_or_default().to_ascii_uppercase().as_str() {
            "" | "AUTO" if dimension.is_some() => "IVF_PQ".to_string(),
            "" | "AUTO" | "SCALAR" => "BTREE".into(),
            "INVERTED" => "FTS".into(),
            "BLOOMFILTER" => "BLOOM_FILTER".into(),
            known => known.into(),
        };
        if !suits(&asked, &field) {
            return Err(invalid(format!("`{}` is {}: `{asked}` is not for it", self.column, field.data_type())));
        }
        let (kind, params): (IndexType, Box<dyn IndexParams>) = match asked.as_str() {
            "BTREE" => self.of_values(BuiltinIndexType::BTree, IndexType::BTree),
            "BITMAP" => self.of_values(BuiltinIndexType::Bitmap, IndexType::Bitmap),
            "LABEL_LIST" => self.of_values(BuiltinIndexType::LabelList, IndexType::LabelList),
            "ZONEMAP" => self.of_values(BuiltinIndexType::ZoneMap, IndexType::ZoneMap),
            "NGRAM" => self.of_values(BuiltinIndexType::NGram, IndexType::NGram),
            "BLOOM_FILTER" => self.of_values(BuiltinIndexType::BloomFilter, IndexType::BloomFilter),
            "RTREE" => self.of_values(BuiltinIndexType::RTree, IndexType::RTree),
            "FM" => self.of_values(BuiltinIndexType::Fm, IndexType::Fm),
            "FTS" => (IndexType::Inverted, Box::new(self.of_words()?)),
            vectors => self.of_vectors(vectors, &field, dimension)?,
        };
        Ok(Planned { column, kind, params, algorithm: asked.to_ascii_lowercase() })
    }

    fn of_values(&self, builtin: BuiltinIndexType, kind: IndexType) -> (IndexType, Box<dyn IndexParams>) {
        // Zones of another size than Lance's, say: what a kind does not know it passes over.
        let params = ScalarIndexParams::for_builtin(builtin);
        (kind, Box::new(if self.params.is_empty() { params } else { params.with_params(&self.params) }))
    }

    fn of_words(&self) -> Result<InvertedIndexParams> {
        let params: InvertedIndexParams = serde_json::from_value(json!(self.params))
            .map_err(|e| invalid(format!("the parameters are none of a full text index: {e}")))?;
        params.build().map_err(|e| invalid(format!("words can't be cut like that: {}", Error::from(e))))?;
        Ok(params)
    }

    fn of_vectors(
        &self,
        kind: &str,
        field: &Field,
        dimension: Option<u32>,
    ) -> Result<(IndexType, Box<dyn IndexParams>)> {
        let asked: OfVectors = serde_json::from_value(json!(self.params))
            .map_err(|e| invalid(format!("the parameters are none of an index of vectors: {e}")))?;
        let metric =
            DistanceType::try_from(asked.metric_type.as_deref().unwrap_or("l2")).map_err(|e| invalid(e.to_string()))?;
        let ivf = asked.ivf();
        let hnsw = HnswBuildParams::default()
            .num_edges(asked.m.get() as usize)
            .ef_construction(asked.ef_construction.get() as usize);
        let sq = SQBuildParams { sample_rate: asked.sample_rate.get() as usize, ..SQBuildParams::default() };
        let params = match kind {
            "IVF_FLAT" => VectorIndexParams::with_ivf_flat_params(metric, ivf),
            "IVF_SQ" => VectorIndexParams::with_ivf_sq_params(metric, ivf, sq),
            "IVF_PQ" => VectorIndexParams::with_ivf_pq_params(metric, ivf, asked.pq(dimension)?),
            "IVF_RQ" => VectorIndexParams::with_ivf_rq_params(metric, ivf, asked.rq()?),
            "IVF_HNSW_FLAT" => VectorIndexParams::ivf_hnsw(metric, ivf, hnsw),
            "IVF_HNSW_SQ" => VectorIndexParams::with_ivf_hnsw_sq_params(metric, ivf, hnsw, sq),
            "IVF_HNSW_PQ" => VectorIndexParams::with_ivf_hnsw_pq_params(metric, ivf, hnsw, asked.pq(dimension)?),
            odd => return Err(invalid(format!("`{odd}` is no kind of index"))),
        };
        if dimension.is_none() {
            let why = format!("`{}` is {}: `{kind}` is for vectors", self.column, field.data_type());
            return Err(invalid(why));
        }
        Ok((IndexType::Vector, Box::new(params)))
    }
}

impl OfVectors {
    fn ivf(&self) -> IvfBuildParams {
        let mut ivf = match (self.num_partitions, self.target_partition_size) {
            (Some(partitions), _) => IvfBuildParams::new(partitions.get() as usize),
            (None, Some(size)) => IvfBuildParams::with_target_partition_size(size.get() as usize),
            (None, None) => IvfBuildParams::default(),
        };
        ivf.sample_rate = self.sample_rate.get() as usize;
        ivf.max_iters = self.max_iterations.get() as usize;
        ivf
    }

    fn pq(&self, dimension: Option<u32>) -> Result<PQBuildParams> {
        let bits = self.num_bits.unwrap_or(PQ_BITS);
        if !matches!(bits, 4 | 8) {
            return Err(invalid(format!("`num_bits` of a product quantizer is 4 or 8, not {bits}")));
        }
        let dimension = dimension.unwrap_or(1);
        let parts = self.num_sub_vectors.map_or_else(|| sub_vectors(dimension, bits), NonZeroU32::get);
        if !dimension.is_multiple_of(parts) {
            let why = format!("vectors of {dimension} numbers can't be cut in {parts} equal parts");
            return Err(invalid(why));
        }
        let mut pq = PQBuildParams::new(parts as usize, bits as usize);
        pq.max_iters = self.max_iterations.get() as usize;
        Ok(pq)
    }

    fn rq(&self) -> Result<RQBuildParams> {
        let Some(bits) = self.num_bits else { return Ok(RQBuildParams::default()) };
        match u8::try_from(bits) {
            Ok(bits @ 1..=9) => Ok(RQBuildParams::new(bits)),
            _ => Err(invalid(format!("`num_bits` of this quantizer is 1 to 9, not {bits}"))),
        }
    }
}

fn invalid(why: impl Into<String>) -> Error {
    Error::Invalid(why.into())
}

/// Parts of a vector that are quantized each, as LanceDB suggests.
fn sub_vectors(dimension: u32, bits: u32) -> u32 {
    let parts = match dimension {
        _ if dimension.is_multiple_of(16) => dimension / 16,
        _ if dimension.is_multiple_of(8) => dimension / 8,
        _ => 1,
    };
    // Codes of four bits lie two in a byte.
    if bits == 4 && !parts.is_multiple_of(2) { parts + 1 } else { parts }
}

/// Whether an index of values can be on a column, as LanceDB has it. Of others is said where they are read: a client waits
/// for the index, and not for the job that fails.
fn suits(kind: &str, field: &Field) -> bool {
    use DataType as T;
    let column = field.data_type();
    let text = |t: &T| matches!(t, T::Utf8 | T::LargeUtf8);
    let bytes = |t: &T| text(t) || matches!(t, T::Binary | T::LargeBinary);
    let few = |t: &T| t.is_integer() || bytes(t) || matches!(t, T::Boolean);
    let ordered = |t: &T| {
        t.is_numeric() && !t.is_decimal()
            || t.is_temporal() && !matches!(t, T::Duration(_) | T::Interval(_))
            || matches!(t, T::Boolean | T::Utf8 | T::LargeUtf8 | T::FixedSizeBinary(_))
    };
    let json = |field: &Field| {
        field
            .metadata()
            .get("ARROW:extension:name")
            .is_some_and(|name| matches!(name.as_str(), "lance.json" | "arrow.json"))
    };
    let item = match column {
        T::List(item) | T::LargeList(item) => Some(item.data_type()),
        _ => None,
    };
    match kind {
        "BTREE" => ordered(column),
        "ZONEMAP" => ordered(column) || bytes(column),
        "BITMAP" => few(column),
        "LABEL_LIST" => item.is_some_and(few) || matches!(column, T::FixedSizeList(item, _) if few(item.data_type())),
        "FM" => bytes(column),
        "NGRAM" => text(column),
        "FTS" => json(field) || text(column) || item.is_some_and(text),
        _ => true,
    }
}

/// Numbers of a column's vectors; `None`: it has none.
fn dimension(kind: &DataType) -> Option<u32> {
    match kind {
        DataType::FixedSizeList(item, size) if item.data_type().is_numeric() => u32::try_from(*size).ok(),
        DataType::List(item) => match item.data_type() {
            vectors @ DataType::FixedSizeList(..) => dimension(vectors),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_index_of_values_is_only_on_columns_that_have_such_values() {
        let list = |of| DataType::List(Arc::new(Field::new("item", of, true)));
        let vector = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), 4);
        let zoned = DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, Some("UTC".into()));
        for (kind, good, bad) in [
            ("BTREE", vec![DataType::Int8, DataType::Utf8, zoned], vec![vector.clone(), list(DataType::Int8)]),
            ("BITMAP", vec![DataType::Boolean, DataType::LargeBinary], vec![DataType::Float32, vector]),
            ("LABEL_LIST", vec![list(DataType::Utf8)], vec![DataType::Utf8, list(DataType::Float32)]),
            ("FTS", vec![DataType::LargeUtf8, list(DataType::Utf8)], vec![DataType::Int64, DataType::LargeBinary]),
            ("FM", vec![DataType::Binary], vec![list(DataType::Utf8)]),
        ] {
            let on = |of: DataType| suits(kind, &Field::new("c", of, true));
            assert!(good.into_iter().all(on), "{kind}");
            assert!(!bad.into_iter().any(on), "{kind}");
        }
    }
}
