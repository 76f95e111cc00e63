//! Values as text: what each kind accepts, with Valkey's sentences for what it does not.

use super::Kind;

/// The units of amounts of memory: `1k` is 1000 bytes, `1kb` 1024, and so on.
const UNITS: [(&str, u64); 8] = [
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("k", 1000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("b", 1),
    ("", 1),
];

/// An amount of memory in bytes, as redis.conf writes it. No digits are 0.
pub(crate) fn amount(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, size) = UNITS.iter().find_map(|(unit, size)| Some((lower.strip_suffix(unit)?, size)))?;
    if digits.is_empty() {
        return Some(0);
    }
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse::<u64>().ok()?.checked_mul(*size))?
}

fn within(value: i128, min: i64, max: i64) -> Result<String, String> {
    if (i128::from(min)..=i128::from(max)).contains(&value) {
        Ok(value.to_string())
    } else {
        Err(format!("argument must be between {min} and {max} inclusive"))
    }
}

fn word(words: &[&str], text: &str) -> Result<String, String> {
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(text));
    found
        .map(|word| (*word).to_owned())
        .ok_or_else(|| format!("argument(s) must be one of the following: {}", words.join(", ")))
}

/// Brings a value into its usual form.
pub(super) fn parse(kind: Kind, text: &str) -> Result<String, String> {
    match kind {
        Kind::Bool => word(&["yes", "no"], text).map_err(|_| "argument must be 'yes' or 'no'".to_owned()),
        Kind::Int { min, max } => match crate::args::parse_int(text.as_bytes()) {
            Some(value) => within(value.into(), min, max),
            None => Err("argument couldn't be parsed into an integer".to_owned()),
        },
        Kind::Octal => match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 => Ok(format!("{mode:o}")),
            Ok(_) => Err("argument must be between 0 and 777 inclusive".to_owned()),
            Err(_) => Err("argument couldn't be parsed as an octal number".to_owned()),
        },
        Kind::Bytes { min, max } => {
            // Below nothing there are no units.
            let negative = || crate::args::parse_int(text.as_bytes()).filter(|_| min < 0).map(i128::from);
            let value = amount(text).map(i128::from).or_else(negative);
            within(value.ok_or_else(|| "argument must be a memory value".to_owned())?, min, max)
        }
        Kind::BytesOrPercent => {
            let percent = text.strip_suffix('%').and_then(|digits| crate::args::parse_int(digits.as_bytes()));
            match percent {
                Some(0) => Ok("0".to_owned()),
                Some(1..=100) => Ok(text.to_owned()),
                Some(101..) => Err("percentage argument must be less or equal to 100".to_owned()),
                Some(_) => Err("argument must be a memory or percent value".to_owned()),
                None => amount(text)
                    .filter(|value| i64::try_from(*value).is_ok())
                    .map(|value| value.to_string())
                    .ok_or_else(|| "argument must be a memory or percent value".to_owned()),
            }
        }
        Kind::Enum(words) => word(words, text),
        Kind::Words(words) => {
            let found: Result<Vec<String>, String> = text.split(' ').map(|text| word(words, text)).collect();
            let found = found?;
            let kept: Vec<&str> =
                words[1..].iter().copied().filter(|word| found.iter().any(|found| found == word)).collect();
            Ok(if kept.is_empty() { words[0].to_owned() } else { kept.join(" ") })
        }
        Kind::Text => Ok(text.to_owned()),
        Kind::Special(parse) => parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_have_units() {
        for (text, expected) in [
            ("1k", Some(1000)),
            ("1kb", Some(1024)),
            ("2MB", Some(2 << 20)),
            ("3g", Some(3_000_000_000)),
            ("7b", Some(7)),
            ("8", Some(8)),
            ("", Some(0)),
            ("kb", Some(0)),
            ("1tb", None),
            ("-1", None),
            ("1 kb", None),
            ("99999999999gb", None),
        ] {
            assert_eq!(amount(text), expected, "{text}");
        }
    }

    #[test]
    fn each_kind_says_what_it_wants() {
        for (kind, text, expected) in [
            (Kind::Bool, "YES", Ok("yes")),
            (Kind::Bool, "on", Err("argument must be 'yes' or 'no'")),
            (Kind::Int { min: 0, max: 9 }, "9", Ok("9")),
            (Kind::Int { min: 0, max: 9 }, "10", Err("argument must be between 0 and 9 inclusive")),
            (Kind::Int { min: 0, max: 9 }, "x", Err("argument couldn't be parsed into an integer")),
            (Kind::Octal, "0770", Ok("770")),
            (Kind::Bytes { min: -1, max: 9 }, "-1", Ok("-1")),
            (Kind::Bytes { min: -1, max: 9 }, "-1b", Err("argument must be a memory value")),
            (Kind::Bytes { min: -1, max: 9 }, "-2", Err("argument must be between -1 and 9 inclusive")),
            (
                Kind::Bytes { min: 0, max: 9 },
                "9223372036854775808",
                Err("argument must be between 0 and 9 inclusive"),
            ),
            (Kind::BytesOrPercent, "5%", Ok("5%")),
            (Kind::BytesOrPercent, "101%", Err("percentage argument must be less or equal to 100")),
            (Kind::Enum(&["a", "b"]), "B", Ok("b")),
            (Kind::Enum(&["a", "b"]), "", Err("argument(s) must be one of the following: a, b")),
            (Kind::Words(&["none", "a", "b"]), "b a none b", Ok("a b")),
            (Kind::Words(&["none", "a", "b"]), "none", Ok("none")),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(parse(kind, text), expected, "{kind:?} {text}");
        }
    }
}
