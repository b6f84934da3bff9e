//! Indexes that answer exactly: asked by a filter, once with them and once without.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use datafusion::common::{Column, ScalarValue};
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::{Expr, lit};
use lance_core::datatypes::parse_field_path;

use super::{Asked, found, same};
use crate::error::{Error, Result};

/// Labels or substrings that are asked for; each is a full scan.
const TEXTS: usize = 4;
/// Characters of a substring.
const CHARACTERS: usize = 6;

/// `column IN (values)` and `column IS NULL`.
pub(super) async fn equal(asked: &Asked<'_>) -> Result<bool> {
    let column = column(&asked.column)?;
    let mut values = Vec::new();
    for row in (0..asked.values.len()).filter(|row| asked.values.is_valid(*row)) {
        let value = scalar(&asked.values, row)?;
        // NaN equals nothing, not even where SQL and an index are asked the same way.
        if !is_nan(&value) {
            values.push(lit(value));
        }
    }
    if values.is_empty() {
        return Ok(false);
    }
    let count = values.len();
    filter(asked, column.clone().in_list(values, false), &format!("{count} values")).await?;
    filter(asked, column.is_null(), "null").await?;
    Ok(true)
}

/// `array_has(column, label)`.
pub(super) async fn labels(asked: &Asked<'_>) -> Result<bool> {
    let mut labels: Vec<String> = Vec::new();
    for row in (0..asked.values.len()).filter(|row| asked.values.is_valid(*row)) {
        let list = match asked.values.as_list_opt::<i32>() {
            Some(list) => list.value(row),
            None => match asked.values.as_list_opt::<i64>() {
                Some(list) => list.value(row),
                None => return Ok(false),
            },
        };
        if !list.is_empty() && list.is_valid(0) {
            labels.extend(literal(&scalar(&list, 0)?));
        }
    }
    texts(asked, labels, "array_has").await
}

/// `contains(column, substring)`.
pub(super) async fn substrings(asked: &Asked<'_>) -> Result<bool> {
    let rows = (0..asked.values.len()).filter(|row| asked.values.is_valid(*row));
    let texts = rows.map(|row| Ok(text(&scalar(&asked.values, row)?)));
    let texts = texts.collect::<Result<Vec<_>>>()?.into_iter().flatten();
    let parts = texts.map(|text| text.chars().take(CHARACTERS).collect::<String>());
    let parts = parts.filter(|part| part.chars().count() == CHARACTERS);
    self::texts(asked, parts.map(|part| quoted(&part)).collect(), "contains").await
}

async fn texts(asked: &Asked<'_>, mut literals: Vec<String>, function: &str) -> Result<bool> {
    literals.sort_unstable();
    literals.dedup();
    literals.truncate(TEXTS);
    for literal in &literals {
        let question = format!("{function}({}, {literal})", asked.column);
        let mut scans = [asked.dataset.scan(), asked.dataset.scan()];
        for scan in &mut scans {
            scan.filter(&question)?;
        }
        compare(scans, &question).await?;
    }
    Ok(!literals.is_empty())
}

async fn filter(asked: &Asked<'_>, question: Expr, said: &str) -> Result<()> {
    let mut scans = [asked.dataset.scan(), asked.dataset.scan()];
    for scan in &mut scans {
        scan.filter_expr(question.clone());
    }
    compare(scans, said).await
}

async fn compare([index, mut scan]: [lance::dataset::scanner::Scanner; 2], question: &str) -> Result<()> {
    scan.use_scalar_index(false);
    same(&found(index).await?, &found(scan).await?, question)
}

fn column(path: &str) -> Result<Expr> {
    let path = parse_field_path(path)?;
    let mut names = path.into_iter();
    let first = names.next().ok_or_else(|| Error::Invalid("an index on no column".into()))?;
    Ok(names.fold(Expr::Column(Column::from_name(first)), get_field))
}

fn scalar(values: &ArrayRef, row: usize) -> Result<ScalarValue> {
    ScalarValue::try_from_array(values, row).map_err(|e| Error::Invalid(format!("a value can't be asked for: {e}")))
}

fn is_nan(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float16(Some(number)) => number.is_nan(),
        ScalarValue::Float32(Some(number)) => number.is_nan(),
        ScalarValue::Float64(Some(number)) => number.is_nan(),
        _ => false,
    }
}

fn text(value: &ScalarValue) -> Option<String> {
    value.try_as_str().flatten().map(str::to_string)
}

/// A label as SQL writes it; types with other spellings are not asked for.
fn literal(value: &ScalarValue) -> Option<String> {
    text(value).map(|text| quoted(&text)).or_else(|| value.data_type().is_integer().then(|| value.to_string()))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
