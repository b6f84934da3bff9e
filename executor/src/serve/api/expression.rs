//! Expressions of SQL in requests, none of them deeper than the stack that it is planned on.
//!
//! Every operator may be one step deeper: the parser's own limit does not see chains such as `a OR b OR c`, and what
//! comes after it, down to the drop of the tree, recurses.

use std::any::TypeId;

use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use serde::de::{Deserialize, Deserializer, Error};

/// Operators, brackets and keywords of one expression.
const STEPS_MAX: usize = 1_000;
/// Brackets of keywords in one another, such as those of `cast(`. Where the parser can't read one as its keyword says, it
/// reads it again as a function: each inside another doubles the time.
const CALLS_MAX: usize = 10;
/// Keywords that stand between two expressions, and so are read in one way.
const JOINS: [Keyword; 5] = [Keyword::AND, Keyword::OR, Keyword::IN, Keyword::LIKE, Keyword::BETWEEN];

/// Refuses an expression of too many steps.
pub(super) fn bounded(text: &str) -> Result<(), String> {
    match steps(text) > STEPS_MAX {
        true => Err(format!(
            "an expression has more than {STEPS_MAX} operators, or more than {CALLS_MAX} calls in one another; write \
                 many values as `x IN (1, 2, …)`"
        )),
        false => Ok(()),
    }
}

/// How Lance reads SQL (its `LanceDialect`): what is hidden in a text or a remark there is hidden here, and nothing else.
#[derive(Debug)]
struct Lance(GenericDialect);

impl Dialect for Lance {
    fn dialect(&self) -> TypeId {
        self.0.dialect()
    }

    fn is_identifier_start(&self, c: char) -> bool {
        self.0.is_identifier_start(c)
    }

    fn is_identifier_part(&self, c: char) -> bool {
        self.0.is_identifier_part(c)
    }

    fn is_delimited_identifier_start(&self, c: char) -> bool {
        c == '`'
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        self.0.supports_bitwise_shift_operators()
    }
}

/// What stands between two commas or brackets.
#[derive(Default)]
struct Item {
    /// Whether it began after a comma or a bracket.
    listed: bool,
    names: usize,
    keywords: usize,
    literals: usize,
    signs: usize,
    others: usize,
}

impl Item {
    /// Of a value in a list, such as `-1` or `DATE '2026-11-30'`, there are none: what stands beside it is no deeper.
    fn steps(&self) -> usize {
        let words = self.names + self.keywords;
        let value = self.others == 0 && self.literals < 2 && words + self.signs < 2;
        if self.listed && value { 0 } else { self.keywords + self.signs + self.others }
    }
}

