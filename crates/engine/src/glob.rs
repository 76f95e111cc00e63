//! Glob-style patterns, as in KEYS, SCAN and PSUBSCRIBE: what Redis's `stringmatchlen` matches, quirks included.
//!
//! ```text
//! *       any bytes, also none          [a-z^]   one of a class          \x    x itself
//! ?       any one byte                  [^ab]    one that is not         a class that is not closed ends the pattern
//! ```
//!
//! Every element but `*` takes exactly one byte. So a match of what stands between two stars may as well be the first
//! one: going back to the latest star is enough, and the time is at most length of pattern times length of text.

/// Stars in a row count as one. Redis follows no more than these, and a pattern that needs more matches nothing.
const STARS_MAX: usize = 1000;

/// Whether a pattern matches all of `text`; with `nocase`, ASCII letters match in either case. Nothing but the empty
/// pattern matches an empty text; that KEYS and SCAN take `*` for "all keys" is theirs to see to.
pub fn glob_match(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut next, mut at) = (0, 0);
    let mut stars = 0;
    // Behind the latest star, and where in the text what follows it has been tried last.
    let mut retry = None;
    while at < text.len() {
        if pattern.get(next) == Some(&b'*') {
            next = behind_stars(pattern, next);
            stars += 1;
            if next == pattern.len() || stars > STARS_MAX {
                return next == pattern.len();
            }
            retry = Some((next, at));
        } else if let Some(behind) = element(&pattern[next..], text[at], nocase) {
            next += behind;
            at += 1;
        } else {
            let Some((behind_star, tried)) = retry else { return false };
            (next, at) = (behind_star, tried + 1);
            retry = Some((next, at));
        }
    }
    // Later starts leave even fewer bytes for what is left of the pattern.
    behind_stars(pattern, next) == pattern.len()
}

fn behind_stars(pattern: &[u8], from: usize) -> usize {
    from + pattern[from..].iter().take_while(|byte| **byte == b'*').count()
}

/// Matches the first element of a pattern, which is no star, with one byte. Returns the element's length if it matches.
fn element(pattern: &[u8], byte: u8, nocase: bool) -> Option<usize> {
    let (matches, len) = match *pattern {
        [] => (false, 0),
        [b'?', ..] => (true, 1),
        [b'[', ref class @ ..] => {
            let (matches, len) = match_class(class, byte, nocase);
            (matches, 1 + len)
        }
        [b'\\', escaped, ..] => (same(escaped, byte, nocase), 2),
        [literal, ..] => (same(literal, byte, nocase), 1),
    };
    matches.then_some(len)
}

/// Matches a class, given from behind its `[`. Returns its length with the `]`, too.
fn match_class(class: &[u8], byte: u8, nocase: bool) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut matches = false;
    loop {
        at += match class[at..] {
            // Only here does case count always.
            [b'\\', escaped, ..] => {
                matches |= escaped == byte;
                2
            }
            [b']', ..] => return (matches != negated, at + 1),
            [] => return (matches != negated, at),
            // Also where `last` is the bracket that was meant to close the class.
            [first, b'-', last, ..] => {
                matches |= in_range(first, last, byte, nocase);
                3
            }
            [literal, ..] => {
                matches |= same(literal, byte, nocase);
                1
            }
        }
    }
}

/// Bytes are signed here, as `char` is where Redis mostly runs, and the ends are put in order before their case goes.
fn in_range(first: u8, last: u8, byte: u8, nocase: bool) -> bool {
    let (first, last) = if first as i8 > last as i8 { (last, first) } else { (first, last) };
    let signed = |byte: u8| (if nocase { byte.to_ascii_lowercase() } else { byte }) as i8;
    (signed(first)..=signed(last)).contains(&signed(byte))
}

