//! A function fits a screen, a file a sitting (CONTRIBUTING, Style), in every room of the workspace.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 80;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&name.as_str()) {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// Functions of formatted code with their lengths: each ends at the brace below its own `fn`.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let before_fn = code.split("fn ").next().unwrap_or_default();
        let words = ["pub", "pub(crate)", "pub(super)", "async", "const", "extern", "\"C\""];
        if !code.contains("fn ") || !before_fn.split_whitespace().all(|word| words.contains(&word)) {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let length = lines[start..].iter().position(|line| *line == end).map_or(1, |length| length + 1);
        found.push((code, length));
    }
    found
}

#[test]
fn a_function_fits_a_screen_and_a_file_a_sitting() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 20, "the workspace was not found");
    let mut long = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(&root).unwrap().display();
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            long.push(format!("{name}: {lines} lines"));
        }
        let functions = functions(&text).into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        long.extend(functions.map(|(function, lines)| format!("{name}: {lines} lines of `{function}`")));
    }
    assert!(long.is_empty(), "too long:\n{}", long.join("\n"));
}

#[test]
fn a_long_function_is_found() {
    let text = format!("impl X {{\n    pub(crate) async fn f() {{\n{}    }}\n}}\n", "        g();\n".repeat(90));
    assert_eq!(functions(&text), [("pub(crate) async fn f() {", 92)]);
}