/// Tokens that may nest: all but names, values and commas. What Lance can't read has none.
fn steps(text: &str) -> usize {
    let Ok(tokens) = Tokenizer::new(&Lance(GenericDialect {}), text).tokenize() else { return 0 };
    let (mut steps, mut item) = (0, Item::default());
    // Of each open bracket, whether it is a keyword's.
    let (mut open, mut keyword) = (Vec::new(), false);
    let begin = |listed| Item { listed, ..Item::default() };
    for token in tokens {
        let of_keyword = keyword;
        if !matches!(token, Token::Whitespace(_)) {
            keyword = matches!(&token, Token::Word(word) if word.keyword != Keyword::NoKeyword && !JOINS.contains(&word.keyword));
        }
        match token {
            Token::Whitespace(_) | Token::EOF => {}
            Token::Comma => steps += std::mem::replace(&mut item, begin(true)).steps(),
            Token::RParen | Token::RBracket | Token::RBrace => {
                open.pop();
                steps += std::mem::replace(&mut item, begin(false)).steps();
            }
            Token::LParen | Token::LBracket | Token::LBrace => {
                open.push(of_keyword);
                if open.iter().filter(|keyword| **keyword).count() > CALLS_MAX {
                    return usize::MAX;
                }
                // It goes on behind the bracket.
                item.listed = false;
                steps += 1 + std::mem::replace(&mut item, begin(true)).steps();
            }
            Token::Word(word) if word.quote_style.is_some() || word.keyword == Keyword::NoKeyword => item.names += 1,
            Token::Word(_) => item.keywords += 1,
            Token::Plus | Token::Minus => item.signs += 1,
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::HexStringLiteral(_) => item.literals += 1,
            _ => item.others += 1,
        }
    }
    steps + item.steps()
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
    use std::sync::Arc;

    use arrow_schema::{DataType, Field, Schema};
    use lance::io::exec::Planner;

    use super::*;

    /// What may stand behind an expression and make it deeper, as the parser names it or by a letter of its grammar.
    const BEHIND: &str = "+ - * / % || > < >= <= <=> = == <> != AND OR XOR | & ^ // DIV MATCH REGEXP RLIKE # << >> && ~ \
        ~* !~ !~* ~~ ~~* !~~ !~~* ^@ -> ->> #> #>> @@ @> <@ #- @? ? ?& ?| OVERLAPS ## <-> &< &> <<| |>> &<| |&> <^ >^ ?# \
        ?- ?-| ?|| @ ~= := => :: : . ! !! LIKE ILIKE GLOB COLLATE UNION EXCEPT INTERSECT JOIN ESCAPE";
    const PHRASES: [&str; 22] = [
        " similar to 'a'",
        " not similar to 'a'",
        " at time zone 'utc'",
        " not like 'a'",
        " not regexp 'a'",
        " not rlike 'a'",
        " is null",
        " is not null",
        " is true",
        " is not false",
        " is distinct from 1",
        " is not distinct from true",
        " between 1 and 2",
        " not between 1 and",
        " in (1)",
        " not in (1, 2)",
        " in unnest(a)",
        "[1]",
        "['a']",
        "::int",
        ".a",
        " union select 1, 2",
    ];
    const BEFORE: [&str; 34] = [
        "not (",
        "true and (",
        "true or (",
        "1 in (",
        "1 between (",
        "- ",
        "+ ",
        "~ ",
        "! ",
        "@ ",
        "|/ ",
        "||/ ",
        "!! ",
        "NOT ",
        "not not ",
        "(",
        "[",
        "{",
        "case when ",
        "case ",
        "cast(",
        "try_cast(",
        "extract(day from ",
        "interval ",
        "exists (select ",
        "array[",
        "prior ",
        "x -> ",
        "abs(",
        "floor(",
        "position('a' in ",
        "substring(",
        "date ",
        "struct(",
    ];

    /// Reads it as Lance does, on a stack as a worker has, and drops it.
    fn read(text: String) {
        let done = std::thread::Builder::new().stack_size(crate::cli::STACK).spawn(move || {
            let a = Field::new("a", DataType::Boolean, true);
            let fields = vec![a, Field::new("n", DataType::Int64, true), Field::new("t", DataType::Utf8, true)];
            let schema = Arc::new(Schema::new(fields));
            let planner = Planner::new(schema.clone());
            let value = planner.parse_filter(&text).and_then(|expr| planner.optimize_expr(expr));
            let value = value.and_then(|expr| planner.create_physical_expr(&expr));
            let rows = arrow_array::RecordBatch::new_empty(schema);
            drop(value.map(|value| value.evaluate(&rows)));
            drop(planner.parse_expr(&text).and_then(|expr| planner.optimize_expr(expr)));
        });
        // What Lance gives up on ends the request, and not the process.
        let _ = done.expect("a thread").join();
    }

    #[test]
    fn no_chain_of_an_operator_is_deeper_than_the_stack() {
        let operands = ["true"];
        let mut steps: Vec<String> =
            BEHIND.split_whitespace().flat_map(|word| operands.map(|other| format!(" {word} {other}"))).collect();
        steps.extend(PHRASES.map(str::to_string));
        for step in steps {
            let most =
                (1..).map(|count| count * 50).find(|count| bounded(&format!("n{}", step.repeat(*count))).is_err());
            let most = most.expect("it is refused once") - 50;
            read(format!("n{}", step.repeat(most)));
        }
        for step in BEFORE {
            // Also what is never closed, so that the parser tries all that it might be.
            let allowed = |count: &usize| bounded(&format!("{}n", step.repeat(*count))).is_ok();
            let most = (0..14).map(|power| 1 << power).take_while(allowed).last().unwrap_or(0);
            read(format!("{}n", step.repeat(most)));
            let close = if step.contains('(') { ")" } else { "" };
            read(format!("{}n{}", step.repeat(most), close.repeat(most)));
        }
    }

    #[test]
    fn what_nests_is_counted_and_what_is_long_but_flat_is_not() {
        let many = |text: &str| text.repeat(STEPS_MAX + 1);
        for deep in [
            "(",
            "NOT ",
            "a Or ",
            "1+",
            "1 - ",
            "case when ",
            "CAST(",
            "a.",
            "x::int",
            "- ",
            "[",
            "a||",
            "1=",
            "/* ' */ - ",
        ] {
            assert!(bounded(&many(deep)).is_err(), "{deep}");
        }
        let list = |value: &str| format!("x IN ({value}{value} 2)", value = many(value));
        let values = ["-1.5, ", "'it''s', ", "DATE '2026-11-30', ", "X'0a', ", "true, ", "1e-5, ", "null, ", "`a`, "];
        let mut flat: Vec<String> = values.iter().map(|value| list(value)).collect();
        flat.extend([
            "'".to_string() + &many("(or ") + "'",
            many("orange "),
            "true /* ".to_string() + &many("(") + "*/",
        ]);
        for flat in flat {
            assert_eq!(bounded(&flat), Ok(()), "{}", &flat[..20]);
        }
        assert_eq!(steps("a = 'it''s (' AND \"or\" > -2"), 4);
        assert_eq!(steps("1 union select 1, 2 union select 1, 2"), 4);
    }
}
