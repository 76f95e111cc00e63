//! Directives whose values have a form of their own.

use super::Kind;
use super::value::amount;

/// The classes of clients that have limits, under all their names, in the order in which they are shown.
const CLASSES: [(&str, &str); 4] =
    [("normal", "normal"), ("slave", "slave"), ("replica", "slave"), ("pubsub", "pubsub")];

/// `class hard soft seconds` for some classes.
pub(super) fn output_limits(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let mut groups = Vec::new();
    for group in words.chunks_exact(4) {
        let class = CLASSES.iter().find(|(name, _)| name.eq_ignore_ascii_case(group[0]));
        let (_, class) = class
            .ok_or_else(|| "Invalid client class specified in buffer limit configuration.".to_owned())?;
        let limits = (amount(group[1]), amount(group[2]), group[3].parse::<u32>().ok());
        let (Some(hard), Some(soft), Some(seconds)) = limits else {
            return Err(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.".to_owned()
            );
        };
        groups.push(format!("{class} {hard} {soft} {seconds}"));
    }
    Ok(groups.join(" "))
}

/// The limits of `value` with those that `changes` names replaced; both in their usual form.
pub(super) fn with_output_limits(value: &str, changes: &str) -> String {
    let words: Vec<&str> = value.split(' ').collect();
    let changes: Vec<&str> = changes.split(' ').collect();
    let groups = words.chunks_exact(4).map(|group| {
        let changed = changes.chunks_exact(4).rev().find(|change| change[0] == group[0]);
        changed.unwrap_or(group).join(" ")
    });
    groups.collect::<Vec<_>>().join(" ")
}

/// Numbers from 0 to 100.
pub(super) fn percentiles(text: &str) -> Result<String, String> {
    let name = "latency-tracking-info-percentiles";
    let mut shown = Vec::new();
    for word in text.split(' ').filter(|_| !text.is_empty()) {
        let percent: f64 = word.parse().map_err(|_| format!("Invalid {name} parameters"))?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(format!("{name} parameters should sit between [0.0,100.0]"));
        }
        shown.push(percent.to_string());
    }
    Ok(shown.join(" "))
}

/// Letters for classes of keyspace events. `A` stands for most of them, and is shown for them.
pub(super) fn event_classes(text: &str) -> Result<String, String> {
    const ALL: &str = "g$lshzxetd";
    const ORDER: &str = "g$lshzxetdKEmn";
    let mut classes = String::new();
    for letter in text.chars() {
        match letter {
            'A' => classes.push_str(ALL),
            _ if ORDER.contains(letter) => classes.push(letter),
            _ => return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
        }
    }
    let has = |letter: char| classes.contains(letter);
    let all = ALL.chars().all(has);
    let mut shown: String = if all { "A".to_owned() } else { String::new() };
    shown.extend(ORDER.chars().filter(|letter| has(*letter) && !(all && ALL.contains(*letter))));
    Ok(shown)
}

/// Pairs of seconds and changes; nothing for no snapshots.
pub(super) fn save_points(text: &str) -> Result<String, String> {
    let invalid = || "Invalid save parameters".to_owned();
    if text.is_empty() {
        return Ok(String::new());
    }
    let numbers: Option<Vec<u32>> = text.split(' ').map(|word| word.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len().is_multiple_of(2)).ok_or_else(invalid)?;
    if numbers.chunks_exact(2).any(|pair| pair[0] == 0) {
        return Err(invalid());
    }
    Ok(numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
}

/// Three numbers for the master process, replicas and background children.
pub(super) fn oom_scores(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.len() != 3 {
        return Err("wrong number of arguments".to_owned());
    }
    let numbers: Option<Vec<i64>> = words.iter().map(|word| word.parse().ok()).collect();
    match numbers {
        Some(numbers) if numbers.iter().all(|number| (-2000..=2000).contains(number)) => Ok(words.join(" ")),
        _ => Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".to_owned()),
    }
}

/// A size that Valkey raises to its least without a word.
pub(super) fn backlog(text: &str) -> Result<String, String> {
    const LEAST: i64 = 16 << 10;
    let value = super::value::parse(Kind::Bytes { min: 1, max: i64::MAX }, text)?;
    Ok(value.parse::<i64>().map_or(value, |value| value.max(LEAST).to_string()))
}

/// Text in which variables stand in braces.
pub(super) fn title_template(text: &str) -> Result<String, String> {
    const VARIABLES: [&str; 7] =
        ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];
    let mut parts = text.split('{');
    let plain = parts.next().unwrap_or_default();
    let known = parts.all(|part| part.split_once('}').is_some_and(|(name, _)| VARIABLES.contains(&name)));
    // A title of its own is all that the first variable is, and it has none yet.
    let valid = known && (!plain.trim().is_empty() || text.contains('}')) && text != "{title}";
    let complaint = "template format is invalid or contains unknown variables";
    valid.then(|| text.to_owned()).ok_or_else(|| complaint.to_owned())
}

