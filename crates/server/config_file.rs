//! Configuration files in the form of redis.conf: a directive and its words on each line, comments, quotes, includes.

use std::io::Read;

use anyhow::{Context, Result, bail};
use corelane_engine::config::bytes;

/// Files that include each other end here.
const DEPTH_MAX: usize = 16;
/// U+FEFF.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// One directive as it stands in a file or on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Where it stands, for messages.
    pub(crate) place: String,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
}

/// The directives of a file; `-` is the standard input.
pub(crate) fn read(path: &str) -> Result<Vec<Line>> {
    let mut bytes = Vec::new();
    match path {
        "-" => std::io::stdin().read_to_end(&mut bytes).map(drop),
        _ => std::fs::read(path).map(|read| bytes = read),
    }
    .with_context(|| format!("cannot read the configuration file {path}"))?;
    lines_of(path, &bytes, 0)
}

/// The lines of a file without their ends, and without the mark of UTF-8 that some editors put in front.
pub(crate) fn lines(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = file.strip_prefix(UTF8_MARK).unwrap_or(file);
    text.split_inclusive(|&byte| byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    })
}

fn lines_of(path: &str, file: &[u8], depth: usize) -> Result<Vec<Line>> {
    let mut found = Vec::new();
    for (number, line) in lines(file).enumerate() {
        let place = format!("{path}, line {}", number + 1);
        let parsed = parse_line(&bytes::to_text(line)).with_context(|| place.clone())?;
        let Some((name, words)) = parsed else { continue };
        if name != "include" {
            found.push(Line { place, name, words });
            continue;
        }
        if depth == DEPTH_MAX {
            bail!("{place}: more than {DEPTH_MAX} files include each other; take out one `include`");
        }
        for path in included(&words).with_context(|| place.clone())? {
            let file = std::fs::read(&path)
                .with_context(|| format!("{place}: cannot read the configuration file {path}"))?;
            found.extend(lines_of(&path, &file, depth + 1)?);
        }
    }
    Ok(found)
}

/// The files that the words behind `include` name: one file, or with `*`, `?` or `[` those that there are, by name.
fn included(words: &[String]) -> Result<Vec<String>> {
    let [name] = words else { bail!("include takes one file, or a pattern of files") };
    if !name.contains(['*', '?', '[']) {
        return Ok(vec![name.clone()]);
    }
    // As in a shell: `*` ends at a `/`, and what begins with a dot is hidden.
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..Default::default()
    };
    let paths = glob::glob_with(name, options).with_context(|| format!("cannot read the pattern {name}"))?;
    paths.map(|path| Ok(path?.display().to_string())).collect()
}

/// Name and words of a line; `None` for one that says nothing.
pub(crate) fn parse_line(text: &str) -> Result<Option<(String, Vec<String>)>> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let mut words = split(text)?.into_iter();
    Ok(words.next().map(|name| (name.to_ascii_lowercase(), words.collect())))
}

/// Words as Redis splits them: in double quotes with escapes, in single quotes with `\'` alone.
///
/// # Errors
/// A quote that is not closed, or goes on behind its end.
pub(crate) fn split(text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.chars().peekable();
    loop {
        while rest.next_if(|letter| letter.is_whitespace()).is_some() {}
        let Some(&first) = rest.peek() else { return Ok(words) };
        let mut word = String::new();
        if first == '"' || first == '\'' {
            rest.next();
            quoted(&mut rest, first, &mut word)?;
            if rest.peek().is_some_and(|letter| !letter.is_whitespace()) {
                bail!("a closing quote must be followed by a space");
            }
        } else {
            while let Some(letter) = rest.next_if(|letter| !letter.is_whitespace()) {
                word.push(letter);
            }
        }
        // Bytes that were written one by one may make letters.
        words.push(bytes::to_text(&bytes::to_bytes(&word)));
    }
}

fn quoted(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, quote: char, word: &mut String) -> Result<()> {
    while let Some(letter) = rest.next() {
        match letter {
            _ if letter == quote => return Ok(()),
            '\\' if quote == '"' => match rest.next() {
                Some('x') => word.push(hexadecimal(rest)?),
                Some('a') => word.push('\u{7}'),
                Some('b') => word.push('\u{8}'),
                Some('n') => word.push('\n'),
                Some('r') => word.push('\r'),
                Some('t') => word.push('\t'),
                Some(other) => word.push(other),
                None => break,
            },
            '\\' if rest.next_if_eq(&'\'').is_some() => word.push('\''),
            _ => word.push(letter),
        }
    }
    bail!("a quote is not closed")
}

