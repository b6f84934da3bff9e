//! Cases of options.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Question, Why, impossible};
use crate::pick::early::OffPeak;
use crate::pick::lookup::ForceUp;
use crate::pick::options::{KeyStrategy, Options};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OffPeakConfig {
    start: i64,
    end: i64,
    ratio: u32,
}

impl OffPeakConfig {
    pub(super) fn read(self) -> Result<Option<OffPeak>, Why> {
        let hour = |hour: i64| match u8::try_from(hour) {
            Ok(hour) if hour < 24 => Ok(Some(hour)),
            _ if hour == -1 => Ok(None),
            _ => Err(impossible("a day has 24 hours")),
        };
        Ok(OffPeak::new(hour(self.start)?, hour(self.end)?, self.ratio))
    }
}

/// Whether there are such hours, and what they add.
pub(super) fn off_peak(question: &Question<'_>, strategy: &str) -> Result<Value, Why> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Input {
        #[serde(default)]
        hour: u8,
    }
    let off_peak = question.config::<OffPeakConfig>()?.read()?;
    let Input { hour } = question.input()?;
    if hour > 23 {
        return Err(impossible("a day has 24 hours"));
    }
    if strategy == "off_peak.create" {
        return Ok(json!({ "enabled": off_peak.is_some() }));
    }
    Ok(json!({ "ratio": off_peak.map_or(0, |off_peak| off_peak.ratio(hour)) }))
}

fn options(question: &Question<'_>) -> Result<Options, Why> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        options: Map<String, Value>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Input {}
    let (config, Input {}): (Config, Input) = (question.config()?, question.input()?);
    let text = |value: Value| if let Value::String(text) = value { text } else { value.to_string() };
    let pairs: Vec<(String, String)> = config.options.into_iter().map(|(key, value)| (key, text(value))).collect();
    let profile = core::iter::once(("profile", question.profile.name()));
    let all = profile.chain(pairs.iter().map(|(key, text)| (key.as_str(), text.as_str())));
    Options::from_pairs(all).map_err(|refused| Why::Field(refused.to_string()))
}

/// What follows from options.
pub(super) fn values(question: &Question<'_>) -> Result<Value, Why> {
    let options = options(question)?;
    Ok(json!({
        "compaction_trigger": options.compaction_trigger, "stop_trigger": options.stop_trigger(),
        "num_levels": options.num_levels(), "max_size_amp": options.max_size_amp,
        "size_ratio": options.size_ratio, "off_peak_enabled": options.universal().off_peak.is_some(),
        "early_full_enabled": options.early_full().is_some(),
        "optimization_interval_ms": options.optimization_interval_ms,
        "total_size_threshold": options.total_size_threshold,
        "incremental_size_threshold": options.incremental_size_threshold,
        "need_lookup": options.needs_lookup(), "lookup_max_interval": options.lookup_max_interval(),
        "lookup_wait": options.lookup_wait, "prepare_commit_wait": options.waits_for_lookup(),
        "commit_force_compact": options.commit_force_compact,
        "force_up_level_0": options.force_up_level_0,
        "force_rewrite_all_files": options.force_rewrite_all, "write_only": options.write_only,
        "min_file_num": options.min_file_num, "file_num_limit": options.file_num_limit,
        "open_file_cost": options.open_file_cost, "full_delta_commits": options.full_delta_commits,
        "target_file_size_pk": options.target_file_size(true),
        "target_file_size_append": options.target_file_size(false),
        "compaction_file_size_pk": options.compaction_file_size(true),
        "compaction_file_size_append": options.compaction_file_size(false),
    }))
}

/// The strategy that options choose.
pub(super) fn strategy(question: &Question<'_>) -> Result<Value, Why> {
    let (name, max_interval) = match options(question)?.key_strategy() {
        KeyStrategy::Off => ("noop", None),
        KeyStrategy::Universal(_) => ("universal", None),
        KeyStrategy::ForceUp(ForceUp { max_interval, .. }) => ("force_up_l0", max_interval),
    };
    Ok(json!({ "strategy": name, "max_interval": max_interval }))
}
