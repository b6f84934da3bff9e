//! The published schemas are those of the types, and what the planner takes and says keeps to them.
//!
//! `UPDATE=1` writes them anew; what changed is then there to be reviewed.

use std::{collections::BTreeSet, env, fs, path::Path};

use serde_json::Value;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/wit/1.0.0/schema")
}

#[test]
fn the_published_schemas_are_those_of_the_types() {
    let update = env::var_os("UPDATE").is_some_and(|value| value == "1");
    let mut names = BTreeSet::new();
    for (name, schema) in planner::wire::schemas() {
        let file = folder().join(format!("{name}.schema.json"));
        let now = serde_json::to_string_pretty(&schema).expect("it is JSON") + "\n";
        if update {
            fs::create_dir_all(folder()).expect("a folder");
            fs::write(&file, &now).expect("it is written");
        }
        let published = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            published == now,
            "`{name}` is out of date: `UPDATE=1 cargo test -p caretaker-planner --features schema --test schemas`, then read the difference"
        );
        names.insert(format!("{name}.schema.json"));
    }
    let published = fs::read_dir(folder()).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let published: BTreeSet<String> = published.filter_map(|name| name.into_string().ok()).collect();
    assert_eq!(published, names, "only those");
}

/// The names that an object of the schema may have, and its own of the value.
fn unknown_keys(schema: &Value, root: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(name) => root.pointer(name.trim_start_matches('#')).expect("it is defined"),
        None => schema,
    };
    let choices = ["anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
    let choices: Vec<&Value> = choices.collect();
    match value {
        Value::Object(fields) if schema["properties"].is_object() || !choices.is_empty() => {
            for (key, value) in fields {
                let at = format!("{path}/{key}");
                let all = choices.iter().copied().map(|choice| match choice["$ref"].as_str() {
                    Some(name) => root.pointer(name.trim_start_matches('#')).expect("it is defined"),
                    None => choice,
                });
                let known: Vec<&Value> =
                    all.chain([schema]).filter_map(|schema| schema["properties"].get(key)).collect();
                match known.as_slice() {
                    [] => found.push(at),
                    [one] => unknown_keys(one, root, value, &at, found),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| unknown_keys(&schema["items"], root, item, path, found)),
        _ => {}
    }
}

#[test]
fn a_plan_and_a_description_have_only_keys_of_their_schemas() {
    let schemas: std::collections::BTreeMap<_, _> = planner::wire::schemas().into_iter().collect();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/corpus");
    for (schema, file) in [("plan", "plan_base"), ("plan", "plan_tick"), ("description", "describe")] {
        let answer = fs::read(corpus.join(format!("{file}.answer.json"))).expect("an answer");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let schema = serde_json::to_value(&schemas[schema]).expect("JSON");
        let mut found = Vec::new();
        unknown_keys(&schema, &schema, &answer, "", &mut found);
        // A planner may say more of itself than it must.
        found.retain(|key| {
            !["/ok/decisions", "/ok/triggers", "/ok/knobs", "/ok/policy", "/ok/workload"].contains(&key.as_str())
        });
        assert_eq!(found, [""; 0], "{file}");
    }
}
