//! Every drawing of `scenarios/` holds. `UPDATE=1` writes what the planner says now into them; look
//! at the difference before it is kept.
#![allow(clippy::unwrap_used)]

mod scenario;

use std::path::PathBuf;
use std::{env, fs};

fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_scenario_reads_as_it_was_drawn() {
    let update = env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    for file in files() {
        let written = fs::read_to_string(&file).unwrap();
        let now = scenario::run(&written);
        if now == written {
            continue;
        }
        if update {
            fs::write(&file, &now).unwrap();
        } else {
            let line = now.lines().zip(written.lines()).position(|(a, b)| a != b).unwrap_or(0);
            wrong.push(format!("{}, line {}; now it reads\n\n{now}", file.display(), line + 1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_scenario_stays_under_a_screen() {
    assert!(files().len() >= 20, "scenarios are missing");
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.display();
        assert!(text.starts_with("# "), "{name} has no title");
        assert!(text.lines().count() <= 66, "{name} is longer than a screen");
        assert!(text.lines().all(|line| line.chars().count() < 100), "{name} is wider than a screen");
    }
}
