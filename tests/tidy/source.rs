//! Rust source as the checks see it: with and without comments and literals, and where its functions begin and end.
//!
//! A scanner, not a parser: it knows comments, strings, characters and brackets, which is all that the checks need.

use std::fs;
use std::path::Path;

/// One Rust file of the repository.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the repository, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments and literals blanked out: same length in characters, same lines.
    pub(crate) code: String,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// From `fn` to the closing brace, both included.
    pub(crate) lines: usize,
}

impl Source {
    pub(crate) fn read(root: &Path, path: String) -> Self {
        let text = fs::read_to_string(root.join(&path)).expect("a file that was just listed");
        Self::new(path, text)
    }

    pub(crate) fn new(path: String, text: String) -> Self {
        let code = blank(&text);
        Self { path, text, code }
    }

    /// Numbers of the lines whose code has `word` as a whole word.
    pub(crate) fn lines_with_word(&self, word: &str) -> Vec<usize> {
        let has = |line: &str| {
            line.match_indices(word).any(|(at, _)| {
                let part = |letter: char| letter.is_alphanumeric() || letter == '_';
                !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part)
            })
        };
        numbers(&self.code, has)
    }

    /// Numbers of the lines whose code contains `part`.
    pub(crate) fn lines_with(&self, part: &str) -> Vec<usize> {
        numbers(&self.code, |line| line.contains(part))
    }

    /// The functions with a body, in order.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let letters: Vec<char> = self.code.chars().collect();
        let mut functions = Vec::new();
        let mut line = 1;
        for (at, &letter) in letters.iter().enumerate() {
            if letter == '\n' {
                line += 1;
            }
            let Some(name) = function_name(&letters, at) else { continue };
            if let Some(end) = body_end(&letters, at) {
                let lines = letters[at..end].iter().filter(|letter| **letter == '\n').count() + 1;
                functions.push(Function { name, line, lines });
            }
        }
        functions
    }
}

fn numbers(code: &str, wanted: impl Fn(&str) -> bool) -> Vec<usize> {
    code.lines().enumerate().filter(|(_, line)| wanted(line)).map(|(idx, _)| idx + 1).collect()
}

/// The name behind a `fn` that starts at `at`; `None` for anything else, function pointer types included.
fn function_name(letters: &[char], at: usize) -> Option<String> {
    let part = |letter: &char| letter.is_alphanumeric() || *letter == '_';
    if letters[at..].get(..3)? != ['f', 'n', ' '] || at > 0 && part(&letters[at - 1]) {
        return None;
    }
    let name: String = letters[at + 3..].iter().take_while(|letter| part(letter)).collect();
    (!name.is_empty()).then_some(name)
}

/// Index of the brace that closes the body of the function at `at`; `None` for a declaration without a body.
fn body_end(letters: &[char], at: usize) -> Option<usize> {
    let mut brackets = 0_usize;
    let mut braces = 0_usize;
    for (idx, letter) in letters.iter().enumerate().skip(at) {
        match letter {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if brackets == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(idx);
                }
            }
            _ => {}
        }
    }
    None
}

/// Replaces comments and the insides of literals with blanks, line ends excepted.
fn blank(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < letters.len() {
        let end = literal_end(&letters, at);
        if end == at {
            code.push(letters[at]);
            at += 1;
        } else {
            code.extend(letters[at..end].iter().map(|letter| if *letter == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// Where the comment or literal that starts at `at` ends; `at` itself where none starts.
fn literal_end(letters: &[char], at: usize) -> usize {
    let rest = &letters[at..];
    match rest {
        ['/', '/', ..] => {
            rest.iter().position(|letter| *letter == '\n').map_or(letters.len(), |length| at + length)
        }
        ['/', '*', ..] => block_comment_end(letters, at),
        ['"', ..] => quoted_end(letters, at + 1, '"'),
        ['r', '"' | '#', ..] if !continues_a_name(letters, at) => raw_string_end(letters, at),
        ['\'', '\\', ..] => quoted_end(letters, at + 1, '\''),
        ['\'', _, '\'', ..] => at + 3,
        _ => at,
    }
}

/// True where `at` lies within an identifier; the `b` of a byte literal does not count.
fn continues_a_name(letters: &[char], at: usize) -> bool {
    let part = |idx: usize| letters[idx].is_alphanumeric() || letters[idx] == '_';
    match at {
        0 => false,
        1 => part(0) && letters[0] != 'b',
        _ => part(at - 1) && (letters[at - 1] != 'b' || part(at - 2)),
    }
}

/// Block comments nest.
fn block_comment_end(letters: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < letters.len() {
        match letters[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted_end(letters: &[char], start: usize, quote: char) -> usize {
    let mut at = start;
    while at < letters.len() && letters[at] != quote {
        at += if letters[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(letters.len())
}

/// `at` where what looks like the start of a raw string is a raw identifier.
fn raw_string_end(letters: &[char], at: usize) -> usize {
    let hashes = letters[at + 1..].iter().take_while(|letter| **letter == '#').count();
    let open = at + 1 + hashes;
    if letters.get(open) != Some(&'"') {
        return at;
    }
    let closing = |idx: usize| {
        letters[idx] == '"'
            && letters[idx + 1..].iter().take_while(|letter| **letter == '#').count() >= hashes
    };
    (open + 1..letters.len()).find(|idx| closing(*idx)).map_or(letters.len(), |idx| idx + 1 + hashes)
}

#[test]
fn comments_and_literals_are_blanked() {
    let cases = [
        ("a // b\nc", "a     \nc"),
        ("a /* /* b */ \n */ c", "a            \n    c"),
        (r#"f("x \" y") + 'z' + '\'' + b'"'"#, "f(        ) +     +      + b   "),
        (r##"r#"a "b" c"# d"##, "             d"),
        ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
        ("for r in 0..1 { r#type }", "for r in 0..1 { r#type }"),
        ("br\"x\" bar\"y\"", "b     bar   "),
    ];
    for (text, expected) in cases {
        assert_eq!(blank(text), expected, "{text}");
    }
}

#[test]
fn functions_are_found_with_their_sizes() {
    let text = "trait T {\n    fn declared(&self) -> [u8; 4];\n}\nfn one() { fn_like(); }\n\
                pub const fn two(f: fn(u8) -> u8) -> u8 {\n    if true { 1 } else { \"}\".len() }\n}\n";
    let source = Source::new("x.rs".to_owned(), text.to_owned());
    let expected = [
        Function { name: "one".to_owned(), line: 4, lines: 1 },
        Function { name: "two".to_owned(), line: 5, lines: 3 },
    ];
    assert_eq!(source.functions(), expected);
}