/// Nobody, since nothing is copied from others: who is told to follow another server must not serve data of its own instead.
pub(super) fn no_primary(text: &str) -> Result<String, String> {
    let nobody = text.is_empty() || text.eq_ignore_ascii_case("no one");
    nobody.then(String::new).ok_or_else(|| "this server is no replica of another".to_owned())
}

/// Never a port, since there is no RDMA.
pub(super) fn rdma_port(text: &str) -> Result<String, String> {
    let value = super::value::parse(Kind::Int { min: 0, max: 65_535 }, text)?;
    if value == "0" { Ok(value) } else { no_rdma(text) }
}

/// Never available.
pub(super) fn no_rdma(_: &str) -> Result<String, String> {
    Err("No RDMA building support.".to_owned())
}

/// An address, or nothing.
pub(super) fn ipv4(text: &str) -> Result<String, String> {
    let valid = text.is_empty() || text.parse::<core::net::Ipv4Addr>().is_ok();
    valid.then(|| text.to_owned()).ok_or_else(|| "Invalid IPv4 address".to_owned())
}

/// An address, or nothing.
pub(super) fn ipv6(text: &str) -> Result<String, String> {
    let valid = text.is_empty() || text.parse::<core::net::Ipv6Addr>().is_ok();
    valid.then(|| text.to_owned()).ok_or_else(|| "Invalid IPv6 address".to_owned())
}

/// Turns a second, which Valkey keeps within its bounds without a word.
pub(super) fn frequency(text: &str) -> Result<String, String> {
    let value = super::value::parse(Kind::Int { min: 0, max: 2_147_483_647 }, text)?;
    Ok(value.parse::<u32>().map_or(value, |value| value.clamp(1, 500).to_string()))
}

/// A locale that needs nothing installed.
pub(super) fn locale(text: &str) -> Result<String, String> {
    let valid = matches!(text, "" | "C" | "POSIX" | "C.UTF-8" | "C.utf8");
    valid.then(|| text.to_owned()).ok_or_else(|| "Invalid locale name".to_owned())
}

/// Addresses, one at least; one with a leading `-` may be missing.
pub(super) fn addresses(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let is_address =
        |word: &&str| word.strip_prefix('-').unwrap_or(word).parse::<core::net::IpAddr>().is_ok();
    match words.iter().all(is_address) && !words.is_empty() {
        true => Ok(words.join(" ")),
        false => Err("argument must be IP addresses".to_owned()),
    }
}

fn of_plain_letters(text: &str, complaint: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-./:_`".contains(&byte) || !byte.is_ascii();
    text.bytes().all(plain).then(|| text.to_owned()).ok_or_else(|| complaint.to_owned())
}

/// What stands in the place of an address.
pub(super) fn announced_ip(text: &str) -> Result<String, String> {
    of_plain_letters(text, "cluster-announce-ip contains invalid character")
}

/// A name for people.
pub(super) fn node_name(text: &str) -> Result<String, String> {
    of_plain_letters(text, "Announced human node name contained invalid character")
}

const HOST_NAME_BYTES_MAX: usize = 255;

/// Letters, digits, hyphens and dots.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    let valid = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    if text.len() > HOST_NAME_BYTES_MAX {
        return Err("Hostnames must be less than 256 characters".to_owned());
    }
    let complaint = "Hostnames may only contain alphanumeric characters, hyphens or dots";
    valid.then(|| text.to_owned()).ok_or_else(|| complaint.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_classes_are_shown_in_one_order() {
        for (text, expected) in
            [("KEA", "AKE"), ("xg", "gx"), ("", ""), ("AKEmn", "AKEmn"), ("g$lshzxetdK", "AK")]
        {
            assert_eq!(event_classes(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(event_classes("q").is_err());
    }

    #[test]
    fn lists_have_the_right_number_of_words() {
        assert_eq!(save_points("900 1 300 10").as_deref(), Ok("900 1 300 10"));
        assert!(
            save_points("900  1").is_err()
                && save_points("900").is_err()
                && save_points("0 1").is_err()
                && save_points("a b").is_err()
        );
        assert!(oom_scores("1 2").is_err() && oom_scores("1 2 9999").is_err());
        assert!(output_limits("normal 1 2").is_err() && output_limits("other 1 2 3").is_err());
        assert!(percentiles("101").is_err() && percentiles("x").is_err() && percentiles("5  6").is_err());
        assert_eq!(percentiles("").as_deref(), Ok(""));
        assert!(host_name(&"a".repeat(255)).is_ok() && host_name(&"a".repeat(256)).is_err());
    }
}