/// The byte behind `\x`, which is two digits.
fn hexadecimal(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<char> {
    let mut digit = || rest.next().and_then(|letter| letter.to_digit(16));
    match (digit(), digit()) {
        (Some(high), Some(low)) => Ok(bytes::letter((high * 16 + low) as u8)),
        _ => bail!("two hexadecimal digits have to follow \\x"),
    }
}

/// A word as it has to stand in a file to be read as it is.
pub(crate) fn quote(word: &str) -> String {
    let plain = !word.is_empty()
        && !word.contains(|letter: char| {
            letter.is_whitespace() || letter.is_control() || "\"'\\#".contains(letter)
        })
        && word.chars().all(|letter| bytes::byte_of(letter).is_none());
    if plain {
        return word.to_owned();
    }
    let mut text = String::from('"');
    for letter in word.chars() {
        match letter {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '"' | '\\' => text.extend(['\\', letter]),
            letter if let Some(byte) = bytes::byte_of(letter) => text.push_str(&format!("\\x{byte:02x}")),
            letter if letter.is_ascii_control() => text.push_str(&format!("\\x{:02x}", u32::from(letter))),
            _ => text.push(letter),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let (name, words) = parse_line(text).unwrap().unwrap();
        std::iter::once(name).chain(words).collect()
    }

    #[test]
    fn lines_are_words_and_quotes() {
        assert_eq!(words("  PORT   7000 "), ["port", "7000"]);
        assert_eq!(words(r#"requirepass "a \"b\" c""#), ["requirepass", r#"a "b" c"#]);
        assert_eq!(words(r"logfile 'it\'s \n'"), ["logfile", r"it's \n"]);
        assert_eq!(words(r#"save """#), ["save", ""]);
        assert_eq!(parse_line("# comment").unwrap(), None);
        assert_eq!(parse_line("   ").unwrap(), None);
        assert_eq!(words(r#"a "\x41\x7a" '\x41'"#), ["a", "Az", r"\x41"]);
        assert_eq!(words(r#"a "\xc3\xa4""#), ["a", "ä"]);
        assert_eq!(bytes::to_bytes(&words(r#"a "b\xff""#)[1]), &b"b\xff"[..]);
        assert!(parse_line(r#"a "\x4"#).is_err());
        assert!(parse_line(r#"a "b"#).is_err() && parse_line(r#"a "b"c"#).is_err());
    }

    #[test]
    fn files_are_included_by_name_or_by_pattern() {
        let dir = std::env::temp_dir().join(format!("corelane-includes-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        for (name, text) in
            [("b.conf", "port 2\n"), ("a.conf", "port 1\n"), (".c.conf", "port 3\n"), ("d.txt", "port 4\n")]
        {
            write(name, text);
        }
        let outer = dir.join("outer").display().to_string();
        let read_with = |text: &str| {
            write("outer", &text.replace("DIR", &dir.display().to_string()));
            let lines = read(&outer).map_err(|error| format!("{error:#}"))?;
            Ok::<_, String>(lines.into_iter().map(|line| line.words.join(" ")).collect::<Vec<_>>().join(","))
        };
        for (text, expected) in [
            ("include DIR/*.conf\nport 9", "1,2,9"),
            ("port 0\ninclude DIR/[bd].*", "0,2,4"),
            ("include DIR/d.txt", "4"),
            ("include \"DIR/?.nothing\"", ""),
        ] {
            assert_eq!(read_with(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("\ninclude DIR/none.conf", "outer, line 2: cannot read the configuration file "),
            ("include", "outer, line 1: include takes one file"),
            ("include DIR/a.conf DIR/b.conf", "outer, line 1: include takes one file"),
            ("include DIR/[a", "outer, line 1: cannot read the pattern "),
            ("include DIR/outer", "outer, line 1: more than 16 files include each other"),
        ] {
            let error = read_with(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_quoted_is_read_back() {
        for word in
            ["plain", "", "two words", "a\"b\\c", "line\nbreak", "#no comment", "it's", "\u{7}\u{1}", "ä ö"]
        {
            assert_eq!(words(&format!("x {}", quote(word))), ["x", word]);
        }
    }
}
