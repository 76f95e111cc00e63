//! The style of docs/style.md, as far as a machine can check it.
//!
//! Knows the repository's files, not what is in them: each check reads text, and its message says what to do.

mod documents;

mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// Lines a file may have.
const FILE_LINES_MAX: usize = 600;
/// Lines a function may have, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Files that are larger all the same, with their size. It may only go down, and this table with it.
const LARGE_FILES: &[(&str, usize)] = &[];
/// Functions that are larger all the same, as `path::name`, with their size. It may only go down.
const LARGE_FUNCTIONS: &[(&str, usize)] = &[];

/// Crates whose library is pure: everything they need to know comes in as an argument.
const PURE_CRATES: &[&str] = &["crates/resp/src/", "crates/engine/src/", "crates/sim/src/"];
/// What a pure crate must not name.
const IMPURE_WORDS: &[&str] = &[
    "glommio",
    "io_uring",
    "Instant",
    "SystemTime",
    "thread",
    "Arc",
    "Mutex",
    "RwLock",
    "Condvar",
    "atomic",
    "async",
    "await",
];
/// What only its tool, if it has a `main.rs`, may name.
const IMPURE_MODULES: &[&str] = &["std::env", "std::fs", "std::io", "std::net", "std::process"];

/// The repository's own directory.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of the repository, sorted.
fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    for top in ["crates", "tests", "benches"] {
        walk(&root(), top, &mut paths);
    }
    let rust = paths.into_iter().filter(|path| path.ends_with(".rs"));
    let mut sources: Vec<Source> = rust.map(|path| Source::read(&root(), path)).collect();
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(sources.len() > 10, "only {} Rust files: is this the repository?", sources.len());
    sources
}

/// Adds the files under `directory`, relative to `root`. Build output and hidden directories are left out.
fn walk(root: &Path, directory: &str, paths: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(root.join(directory)) else { return };
    for entry in entries {
        let entry = entry.expect("a readable directory");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{directory}/{name}");
        if !entry.path().is_dir() {
            paths.push(path);
        } else if name != "target" && !name.starts_with('.') {
            walk(root, &path, paths);
        }
    }
}

/// Fails with all complaints at once, so that one run shows everything there is to do.
fn assert_tidy(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    let mut complaints = Vec::new();
    for source in sources() {
        if !source.text.starts_with("//! ") {
            complaints
                .push(format!("{}: open it with `//!`: what it owns, what it must not know", source.path));
        }
    }
    assert_tidy(&complaints);
}

#[test]
fn files_and_functions_stay_small() {
    let mut sizes = Vec::new();
    let mut function_sizes = Vec::new();
    for source in sources() {
        sizes.push((source.path.clone(), source.text.lines().count()));
        for function in source.functions() {
            function_sizes.push((format!("{}::{}", source.path, function.name), function.lines));
        }
    }
    let mut complaints = ratchet(&sizes, LARGE_FILES, FILE_LINES_MAX);
    complaints.extend(ratchet(&function_sizes, LARGE_FUNCTIONS, FUNCTION_LINES_MAX));
    assert_tidy(&complaints);
}

/// Nothing is larger than `max` except what the table names, and that has exactly the size in the table.
fn ratchet(sizes: &[(String, usize)], table: &[(&str, usize)], max: usize) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, lines) in sizes {
        let allowed = table.iter().find(|(known, _)| known == name).map(|(_, lines)| *lines);
        match allowed {
            None if *lines > max => {
                complaints.push(format!("{name}: {lines} lines, more than {max}: split it"))
            }
            Some(allowed) if *lines > allowed => {
                complaints.push(format!("{name}: grew from {allowed} to {lines} lines: split it"));
            }
            Some(allowed) if *lines < allowed => {
                complaints
                    .push(format!("{name}: now {lines} lines, well done: lower its {allowed} in the table"));
            }
            Some(_) | None => {}
        }
    }
    for (name, lines) in table {
        if !sizes.iter().any(|(known, _)| known == name) || *lines <= max {
            complaints.push(format!("{name}: no longer needs its line in the table: take it out"));
        }
    }
    complaints
}

#[test]
fn the_ratchet_turns_one_way_only() {
    let sizes = [
        ("grown".to_owned(), 12),
        ("shrunk".to_owned(), 11),
        ("new".to_owned(), 11),
        ("kept".to_owned(), 11),
    ];
    let table = [("grown", 11), ("shrunk", 12), ("kept", 11), ("gone", 11)];
    let complaints = ratchet(&sizes, &table, 10);
    let named = |complaint: &String| complaint.split(':').next().map(str::to_owned);
    let names: Vec<String> = complaints.iter().filter_map(named).collect();
    assert_eq!(names, ["grown", "shrunk", "new", "gone"]);
}

