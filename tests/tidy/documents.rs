//! What the checks read in Markdown: links, paths in code spans, and the list of modules that may have `unsafe`.

use std::fs;
use std::path::Path;

/// The section of docs/architecture.md whose bullets are paths, each in a code span.
const UNSAFE_SECTION: &str = "## Where unsafe is allowed";

/// Where a path in a code span is taken for one of the repository.
const TOPS: &[&str] = &["crates/", "tests/", "benches/", "docs/", ".ci/"];

/// Files and directories in which `unsafe` may occur, without a slash at the end.
pub(crate) fn unsafe_allowed(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("docs/architecture.md")).unwrap_or_default();
    let section = text.lines().skip_while(|line| line.trim() != UNSAFE_SECTION).skip(1);
    let bullets =
        section.take_while(|line| !line.starts_with('#')).filter_map(|line| line.strip_prefix("- `"));
    bullets.filter_map(|line| Some(line.split_once('`')?.0.trim_end_matches('/').to_owned())).collect()
}

/// Complaints about a document: links to files that are not there, and paths in code spans that are not there.
pub(crate) fn broken_references(root: &Path, document: &str) -> Vec<String> {
    let text = fs::read_to_string(root.join(document)).expect("a document that was just listed");
    let directory = root.join(document).parent().expect("every file has a directory").to_path_buf();
    let mut complaints = Vec::new();
    for (idx, line) in prose(&text) {
        for link in links(line).filter(|link| !directory.join(link).exists()) {
            complaints.push(format!("{document}:{}: a link to {link}, which does not exist", idx + 1));
        }
        for path in paths(line).filter(|path| !root.join(path).exists()) {
            complaints.push(format!("{document}:{}: names {path}, which does not exist", idx + 1));
        }
    }
    complaints
}

/// The lines outside fenced blocks, with their indexes.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Targets of links to files, without their anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    local.filter_map(|target| target.split('#').next()).filter(|target| !target.is_empty())
}

/// Code spans that are one path of the repository. A span with blanks or placeholders is something else.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    let plain = |span: &&str| !span.contains([' ', '<', '*', '{', '…', '$']);
    spans.filter(|span| TOPS.iter().any(|top| span.starts_with(top))).filter(plain)
}

#[test]
fn links_and_paths_are_found() {
    let line = "see [a](b.md#c), [d](https://e), `crates/x/y.rs`, `benches/runs/<date>` and `cargo test`";
    assert_eq!(links(line).collect::<Vec<_>>(), ["b.md"]);
    assert_eq!(paths(line).collect::<Vec<_>>(), ["crates/x/y.rs"]);
}
