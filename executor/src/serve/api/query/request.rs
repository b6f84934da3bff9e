//! A query as the client writes it.

use std::fmt;

use lance_index::scalar::FullTextSearchQuery;
use lance_index::scalar::inverted::query::FtsQuery;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::super::{Refused, expression};

/// A query. What is left out is as LanceDB has it where a table is opened without a server.
#[derive(Clone, Deserialize)]
pub(in super::super) struct Query {
    pub(super) version: Option<u64>,
    /// Rows at most; more than a table has is as all.
    pub(super) k: Option<u64>,
    pub(super) offset: Option<u64>,
    #[serde(default, deserialize_with = "expression::maybe")]
    pub(super) filter: Option<String>,
    /// Whether the filter comes before the search.
    #[serde(default = "yes")]
    pub(super) prefilter: bool,
    pub(super) columns: Option<Columns>,
    #[serde(default)]
    pub(super) fast_search: bool,
    #[serde(default)]
    pub(super) with_row_id: bool,
    pub(super) full_text_query: Option<Text>,
    pub(super) order_by: Option<Vec<Order>>,
    /// Whether rows of the table's shards are read with those of its base; `None`: where it has some.
    #[serde(alias = "use_rte")]
    pub(super) use_lsm: Option<bool>,
    #[serde(default)]
    pub(super) vector: Vectors,
    pub(super) vector_column: Option<String>,
    pub(super) distance_type: Option<String>,
    pub(super) approx_mode: Option<String>,
    pub(super) nprobes: Option<usize>,
    pub(super) minimum_nprobes: Option<usize>,
    /// 0: as many as there are.
    pub(super) maximum_nprobes: Option<usize>,
    pub(super) search_effort: Option<f64>,
    pub(super) lower_bound: Option<f32>,
    pub(super) upper_bound: Option<f32>,
    pub(super) ef: Option<usize>,
    pub(super) refine_factor: Option<u32>,
    #[serde(default)]
    pub(super) bypass_vector_index: bool,
}

impl Query {
    /// Whether it ranks rows: by a vector, or by their text.
    pub(super) fn is_search(&self) -> bool {
        !self.vector.0.is_empty() || self.full_text_query.is_some()
    }

    /// What rows must be like; what is empty is nothing.
    pub(super) fn filter(&self) -> Option<&str> {
        self.filter.as_deref().filter(|filter| !filter.is_empty())
    }

    /// The keys of its order, none where it has none.
    pub(super) fn order(&self) -> &[Order] {
        self.order_by.as_deref().unwrap_or_default()
    }

    /// Columns that the answer is ordered by and does not have.
    pub(super) fn unseen(&self) -> Vec<&str> {
        let Some(Columns(columns)) = &self.columns else { return Vec::new() };
        let keys = self.order().iter().map(|key| key.column_name.as_str());
        // What a search or Lance adds is there by itself.
        let added = |name: &str| name.starts_with('_');
        keys.filter(|key| !added(key) && !columns.iter().any(|(name, _)| name == key)).collect()
    }

    /// Rows at most, and rows that are left out before them.
    pub(super) fn page(&self) -> (Option<i64>, Option<i64>) {
        // More than any table has, as the client writes all rows.
        let limit = self.k.filter(|k| *k < isize::MAX as u64).and_then(|k| i64::try_from(k).ok());
        let offset = self.offset.map(|offset| i64::try_from(offset).unwrap_or(i64::MAX));
        (limit.map(|limit| limit.min(i64::MAX - offset.unwrap_or(0))), offset)
    }

    /// One search of it among a table's base, for some columns. Distances are exact, so that they can be
    /// compared with others.
    pub(super) fn arm(&self, vector: Option<usize>, columns: &[String]) -> Self {
        let vectors = vector.and_then(|at| self.vector.0.get(at)).cloned();
        Self {
            offset: None,
            order_by: None,
            columns: Some(Columns(columns.iter().map(|name| (name.clone(), String::new())).collect())),
            vector: Vectors(vectors.into_iter().collect()),
            refine_factor: self.refine_factor.or(Some(1)).filter(|_| vector.is_some()),
            ..self.clone()
        }
    }
}

fn yes() -> bool {
    true
}

/// Query vectors: none, one or several.
#[derive(Clone, Default)]
pub(super) struct Vectors(pub(super) Vec<Vec<f32>>);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    One(Vec<f32>),
    Several(Vec<Vec<f32>>),
}

