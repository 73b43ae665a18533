//! A module uses only modules of its own layer or of layers below it.
//!
//! Paths in `use` lines and paths written inline count; comments and code for tests do not.

// A test may stop at the first surprise, also in its helpers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// From the lowest layer to the highest.
const LAYERS: [&str; 13] = [
    "base",
    "table",
    "read",
    "session",
    "residency",
    "identity",
    "occupancy",
    "activity",
    "simulate",
    "slowdown",
    "explain",
    "output",
    "pipeline",
];

/// Uses that are allowed although they go upwards: (file, layer). It only shrinks.
const IGNORED: [(&str, &str); 0] = [];

fn rank(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|known| *known == layer)
}

/// The code of a file: without comments, and without what is compiled for tests only.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let text = text.split("#[cfg(test)]\npub(crate) mod tests {").next().unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// What a file of a module so many levels below the root names of the root: `crate::NAME`, each `NAME` of
/// `crate::{NAME, NAME}`, and the same through `super`.
fn named(code: &str, depth: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in code.match_indices(&root) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let rest = &code[at + root.len()..];
            let word = |text: &str| {
                text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
            };
            let Some(group) = rest.strip_prefix('{') else {
                found.insert(word(rest));
                continue;
            };
            let (mut open, mut start) = (1, 0);
            for (n, c) in group.char_indices() {
                match c {
                    '{' => open += 1,
                    '}' => open -= 1,
                    _ => {}
                }
                if (c == ',' && open == 1) || open == 0 {
                    found.insert(word(&group[start..n]));
                    start = n + 1;
                }
                if open == 0 {
                    break;
                }
            }
        }
    }
    found.remove("");
    found.remove("super");
    found
}

/// The layers above its own that the code of a file names.
fn violations(own: &str, code: &str, depth: usize) -> Vec<String> {
    let own = rank(own).unwrap_or_else(|| panic!("{own} is no layer"));
    let layer = |name: &String| {
        // `crate::Error`, `crate::Result` and `crate::Watch` stand in the root, and come from `base`.
        let base = name.starts_with(char::is_uppercase);
        let layer = if base { "base" } else { name };
        rank(layer).unwrap_or_else(|| panic!("crate::{name} is in no layer"))
    };
    named(code, depth).into_iter().filter(|name| layer(name) > own).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_module_uses_a_higher_layer() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut upwards, mut uses) = (Vec::new(), 0);
    for path in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let name = inside.file_name().unwrap().to_str().unwrap();
        // The root lists the layers; the others are compiled for tests only.
        if ["lib.rs", "test_tables.rs", "tests.rs"].contains(&name) {
            continue;
        }
        let mut parts: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
        if name == "mod.rs" {
            parts.pop();
        }
        let own = parts[0].trim_end_matches(".rs");
        let code = code(&std::fs::read_to_string(&path).unwrap());
        uses += named(&code, parts.len()).len();
        let file = inside.to_str().unwrap().to_owned();
        for layer in violations(own, &code, parts.len()) {
            if !IGNORED.contains(&(file.as_str(), layer.as_str())) {
                upwards.push(format!("{file} uses {layer}"));
            }
        }
    }
    assert_eq!(upwards, Vec::<String>::new());
    assert!(uses > 100, "only {uses} uses were found: is the source read at all?");
}

#[test]
fn a_use_of_a_higher_layer_is_found_however_it_is_written() {
    for upwards in [
        "use crate::slowdown::Baseline;",
        "use crate::{base::error::Result, slowdown::{self, Baseline}};",
        "fn f() { let x = crate::slowdown::slowdowns(); }",
        "use super::super::slowdown::Baseline;",
    ] {
        assert_eq!(violations("activity", &code(upwards), 2), ["slowdown"], "{upwards}");
    }
    for fine in [
        "use crate::{base::error::Result, table::columns::{at, Columns}};",
        "/// See [`crate::slowdown`].\nuse super::overlap::short_ns;",
        "use crate::Error;\n#[cfg(test)]\nmod tests {\n    use crate::pipeline;\n}\n",
    ] {
        assert_eq!(violations("activity", &code(fine), 2), Vec::<String>::new(), "{fine}");
    }
}
