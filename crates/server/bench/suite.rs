//! What is sent: the tests of redis-benchmark, or a command.

use std::io::Read;

use anyhow::{Context, Result, bail, ensure};
use corelane_load::{Sizes, Template};

use super::mix;
use super::options::Options;

/// One test.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) title: String,
    /// Requests with their weights.
    pub(super) templates: Vec<(Template, u32)>,
    /// Bytes of a value, or of the whole request where a command was given.
    pub(super) payload: usize,
}

/// The tests: the names by which they can be chosen, the title, and the command. SCORE stands for a random score if there are random
/// keys, PAIRS for ten keys with values.
const TESTS: &[(&[&str], &str, &str)] = &[
    (&["ping_inline", "ping"], "PING_INLINE", ""),
    (&["ping_mbulk", "ping"], "PING_MBULK", "PING"),
    (&["set"], "SET", "SET __rand_key__ __data__"),
    (&["get"], "GET", "GET __rand_key__"),
    (&["incr"], "INCR", "INCR counter:__rand_int__"),
    (&["lpush"], "LPUSH", "LPUSH mylist __data__"),
    (&["rpush"], "RPUSH", "RPUSH mylist __data__"),
    (&["lpop"], "LPOP", "LPOP mylist"),
    (&["rpop"], "RPOP", "RPOP mylist"),
    (&["sadd"], "SADD", "SADD myset element:__rand_int__"),
    (&["hset"], "HSET", "HSET myhash element:__rand_int__ __data__"),
    (&["spop"], "SPOP", "SPOP myset"),
    (&["zadd"], "ZADD", "ZADD myzset SCORE element:__rand_int__"),
    (&["zpopmin"], "ZPOPMIN", "ZPOPMIN myzset"),
    (
        &["lrange", "lrange_100", "lrange_300", "lrange_500", "lrange_600"],
        "LPUSH (needed to benchmark LRANGE)",
        "LPUSH mylist __data__",
    ),
    (&["lrange_100", "lrange"], "LRANGE_100 (first 100 elements)", "LRANGE mylist 0 99"),
    (&["lrange_300", "lrange"], "LRANGE_300 (first 300 elements)", "LRANGE mylist 0 299"),
    (&["lrange_500", "lrange"], "LRANGE_500 (first 500 elements)", "LRANGE mylist 0 499"),
    (&["lrange_600", "lrange"], "LRANGE_600 (first 600 elements)", "LRANGE mylist 0 599"),
    (&["mset"], "MSET (10 keys)", "MSET PAIRS"),
];

/// What is to be run.
///
/// # Errors
/// There is no such test, or nothing to be read from stdin.
pub(super) fn tests(options: &Options) -> Result<Vec<Test>> {
    let (ranged, sizes) = (options.range.is_some(), options.value_sizes());
    if !options.command.is_empty() {
        let mut words: Vec<Vec<u8>> = options.command.iter().map(|word| word.clone().into_bytes()).collect();
        if options.stdin {
            let mut last = Vec::new();
            std::io::stdin().read_to_end(&mut last).context("cannot read stdin")?;
            words.push(last);
        }
        let template = Template::new(&words, ranged, &sizes);
        let payload = template.request_len().unwrap_or_else(|| sizes.max());
        return Ok(vec![Test { title: options.command.join(" "), templates: vec![(template, 1)], payload }]);
    }
    if let Some((reads, writes)) = options.ratio {
        let get = template("GET __rand_key__", ranged, &sizes);
        let set = template("SET __rand_key__ __data__", ranged, &sizes);
        let title = format!("GET:SET {reads}:{writes}");
        return Ok(vec![Test { title, templates: vec![(get, reads), (set, writes)], payload: sizes.max() }]);
    }
    if let Some(file) = &options.commands {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let commands = mix::commands(&text).with_context(|| file.display().to_string())?;
        let templates =
            commands.iter().map(|(words, weight)| (Template::new(words, ranged, &sizes), *weight));
        let title = format!("{} ({} commands)", file.display(), commands.len());
        return Ok(vec![Test { title, templates: templates.collect(), payload: sizes.max() }]);
    }
    let names = options.tests.iter().flat_map(|names| names.split(','));
    let wanted: Vec<String> =
        names.map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty()).collect();
    ensure!(options.tests.is_none() || !wanted.is_empty(), "-t names no test");
    for name in &wanted {
        if !TESTS.iter().any(|(names, ..)| names.contains(&name.as_str())) {
            let known: Vec<&str> = TESTS.iter().map(|(names, ..)| names[0]).collect();
            bail!("there is no test {name:?}; there are ping, {}", known.join(", "));
        }
    }
    let chosen = TESTS
        .iter()
        .filter(|(names, ..)| wanted.is_empty() || wanted.iter().any(|name| names.contains(&name.as_str())));
    Ok(chosen
        .map(|(_, title, line)| Test {
            title: (*title).to_owned(),
            templates: vec![(template(line, ranged, &sizes), 1)],
            payload: sizes.max(),
        })
        .collect())
}

fn template(line: &str, ranged: bool, sizes: &Sizes) -> Template {
    if line.is_empty() {
        return Template::raw(b"PING\r\n");
    }
    let mut words = Vec::new();
    for word in line.split(' ') {
        match word {
            "SCORE" => words.push(if ranged { b"__rand_int__".to_vec() } else { b"0".to_vec() }),
            "PAIRS" => (0..10).for_each(|_| words.extend([b"__rand_key__".to_vec(), b"__data__".to_vec()])),
            word => words.push(word.as_bytes().to_vec()),
        }
    }
    Template::new(&words, ranged, sizes)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn titles(args: &str) -> Result<Vec<String>> {
        let options = Options::try_parse_from(format!("x {args}").split(' ')).unwrap();
        Ok(tests(&options)?.into_iter().map(|test| test.title).collect())
    }

    #[test]
    fn tests_are_chosen_as_redis_benchmark_chooses() {
        assert_eq!(titles("-c 1").unwrap().len(), 20);
        assert_eq!(titles("-t ping,GET").unwrap(), ["PING_INLINE", "PING_MBULK", "GET"]);
        let lrange = titles("-t lrange_300").unwrap();
        assert_eq!(lrange, ["LPUSH (needed to benchmark LRANGE)", "LRANGE_300 (first 300 elements)"]);
        assert_eq!(titles("-t lrange").unwrap().len(), 5);
        assert_eq!(titles("-t set,").unwrap(), ["SET"]);
        assert_eq!(titles("-t get -t set -q -q -n 5 -n 6").unwrap(), ["SET"]);
        assert_eq!(titles("-t set get a").unwrap(), ["get a"]);
        assert_eq!(titles("-t ,").unwrap_err().to_string(), "-t names no test");
        assert_eq!(titles("set key:__rand_int__ -x").unwrap(), ["set key:__rand_int__ -x"]);
        let error = titles("-t get,nope").unwrap_err().to_string();
        assert!(error.starts_with("there is no test \"nope\"; there are ping, ping_inline"), "{error}");
    }

    #[test]
    fn the_payload_of_a_command_is_its_request() {
        let words = ["x", "-r", "10000", "set", "key:__rand_int__", "value:__rand_int__"];
        let options = Options::try_parse_from(words).unwrap();
        assert_eq!(tests(&options).unwrap()[0].payload, 61);
    }
}
