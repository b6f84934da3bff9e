//! Full text search: a word is in the rows that an index finds, and in no others.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use futures::TryStreamExt;
use lance_core::ROW_ADDR;
use lance_index::scalar::FullTextSearchQuery;
use lance_index::scalar::inverted::InvertedIndexParams;
use lance_index::scalar::inverted::query::MatchQuery;
use lance_index::scalar::inverted::tokenizer::document_tokenizer::LanceTokenizer;
use roaring::RoaringTreemap;

use super::{Asked, rows, same};
use crate::answers::digest::LIMITS;
use crate::error::{Error, Result};
use crate::run::fold::addresses;

/// Words that are asked for. All of them are looked for in one full scan.
const WORDS: usize = 4;

/// Asks for words of the sampled texts.
pub(super) async fn words(asked: &Asked<'_>) -> Result<bool> {
    if texts(&asked.values, 0).is_none() {
        return Ok(false);
    }
    let params: InvertedIndexParams = serde_json::from_value(asked.details.clone())
        .map_err(|e| Error::Invalid(format!("its tokenizer is not known: {e}")))?;
    let mut tokenizer = params.build()?;
    // By token: the word as it stands in a text. The longest of each text is the rarest.
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    for text in (0..asked.values.len()).filter_map(|row| texts(&asked.values, row).flatten()) {
        let longest = tokens(tokenizer.as_mut(), text).into_iter().max_by_key(|(token, _)| token.len());
        if let Some((token, word)) = longest.filter(|_| wanted.len() < WORDS) {
            wanted.insert(token, word);
        }
    }
    let expected = scanned(asked, tokenizer.as_mut(), &wanted).await?;
    for (token, word) in &wanted {
        let query = MatchQuery::new(word.clone()).with_column(Some(asked.column.clone())).with_fuzziness(Some(0));
        let mut scan = asked.dataset.scan();
        scan.full_text_search(FullTextSearchQuery::new_query(query.into()))?.empty_project()?.with_row_address();
        scan.disable_scoring_autoprojection();
        let none = RoaringTreemap::new();
        same(&rows(scan).await?, expected.get(token).unwrap_or(&none), &format!("the word `{word}`"))?;
    }
    Ok(!wanted.is_empty())
}

/// The rows whose text has each of the tokens.
async fn scanned(
    asked: &Asked<'_>,
    tokenizer: &mut dyn LanceTokenizer,
    wanted: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, RoaringTreemap>> {
    let mut found: BTreeMap<String, RoaringTreemap> = BTreeMap::new();
    let mut scan = asked.dataset.scan();
    scan.project_with_transform(&[("text", asked.column.as_str())])?.with_row_address();
    LIMITS.apply(&mut scan, 1024);
    let mut batches = scan.try_into_stream().await?;
    while let Some(batch) = batches.try_next().await? {
        let column = batch.column_by_name("text");
        let column = column.ok_or_else(|| Error::Fatal(format!("a scan gave no text beside {ROW_ADDR}")))?;
        for (row, address) in addresses(&batch)?.iter().enumerate() {
            let Some(text) = texts(column, row).flatten() else { continue };
            for (token, _) in tokens(tokenizer, text) {
                if wanted.contains_key(&token) {
                    found.entry(token).or_default().insert(*address);
                }
            }
        }
    }
    Ok(found)
}

/// Each token of a text, with the word it was made from.
fn tokens(tokenizer: &mut dyn LanceTokenizer, text: &str) -> Vec<(String, String)> {
    let mut stream = tokenizer.token_stream_for_doc(text);
    let mut tokens = Vec::new();
    while stream.advance() {
        let token = stream.token();
        if let Some(word) = text.get(token.offset_from..token.offset_to) {
            tokens.push((token.text.clone(), word.to_string()));
        }
    }
    tokens
}

/// The text of a row; the outer `None`: the column is of no text that is compared here.
fn texts(column: &ArrayRef, row: usize) -> Option<Option<&str>> {
    let text = match (column.as_string_opt::<i32>(), column.as_string_opt::<i64>()) {
        (Some(texts), _) => texts.is_valid(row).then(|| texts.value(row)),
        (_, Some(texts)) => texts.is_valid(row).then(|| texts.value(row)),
        _ => return None,
    };
    Some(text)
}
