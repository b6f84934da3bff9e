//! Expressions of SQL in requests, none of them deeper than the stack that it is planned on.
//!
//! Every operator may be one step deeper: the parser's own limit does not see chains such as `a OR b OR c`, and what
//! comes after it, down to the drop of the tree, recurses.

use serde::de::{Deserialize, Deserializer, Error};

/// Operators and brackets of one expression.
const STEPS_MAX: usize = 1_000;
/// Words that take an expression in, or two.
const WORDS: [&str; 14] = [
    "and", "or", "not", "case", "cast", "try_cast", "between", "like", "ilike", "is", "interval", "extract", "collate",
    "div",
];

/// Refuses an expression of too many steps.
pub(super) fn bounded(text: &str) -> Result<(), String> {
    match steps(text) > STEPS_MAX {
        true => {
            Err(format!("an expression has more than {STEPS_MAX} operators; write many values as `x IN (1, 2, …)`"))
        }
        false => Ok(()),
    }
}

/// Operators, brackets and words that nest. A sign of a number in a list is none.
fn steps(text: &str) -> usize {
    let (mut steps, mut chars, mut listed) = (0, text.char_indices().peekable(), false);
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' | '"' | '`' => while chars.next().is_some_and(|(_, other)| other != c) {},
            '(' | '[' | '{' | '*' | '/' | '%' | '|' | '&' | '^' | '~' | ':' | '.' => steps += 1,
            '+' | '-' => steps += usize::from(!listed),
            // Its point is none between names.
            _ if c.is_ascii_digit() => {
                while chars.next_if(|(_, c)| c.is_ascii_alphanumeric() || *c == '.').is_some() {}
            }
            _ if c.is_alphabetic() => {
                let mut end = at + c.len_utf8();
                while let Some((_, c)) = chars.next_if(|(_, c)| c.is_alphanumeric() || *c == '_') {
                    end += c.len_utf8();
                }
                let word = &text[at..end];
                steps += usize::from(WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)));
            }
            _ => {}
        }
        if !c.is_whitespace() {
            listed = matches!(c, ',' | '(');
        }
    }
    steps
}

/// One expression.
pub(super) fn one<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    bounded(&text).map_err(D::Error::custom)?;
    Ok(text)
}

/// One, or none.
pub(super) fn maybe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.as_deref().map_or(Ok(()), bounded).map_err(D::Error::custom)?;
    Ok(text)
}

/// Columns, each with one.
pub(super) fn pairs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, String)>, D::Error> {
    let pairs = Vec::<(String, String)>::deserialize(from)?;
    pairs.iter().try_for_each(|(_, text)| bounded(text)).map_err(D::Error::custom)?;
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nests_is_counted_and_what_is_long_but_flat_is_not() {
        let many = |text: &str| text.repeat(STEPS_MAX + 1);
        for deep in ["(", "NOT ", "a Or ", "1+", "1 - ", "case when ", "CAST(", "a.", "x::int", "-", "[", "a||"] {
            assert!(bounded(&many(deep)).is_err(), "{deep}");
        }
        let flat =
            ["x IN (".to_string() + &many("-1.5, ") + "2)", "'".to_string() + &many("(or ") + "'", many("orange ")];
        for flat in flat {
            assert_eq!(bounded(&flat), Ok(()), "{}", &flat[..20]);
        }
        assert_eq!(steps("a = 'it''s (' AND \"or\" > -2"), 2);
    }
}