fn same(a: u8, b: u8, nocase: bool) -> bool {
    if nocase { a.eq_ignore_ascii_case(&b) } else { a == b }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(nocase: bool, pattern: &[u8], matching: &[&[u8]], others: &[&[u8]]) {
        let expected =
            matching.iter().map(|text| (text, true)).chain(others.iter().map(|text| (text, false)));
        for (text, matches) in expected {
            let found = glob_match(pattern, text, nocase);
            assert_eq!(found, matches, "{} on {}", pattern.escape_ascii(), text.escape_ascii());
        }
    }

    /// The tables with case are what KEYS of a real Valkey 9.1 answers.
    #[test]
    fn stars_and_question_marks() {
        check(false, b"hello", &[b"hello"], &[b"hell", b"hello!", b"Hello", b""]);
        check(false, b"h?llo", &[b"hello", b"h?llo"], &[b"hllo", b"heello"]);
        check(false, b"h*llo", &[b"hllo", b"heeello", b"hllollo"], &[b"ello", b"hll"]);
        check(false, b"*a*b", &[b"ab", b"aab", b"xaxbxb"], &[b"ba", b"abx"]);
        check(false, b"a**", &[b"a", b"ab"], &[b"", b"b"]);
        check(false, b"**", &[b"a"], &[b""]);
        check(false, b"", &[b""], &[b"a"]);
        check(false, b"a*?", &[b"ab", b"abc"], &[b"a"]);
        check(false, b"*\0*", &[b"\0", b"x\0y"], &[b"0"]);
    }

    #[test]
    fn classes() {
        check(false, b"h[ae]llo", &[b"hello", b"hallo"], &[b"hillo", b"hllo"]);
        check(false, b"h[^e]llo", &[b"hallo", b"h^llo"], &[b"hello"]);
        check(false, b"[a-c]", &[b"a", b"b", b"c"], &[b"d", b"-"]);
        check(false, b"[c-a]", &[b"a", b"b", b"c"], &[b"d"]);
        check(false, b"[a^]", &[b"a", b"^"], &[b"b"]);
        check(false, b"[\\]-]", &[b"]", b"-"], &[b"\\"]);
        check(false, b"[]a", &[], &[b"a", b"]a", b"]"]);
        check(false, b"[^]a", &[b"xa"], &[b"a", b"x"]);
        check(false, b"[\x80-a]", &[b"\x80", b"\xff", b"\0", b"a"], &[b"b"]);
    }

    #[test]
    fn classes_that_are_not_closed() {
        check(false, b"[", &[], &[b"[", b"a"]);
        check(false, b"[^", &[b"a", b"["], &[b"", b"ab"]);
        check(false, b"[ab", &[b"a", b"b"], &[b"ab", b"["]);
        check(false, b"[a-", &[b"a", b"-"], &[b"b"]);
        check(false, b"[a-]", &[b"]", b"^", b"a"], &[b"-", b"b"]);
        check(false, b"[a\\", &[b"a", b"\\"], &[b"a\\"]);
    }

    #[test]
    fn escapes() {
        check(false, b"\\*", &[b"*"], &[b"a", b"\\*"]);
        check(false, b"a\\?b", &[b"a?b"], &[b"axb"]);
        check(false, b"\\[a]", &[b"[a]"], &[b"a"]);
        check(false, b"a\\", &[b"a\\"], &[b"a"]);
    }

    #[test]
    fn without_case() {
        check(true, b"HeL*", &[b"hello", b"HELP"], &[b"jello"]);
        check(true, b"[A-C]x", &[b"bX", b"Bx"], &[b"dx"]);
        check(true, b"[aB]", &[b"A", b"b"], &[b"c"]);
        check(true, b"[\\a]", &[b"a"], &[b"A"]);
        check(true, b"[Z-a]", &[], &[b"z", b"Z", b"a", b"_"]);
    }

    #[test]
    fn a_pattern_of_many_stars_costs_no_more_than_pattern_times_text() {
        let (text, stars) = (vec![b'a'; 20_000], b"a*".repeat(500));
        assert!(!glob_match(&[&stars[..], b"b"].concat(), &text, false));
        assert!(glob_match(&[&stars[..], b"a"].concat(), &text, false));
        assert!(!glob_match(&[&stars[..], b"?"].concat(), &text[..500], false));
    }

    #[test]
    fn no_more_than_a_thousand_stars_are_followed() {
        let text = vec![b'a'; 3000];
        assert!(glob_match(&[&b"a*".repeat(1000)[..], b"a"].concat(), &text, false));
        assert!(!glob_match(&[&b"a*".repeat(1001)[..], b"a"].concat(), &text, false));
        assert!(glob_match(&b"a*".repeat(1001), &text, false), "the last star needs no following");
        assert!(!glob_match(&b"a*".repeat(1002), &text, false));
    }
}