#[test]
fn unsafe_stands_only_where_the_architecture_lists_it() {
    let listed = documents::unsafe_allowed(&root());
    assert!(!listed.is_empty(), "docs/architecture.md lists no paths under `## Where unsafe is allowed`");
    let mut complaints = Vec::new();
    for path in &listed {
        if !root().join(path).exists() {
            complaints.push(format!("docs/architecture.md allows unsafe in {path}, which does not exist"));
        }
    }
    for source in sources() {
        let inside = |path: &String| source.path == *path || source.path.starts_with(&format!("{path}/"));
        if listed.iter().any(inside) {
            continue;
        }
        for line in source.lines_with_word("unsafe") {
            complaints
                .push(format!("{}:{line}: unsafe, and docs/architecture.md does not list it", source.path));
        }
    }
    assert_tidy(&complaints);
}

#[test]
fn pure_crates_name_no_clock_thread_or_executor() {
    let mut complaints = Vec::new();
    for source in sources() {
        if !PURE_CRATES.iter().any(|pure| source.path.starts_with(pure)) {
            continue;
        }
        let is_tool = source.path.ends_with("/main.rs");
        let modules = if is_tool { &[] } else { IMPURE_MODULES };
        for word in IMPURE_WORDS.iter().chain(modules) {
            for line in source.lines_with_word(word) {
                complaints.push(format!("{}:{line}: {word} has no place in a pure crate", source.path));
            }
        }
    }
    assert_tidy(&complaints);
}

#[test]
fn nothing_is_left_open() {
    // Put together here, so that this file does not find itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let code = ["todo!", "unimplemented!", "#[ignore", "#[allow(", "#![allow(", "#![cfg_attr(rustfmt"];
    let mut complaints = Vec::new();
    for source in sources() {
        for (idx, line) in source.text.lines().enumerate() {
            for mark in marks.iter().filter(|mark| line.contains(**mark)) {
                complaints.push(format!("{}:{}: {mark}: finish it, or write an issue", source.path, idx + 1));
            }
        }
        for part in code {
            for line in source.lines_with(part) {
                complaints.push(format!("{}:{line}: {part}: see docs/style.md", source.path));
            }
        }
    }
    assert_tidy(&complaints);
}

#[test]
fn nothing_is_unwrapped_outside_tests() {
    let mut complaints = Vec::new();
    for source in sources() {
        let name = source.path.rsplit('/').next().unwrap_or_default();
        let in_crate = source.path.starts_with("crates/") && source.path.contains("/src/");
        let server = source.path.starts_with("crates/server/");
        if !(in_crate || server) || name == "tests.rs" || name.ends_with("_tests.rs") {
            continue;
        }
        // Tests come last in a file.
        let tests = source.lines_with("#[cfg(test)]").into_iter().chain(source.lines_with("#[test]")).min();
        for line in source.lines_with(".unwrap()") {
            if tests.is_none_or(|tests| line < tests) {
                complaints
                    .push(format!("{}:{line}: unwrap: use expect, and state the invariant", source.path));
            }
        }
    }
    assert_tidy(&complaints);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let mut manifests = vec!["Cargo.toml".to_owned()];
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let name = entry.expect("a readable directory").file_name().to_string_lossy().into_owned();
        let manifest = format!("crates/{name}/Cargo.toml");
        if root().join(&manifest).exists() {
            manifests.push(manifest);
        }
    }
    let mut complaints = Vec::new();
    for manifest in manifests {
        let text = fs::read_to_string(root().join(&manifest)).expect("a manifest");
        if !text.contains("[lints]\nworkspace = true") {
            complaints.push(format!("{manifest}: add `[lints]` with `workspace = true`"));
        }
    }
    let banned = fs::read_to_string(root().join("crates/engine/clippy.toml")).unwrap_or_default();
    for method in ["std::time::Instant::now", "std::time::SystemTime::now", "std::thread::spawn"] {
        if !banned.contains(method) {
            complaints.push(format!("crates/engine/clippy.toml: ban {method}"));
        }
    }
    assert_tidy(&complaints);
}

#[test]
fn links_and_paths_in_documents_resolve() {
    let mut paths = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    walk(&root(), "docs", &mut paths);
    walk(&root(), "benches", &mut paths);
    let mut complaints = Vec::new();
    for path in paths.iter().filter(|path| path.ends_with(".md")) {
        complaints.extend(documents::broken_references(&root(), path));
    }
    assert_tidy(&complaints);
}
