//! Cases of the picks, with what each should give: judged alike natively and as Wasm.
//!
//! A case names its strategy and the profiles that it holds for ([`Profile`]), and is judged under each of
//! these. What it expects is a part of the whole answer. Cases come from the tests of Apache Paimon and from
//! its rules; `planner/tests/data/paimon` has both.

mod append;
mod options;
mod tree;

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::pick::rules::Profile;

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name.
    pub id: String,
    /// What is asked: `universal.pick`, `append.full`, and so on.
    pub strategy: String,
    /// Whose rules it holds under, one at least.
    pub profiles: Vec<String>,
    /// The numbers of the strategy.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Runs, files, steps.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// What the answer has to say, as far as the case knows it.
    pub expected: Map<String, Value>,
    /// What somebody derived; not looked at.
    #[serde(default)]
    pub derived: Value,
    /// Where it is from.
    #[serde(default)]
    pub source: Value,
    /// Where else it stands.
    #[serde(default)]
    pub also_in: Value,
    /// A remark.
    #[serde(default)]
    pub note: String,
    /// Why the answer is the right one.
    #[serde(default)]
    pub why: String,
}

/// What became of cases: one line for each case and profile, in their order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// How many cases there were.
    pub cases: usize,
    /// How many checks: a case is checked under each of its profiles.
    pub checks: usize,
    /// How many of the checks agree.
    pub agree: usize,
    /// The checks.
    pub results: Vec<Checked>,
}

impl Report {
    /// Whether every check agrees.
    pub fn is_clean(&self) -> bool {
        self.agree == self.checks
    }
}

/// What disagrees, and how many checks there were.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Checked { id, profile, differs, .. } in &self.results {
            if let Some(Difference { expected, got }) = differs {
                writeln!(f, "{id} ({profile}): expected {expected}, got {got}")?;
            }
        }
        write!(f, "{} of {} checks of {} cases agree", self.agree, self.checks, self.cases)
    }
}

/// One case under one profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The case.
    pub id: String,
    /// The profile.
    pub profile: &'static str,
    /// Whether the answer is the expected one.
    pub agrees: bool,
    /// Where it is not: both.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub differs: Option<Difference>,
}

/// An answer that is not the expected one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// What the case expects.
    pub expected: Value,
    /// The whole answer.
    pub got: Value,
}

