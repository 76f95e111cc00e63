//! What the command line says of distributions, ratios and files of commands.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corelane_load::{Keys, Sizes};

use crate::latency::duration;

/// The largest value that can be asked for: what servers take.
const SIZE_MAX: usize = 512 << 20;

/// Requests per second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "not a number above 0".to_owned())
}

/// As [`duration`], or 0.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration(text) }
}

/// `uniform`, `zipf`, `zipf:1.2`, `gaussian`, `gaussian:0.5,0.1`, `sequential`.
pub(super) fn keys(text: &str) -> Result<Keys, String> {
    let (name, numbers) = text.split_once(':').unwrap_or((text, ""));
    let numbers: Option<Vec<f64>> = match numbers {
        "" => Some(Vec::new()),
        numbers => numbers.split(',').map(|number| number.parse().ok()).collect(),
    };
    match (name, numbers.as_deref()) {
        ("uniform", Some([])) => Ok(Keys::Uniform),
        ("sequential", Some([])) => Ok(Keys::Sequential),
        ("zipf", Some([])) => Ok(Keys::Zipf(0.99)),
        ("zipf", Some([exponent])) if (0.01..=10.0).contains(exponent) => Ok(Keys::Zipf(*exponent)),
        ("gaussian", Some([])) => Ok(Keys::Gaussian { mean: 0.5, deviation: 1.0 / 6.0 }),
        ("gaussian", Some([mean, deviation]))
            if (0.0..=1.0).contains(mean) && (1e-9..=1.0).contains(deviation) =>
        {
            Ok(Keys::Gaussian { mean: *mean, deviation: *deviation })
        }
        _ => Err("not uniform, zipf[:EXPONENT], gaussian[:MEAN,DEVIATION] (parts of the range, 0 to 1) or \
                  sequential"
            .to_owned()),
    }
}

/// `100`, `10-500`, `16:9,4096:1`, `gaussian:1000,200`.
pub(super) fn sizes(text: &str) -> Result<Sizes, String> {
    parse_sizes(text)
        .filter(|sizes| (1..=SIZE_MAX).contains(&sizes.max()))
        .ok_or_else(|| "not FROM-TO, SIZE:WEIGHT,… or gaussian:MEAN,DEVIATION, in bytes".to_owned())
}

fn parse_sizes(text: &str) -> Option<Sizes> {
    if let Some(numbers) = text.strip_prefix("gaussian:") {
        let (mean, deviation) = numbers.split_once(',')?;
        let (mean, deviation): (f64, f64) = (mean.parse().ok()?, deviation.parse().ok()?);
        return (mean >= 1.0 && (0.0..1e9).contains(&deviation)).then_some(Sizes::Gaussian(mean, deviation));
    }
    if text.contains(':') {
        let one = |pair: &str| {
            let (size, weight) = pair.split_once(':')?;
            Some((size.parse().ok()?, weight.parse().ok().filter(|weight: &u32| *weight > 0)?))
        };
        return Some(Sizes::Weighted(text.split(',').map(one).collect::<Option<_>>()?));
    }
    match text.split_once('-') {
        Some((from, to)) => {
            let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
            (from <= to).then_some(Sizes::Uniform(from..=to))
        }
        None => Some(Sizes::Fixed(text.parse().ok()?)),
    }
}

/// `9:1`.
pub(super) fn ratio(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(':').and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
    let parts =
        parts.filter(|(one, other): &(u32, u32)| *one < 1 << 30 && *other < 1 << 30 && one + other > 0);
    parts.ok_or_else(|| "not two numbers such as 9:1".to_owned())
}

/// A line for each command: its weight, then its words. `#` begins a comment. Words may be in double quotes, with `\"`, `\\`,
/// `\n`, `\r`, `\t` and `\xHH` in them.
///
/// # Errors
/// A line is something else, or there is none.
pub(super) fn commands(text: &str) -> Result<Vec<(Vec<Vec<u8>>, u32)>> {
    let mut commands = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (weight, command) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let weight = weight.parse().ok().filter(|weight: &u32| (1..1 << 30).contains(weight));
        let weight = weight.with_context(|| {
            format!("line {}: it does not begin with a weight, a whole number above 0", index + 1)
        })?;
        let words = words(command).with_context(|| format!("line {}", index + 1))?;
        ensure!(!words.is_empty(), "line {}: no command behind the weight", index + 1);
        commands.push((words, weight));
    }
    ensure!(!commands.is_empty(), "there is no command");
    Ok(commands)
}

fn words(line: &str) -> Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let word;
        (word, rest) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest.as_bytes()[..end].to_vec(), &rest[end..])
            }
        };
        words.push(word);
        rest = rest.trim_start();
    }
    Ok(words)
}

/// What stands before the closing quote, and the rest behind it.
fn unquoted(text: &str) -> Result<(Vec<u8>, &str)> {
    let mut word = Vec::new();
    let mut rest = text.char_indices();
    while let Some((at, letter)) = rest.next() {
        match letter {
            '"' => return Ok((word, &text[at + 1..])),
            '\\' => word.push(match rest.next() {
                Some((_, 'n')) => b'\n',
                Some((_, 'r')) => b'\r',
                Some((_, 't')) => b'\t',
                Some((_, 'x')) => {
                    let mut digit = || rest.next().and_then(|(_, digit)| digit.to_digit(16));
                    let (Some(high), Some(low)) = (digit(), digit()) else {
                        bail!("\\x without two digits behind it")
                    };
                    (high * 16 + low) as u8
                }
                Some((_, mark @ ('"' | '\\'))) => mark as u8,
                _ => bail!("a \\ before something else than one of \" \\ n r t x"),
            }),
            letter => word.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bail!("a quote that does not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_read() {
        assert_eq!(keys("zipf:1.2"), Ok(Keys::Zipf(1.2)));
        assert_eq!(keys("gaussian:0.2,0.1"), Ok(Keys::Gaussian { mean: 0.2, deviation: 0.1 }));
        for bad in ["", "zipf:0", "zipf:x", "gaussian:2,1", "gaussian:0.5", "uniform:1", "normal"] {
            assert!(keys(bad).is_err(), "{bad}");
        }
        assert_eq!(sizes("10-20"), Ok(Sizes::Uniform(10..=20)));
        assert_eq!(sizes("16:9,4096:1"), Ok(Sizes::Weighted(vec![(16, 9), (4096, 1)])));
        assert_eq!(sizes("gaussian:100,10"), Ok(Sizes::Gaussian(100.0, 10.0)));
        for bad in ["", "0", "20-10", "16:0", "16:x", "gaussian:0,1", "1-9999999999", "-1"] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
        assert_eq!(ratio("9:1"), Ok((9, 1)));
        assert!(["9", "0:0", "-1:1", "a:b"].iter().all(|bad| ratio(bad).is_err()));
        assert!(["0", "-5", "x", "inf", "nan"].iter().all(|bad| rate(bad).is_err()));
    }

    #[test]
    fn files_of_commands_are_read() {
        let text = "# reads\n90 GET __rand_key__\n\n10  SET \"a \\\"b\\\" \\x00\" __data__ \n";
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let expected =
            [(words(&["GET", "__rand_key__"]), 90), (words(&["SET", "a \"b\" \0", "__data__"]), 10)];
        assert_eq!(commands(text).unwrap(), expected);
        for bad in ["", "GET x", "0 GET x", "5", "5 SET \"x", "5 SET \"\\q\"", "5 SET \"\\x1\""] {
            assert!(commands(bad).is_err(), "{bad}");
        }
    }
}
