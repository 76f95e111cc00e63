//! What `corelane stat` prints for people: lists and tables, for a terminal or in Markdown.

use std::fmt::Write;

/// A part of a look at a server.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) title: String,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// A mark or nothing, a name, a value.
    List(Vec<[String; 3]>),
    Table {
        head: Vec<&'static str>,
        rows: Vec<Vec<String>>,
    },
    /// Why there is nothing.
    Words(String),
}

impl Part {
    pub(super) fn list(title: String, rows: Vec<[String; 3]>) -> Self {
        Self { title, content: Content::List(rows) }
    }
}

/// Parts below the server's name and, if it is given, the time.
pub(super) fn plain(name: &str, time: Option<&str>, parts: &[Part]) -> String {
    let mut out = time.map_or_else(|| format!("{name}\n"), |time| format!("{name}, {time}\n"));
    for Part { title, content } in parts {
        let _ = writeln!(out, "\n{title}");
        match content {
            Content::List(rows) => {
                for [mark, name, value] in rows {
                    let _ = writeln!(out, "{mark:<1} {name:<36} {value}");
                }
            }
            Content::Table { head, rows } => out.push_str(&table(head, rows)),
            Content::Words(words) => {
                let _ = writeln!(out, "  {words}");
            }
        }
    }
    out
}

/// The same in Markdown.
pub(super) fn markdown(name: &str, time: &str, parts: &[Part]) -> String {
    let mut out = format!("# {name}\n\n{time}\n");
    let cell = |text: &str| text.replace('|', "\\|");
    let rows_of = |head: &[&str], rows: &mut dyn Iterator<Item = Vec<String>>| {
        let mut lines = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
        for row in rows {
            let cells: Vec<String> = row.iter().map(|text| cell(text)).collect();
            let _ = writeln!(lines, "| {} |", cells.join(" | "));
        }
        lines
    };
    for Part { title, content } in parts {
        let lines = match content {
            Content::List(rows) if rows.iter().any(|[mark, ..]| !mark.is_empty()) => {
                rows_of(&["", "name", "value"], &mut rows.iter().map(|row| row.to_vec()))
            }
            Content::List(rows) => rows_of(&["name", "value"], &mut rows.iter().map(|row| row[1..].to_vec())),
            Content::Table { head, rows } => rows_of(head, &mut rows.iter().cloned()),
            Content::Words(words) => format!("{words}\n"),
        };
        let _ = write!(out, "\n## {title}\n\n{lines}");
    }
    out
}

/// Columns as wide as their widest cell, numbers to the right.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        for (cell, width) in cells.zip(&widths) {
            let is_number = cell.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
            let _ = if is_number { write!(out, "  {cell:>width$}") } else { write!(out, "  {cell:<width$}") };
        }
        let end = out.trim_end().len();
        out.truncate(end);
        out.push('\n');
    };
    line(&mut head.iter().copied());
    rows.iter().for_each(|row| line(&mut row.iter().map(String::as_str)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_wide_as_their_cells() {
        let rows = [vec!["1".to_owned(), "127.0.0.1:5".to_owned()], vec!["12".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["id", "peer"], &rows), "  id  peer\n   1  127.0.0.1:5\n  12  x\n");
    }

    #[test]
    fn lists_and_tables_are_written_in_both_forms() {
        let cells = |cells: [&str; 3]| cells.map(str::to_owned);
        let parts = [
            Part::list(
                "configuration".to_owned(),
                vec![cells(["*", "timeout", "7"]), cells(["", "port", "1|2"])],
            ),
            Part::list("stats".to_owned(), vec![cells(["", "hits", "12  +3/s"])]),
            Part {
                title: "shards".to_owned(),
                content: Content::Table {
                    head: vec!["shard", "keys"],
                    rows: vec![vec!["0".to_owned(), "9".to_owned()]],
                },
            },
            Part { title: "connections".to_owned(), content: Content::Words("none".to_owned()) },
        ];
        let space = " ".repeat(30);
        assert_eq!(
            plain("a server", None, &parts),
            format!(
                "a server\n\nconfiguration\n* timeout{space}7\n  port   {space}1|2\n\nstats\n  hits   {space}12  +3/s\n\n\
                 shards\n  shard  keys\n      0     9\n\nconnections\n  none\n"
            )
        );
        assert_eq!(
            markdown("a server", "now", &parts),
            "# a server\n\nnow\n\n## configuration\n\n|  | name | value |\n|---|---|---|\n| * | timeout | 7 |\n\
             |  | port | 1\\|2 |\n\n## stats\n\n| name | value |\n|---|---|\n| hits | 12  +3/s |\n\n## shards\n\n\
             | shard | keys |\n|---|---|\n| 0 | 9 |\n\n## connections\n\nnone\n"
        );
    }
}