/// Why cases are not judged. One such case leaves all of them without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The case; empty where the text is no list of cases.
    pub case: String,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The text is no list of cases.
    Malformed(String),
    /// There is no such strategy.
    Strategy(String),
    /// There is no such profile, or no profile at all.
    Profile(String),
    /// A field is unknown, missing or of another kind.
    Field(String),
    /// No bucket and no table is like this.
    Impossible(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.case.is_empty() {
            write!(f, "case `{}`: ", self.case)?;
        }
        match &self.why {
            Why::Malformed(why) => write!(f, "not a list of cases: {why}"),
            Why::Strategy(name) => write!(f, "unknown strategy `{name}`"),
            Why::Profile(name) if name.is_empty() => f.write_str("it names no profile"),
            Why::Profile(name) => write!(f, "unknown profile `{name}`"),
            Why::Field(why) | Why::Impossible(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for Refused {}

/// Judges the cases of a text: a JSON list of them, or an object whose `cases` are that list.
///
/// # Errors
/// The text is something else, or a case that can't be asked.
pub fn run(text: &str) -> Result<Report, Refused> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Cases {
        cases: Vec<Case>,
    }
    let is_object = text.trim_start().starts_with('{');
    let cases =
        if is_object { serde_json::from_str(text).map(|Cases { cases }| cases) } else { serde_json::from_str(text) };
    let malformed = |e: serde_json::Error| Refused { case: String::new(), why: Why::Malformed(e.to_string()) };
    judge(&cases.map_err(malformed)?)
}

/// Judges cases.
///
/// # Errors
/// A case that can't be asked: its strategy, a profile or a field is unknown, or nothing is like it.
pub fn judge(cases: &[Case]) -> Result<Report, Refused> {
    let mut report = Report { cases: cases.len(), ..Report::default() };
    for case in cases {
        let refused = |why| Refused { case: case.id.clone(), why };
        if case.profiles.is_empty() {
            return Err(refused(Why::Profile(String::new())));
        }
        for name in &case.profiles {
            let profile = Profile::named(name).ok_or_else(|| refused(Why::Profile(name.clone())))?;
            let checked = check(case, profile).map_err(refused)?;
            report.agree += usize::from(checked.agrees);
            report.results.push(checked);
        }
    }
    report.checks = report.results.len();
    Ok(report)
}

fn check(case: &Case, profile: Profile) -> Result<Checked, Why> {
    let mut got = ask(case, profile)?;
    let mut expected = Value::Object(case.expected.clone());
    unordered(&case.strategy, &mut expected);
    unordered(&case.strategy, &mut got);
    let agrees = holds(&expected, &got)?;
    let differs = (!agrees).then_some(Difference { expected, got });
    Ok(Checked { id: case.id.clone(), profile: profile.name(), agrees, differs })
}

/// The whole answer.
fn ask(case: &Case, profile: Profile) -> Result<Value, Why> {
    let question = Question { config: &case.config, input: &case.input, profile };
    match case.strategy.as_str() {
        "universal.pick"
        | "universal.size_amp"
        | "universal.size_ratio"
        | "universal.create_unit"
        | "early_full.try"
        | "force_up_l0.pick" => tree::pick(&question, &case.strategy),
        "full.pick" => tree::full(&question),
        "cluster.full_pick" => tree::clustered(&question),
        "merge_tree.compact" => tree::compact(&question),
        "merge_tree.not_completed" => tree::not_completed(&question),
        "levels" => tree::levels(&question),
        "interval_partition" => tree::intervals(&question),
        "seed_last_full" => tree::seed(&question),
        "write_stall" => tree::stall(&question),
        "append.auto_pick" => append::auto(&question),
        "append.full_task" => append::full_task(&question),
        "append.full" => append::full(&question),
        "append.coordinator" => append::coordinator(&question),
        "append.pre_commit" => append::pre_commit(&question),
        "off_peak.create" | "off_peak.ratio" => options::off_peak(&question, &case.strategy),
        "options" => options::values(&question),
        "strategy.select" => options::strategy(&question),
        _ => Err(Why::Strategy(case.strategy.clone())),
    }
}

/// A case under a profile.
struct Question<'a> {
    config: &'a Map<String, Value>,
    input: &'a Map<String, Value>,
    profile: Profile,
}

impl Question<'_> {
    fn config<T: DeserializeOwned>(&self) -> Result<T, Why> {
        read(self.config, "config")
    }

    fn input<T: DeserializeOwned>(&self) -> Result<T, Why> {
        read(self.input, "input")
    }
}

fn read<T: DeserializeOwned>(fields: &Map<String, Value>, of: &str) -> Result<T, Why> {
    T::deserialize(fields).map_err(|e| Why::Field(format!("`{of}`: {e}")))
}

fn impossible(why: impl ToString) -> Why {
    Why::Impossible(why.to_string())
}

/// Whether an answer says all that is expected of it; step by step, where there are steps.
fn holds(expected: &Value, got: &Value) -> Result<bool, Why> {
    let Value::Object(fields) = expected else { return Ok(expected == got) };
    let mut agrees = true;
    for (name, expected) in fields {
        let unknown = || Why::Field(format!("`expected`: unknown field `{name}`"));
        let got = got.get(name).ok_or_else(unknown)?;
        agrees &= match (name.as_str(), expected, got) {
            ("steps", Value::Array(expected), Value::Array(got)) => {
                let mut all = expected.len() == got.len();
                for (expected, got) in expected.iter().zip(got) {
                    all &= holds(expected, got)?;
                }
                all
            }
            _ => expected == got,
        };
    }
    Ok(agrees)
}

/// Sorts what has no order: the files and groups of a merge, the rows of a section.
fn unordered(strategy: &str, answer: &mut Value) {
    let sort = |list: &mut Vec<Value>| list.sort_by_cached_key(Value::to_string);
    let lists = |value: &mut Value, change: &dyn Fn(&mut Value)| {
        value.as_array_mut().into_iter().flatten().for_each(change);
    };
    let sort_value = |value: &mut Value| value.as_array_mut().into_iter().for_each(sort);
    match strategy {
        "interval_partition" => {
            if let Some(sections) = answer.get_mut("sections") {
                lists(sections, &sort_value);
            }
        }
        "merge_tree.compact" => {
            for name in ["after", "rewritten", "upgraded"] {
                let Some(list) = answer.get_mut(name) else { continue };
                if name == "rewritten" {
                    lists(list, &sort_value);
                }
                sort_value(list);
            }
        }
        _ => {}
    }
}