impl<'de> Deserialize<'de> for Vectors {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(match Option::<Written>::deserialize(from)? {
            None => Vec::new(),
            Some(Written::One(vector)) if vector.is_empty() => Vec::new(),
            Some(Written::One(vector)) => vec![vector],
            Some(Written::Several(vectors)) => vectors,
        }))
    }
}

/// Columns of an answer, in its order, each with the expression of its value.
#[derive(Clone)]
pub(in super::super) struct Columns(pub(in super::super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Columns;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of columns, or names with an expression each")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Columns, A::Error> {
                let mut columns = Vec::new();
                while let Some(name) = names.next_element::<String>()? {
                    expression::bounded(&name).map_err(A::Error::custom)?;
                    columns.push((name, String::new()));
                }
                Ok(Columns(columns))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Columns, A::Error> {
                let mut columns = Vec::new();
                while let Some(pair) = pairs.next_entry::<String, String>()? {
                    expression::bounded(&pair.0).and(expression::bounded(&pair.1)).map_err(A::Error::custom)?;
                    columns.push(pair);
                }
                Ok(Columns(columns))
            }
        }

        from.deserialize_any(Reader)
    }
}

/// A search for words: those alone, or a query with a structure.
#[derive(Clone, Deserialize)]
pub(super) struct Text {
    #[serde(default)]
    columns: Vec<String>,
    query: Words,
}

#[derive(Clone)]
enum Words {
    Plain(String),
    Structure(Box<FtsQuery>),
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(from)? {
            Value::String(words) => Self::Plain(words),
            structure => Self::Structure(Box::new(FtsQuery::deserialize(structure).map_err(D::Error::custom)?)),
        })
    }
}

impl Text {
    /// Says which column is meant, where nothing says so yet.
    pub(super) fn name(&mut self, column: String) -> Result<(), Refused> {
        if self.query()?.columns().is_empty() {
            self.columns.push(column);
        }
        Ok(())
    }

    /// As Lance takes it.
    pub(super) fn query(&self) -> Result<FullTextSearchQuery, Refused> {
        let query = match &self.query {
            Words::Plain(words) => FullTextSearchQuery::new(words.clone()),
            Words::Structure(query) => FullTextSearchQuery::new_query((**query).clone()),
        };
        if self.columns.is_empty() { Ok(query) } else { Ok(query.with_columns(&self.columns)?) }
    }
}

/// One key of the order of an answer.
#[derive(Clone, Deserialize)]
pub(super) struct Order {
    pub(super) column_name: String,
    #[serde(default = "yes")]
    pub(super) ascending: bool,
    #[serde(default)]
    pub(super) nulls_first: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Query {
        serde_json::from_str(body).expect("a query")
    }

    #[test]
    fn vectors_are_none_one_or_several() {
        assert!(read(r#"{"k":1}"#).vector.0.is_empty());
        assert!(read(r#"{"k":1,"vector":null}"#).vector.0.is_empty());
        assert!(read(r#"{"k":1,"vector":[]}"#).vector.0.is_empty());
        assert_eq!(read(r#"{"k":1,"vector":[1,2]}"#).vector.0, [[1.0, 2.0]]);
        assert_eq!(read(r#"{"k":1,"vector":[[1],[2]]}"#).vector.0, [[1.0], [2.0]]);
    }

    #[test]
    fn columns_keep_their_order() {
        let names = |query: Query| query.columns.map(|columns| columns.0).unwrap_or_default();
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(names(read(r#"{"columns":["b","a"]}"#)), [pair("b", ""), pair("a", "")]);
        assert_eq!(names(read(r#"{"columns":{"b":"x + 1","a":"y"}}"#)), [pair("b", "x + 1"), pair("a", "y")]);
    }

    #[test]
    fn words_are_searched_for_plainly_or_by_a_structure() {
        let plain = read(r#"{"full_text_query":{"columns":["t"],"query":"cat"}}"#);
        let plain = plain.full_text_query.expect("words").query().expect("a query");
        assert_eq!(plain.columns(), std::collections::HashSet::from(["t".to_string()]));
        let phrase = read(r#"{"full_text_query":{"query":{"phrase":{"column":"t","terms":"a cat","slop":0}}}}"#);
        let phrase = phrase.full_text_query.expect("words").query().expect("a query");
        assert!(matches!(phrase.query, FtsQuery::Phrase(_)));
    }
}
