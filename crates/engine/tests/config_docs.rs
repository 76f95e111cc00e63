//! docs/config.md is what the table of directives gives.

use std::path::Path;

use corelane_engine::config::{Directive, document};

#[test]
fn the_page_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let text = document();
    if std::env::var_os("CORELANE_BLESS").is_some() {
        std::fs::write(&path, &text).expect("docs/config.md can be written");
    }
    // A packaged crate has no docs beside it.
    let Ok(page) = std::fs::read_to_string(&path) else {
        assert!(
            !Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").exists(),
            "docs/config.md is missing"
        );
        return;
    };
    assert!(
        page == text,
        "write docs/config.md anew: CORELANE_BLESS=1 cargo test -p corelane-engine --test config_docs"
    );
}

#[test]
fn every_directive_stands_in_it_once_and_each_with_an_effect_says_which() {
    let text = document();
    for directive in Directive::all() {
        let row = format!("\n| `{}` |", directive.name);
        assert_eq!(text.matches(&row).count(), 1, "{row}");
        let explained = directive.idle || directive.alias_of.is_some() || directive.meaning().is_some();
        assert!(explained, "{} has an effect, and config/meaning.rs does not say which", directive.name);
    }
}
