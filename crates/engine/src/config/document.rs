//! docs/config.md, from the table.

use super::{Directive, Kind, table::DIRECTIVES};
use std::fmt::Write;

/// What stands above the directives.
const HEAD: &str = "\
# Configuration

Written from the table of directives (`crates/engine/src/config/table.rs`); a test holds the two together.

```sh
corelane [FILE] [--directive value …]
```

A directive stands on a line of a file in the form of `redis.conf`, its values behind it, or on the command line, under the same name;
the command line goes before the file. In a file, `#` begins a comment line, values may stand in double quotes with escapes
(`\\n`, `\\\"`, `\\x41`) or in single ones, and `include FILE` reads another file at that place, or with a pattern
(`include /etc/corelane.d/*.conf`) all files that there are of it, in the order of their names. `-` in place of the file is the standard input. The last
line of a directive counts, but lines of `save` add up, and `client-output-buffer-limit` changes the classes that it names. An
unknown directive is an error. `rename-command NAME NEW` gives a command another name, `rename-command NAME \"\"` forbids it.
`--check-config` looks whether a configuration makes sense, and whether this machine has the CPUs for it: exit code 0, or 2 and a
sentence. Values, passwords too, may be any bytes (`\\xff` in double quotes). `CONFIG GET` and `CONFIG SET` read and change
directives while the server runs, on all shards or on none; `CONFIG REWRITE` writes them into the file.

Amounts of memory are bytes, or have a unit: `1k` is 1000 bytes and `1kb` 1024, likewise `m`, `mb`, `g`, `gb`.

| mark | meaning |
|---|---|
| start | set when the server starts, and not later |
| protected | `CONFIG SET` needs `enable-protected-configs` |
| secret | its value is not logged |
";

/// The whole text.
pub fn document() -> String {
    let mut text = HEAD.to_owned();
    section(&mut text, "In force", "", |directive| !directive.idle && !directive.ours);
    section(&mut text, "Of corelane alone", "", |directive| directive.ours);
    let without = "Redis or Valkey know these. They can be set and read, so that files and tools for those work here; they change nothing, \
                   and the server says so in one warning. `appendonly yes`, `cluster-enabled yes` and `replicaof` with a server are refused.\n\n";
    section(&mut text, "Without effect here", without, |directive| directive.idle);
    text.push_str("\n## Other names\n\n| name | stands for |\n|---|---|\n");
    for directive in DIRECTIVES {
        if let Some(target) = directive.alias_of {
            line(&mut text, format_args!("| `{}` | `{target}` |", directive.name));
        }
    }
    text
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{content}");
}

fn section(text: &mut String, title: &str, intro: &str, belongs: fn(&Directive) -> bool) {
    line(
        text,
        format_args!(
            "\n## {title}\n\n{intro}| directive | meaning and values | default | marks |\n|---|---|---|---|"
        ),
    );
    for directive in DIRECTIVES.iter().filter(|known| known.alias_of.is_none() && belongs(known)) {
        let default = match directive.default {
            "" => "none".to_owned(),
            default => format!("`{default}`"),
        };
        let values = values(directive.kind).replace('|', "\\|");
        let meaning = directive.meaning().map_or_else(String::new, |meaning| format!("{meaning} "));
        let what = format!("{meaning}({values})");
        line(text, format_args!("| `{}` | {what} | {default} | {} |", directive.name, marks(directive)));
    }
}

fn values(kind: Kind) -> String {
    let open =
        |bound: i64, end: i64, text: &str| if bound == end { text.to_owned() } else { bound.to_string() };
    match kind {
        Kind::Bool => "`yes` or `no`".to_owned(),
        Kind::Int { min, max } => format!("{} to {}", open(min, i64::MIN, "any"), open(max, i64::MAX, "any")),
        Kind::Octal => "octal, up to 777".to_owned(),
        Kind::Bytes { min, max } => format!("bytes, {} to {}", min, open(max, i64::MAX, "any")),
        Kind::BytesOrPercent => "bytes, or a share such as `5%`".to_owned(),
        Kind::Enum(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Words(words) => {
            format!("some of {}", words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "))
        }
        Kind::Text => "text".to_owned(),
        Kind::Special(_) => "a form of its own".to_owned(),
    }
}

fn marks(directive: &Directive) -> String {
    let marks =
        [(directive.fixed, "start"), (directive.protected, "protected"), (directive.secret, "secret")];
    marks.iter().filter(|(has, _)| *has).map(|(_, mark)| *mark).collect::<Vec<_>>().join(", ")
}
