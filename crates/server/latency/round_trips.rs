//! How long a server takes to answer PING.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use hdrhistogram::Histogram;

use super::wakeups::by_microseconds;
use super::{picture, system};
use crate::client::Client;
use crate::output::{show, show_line};

/// The longest answer time that is told apart, in nanoseconds.
const TIME_MAX_NS: u64 = 60_000_000_000;

/// In a pause that is longer, the server's end is noticed.
const WATCHED_NS_MIN: u64 = 200_000_000;

/// What is to be measured.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) server: &'a str,
    pub(super) user: Option<&'a str>,
    pub(super) password: Option<&'a str>,
    /// `None`: until it is interrupted.
    pub(super) duration: Option<Duration>,
    /// Between two requests.
    pub(super) interval: Duration,
    /// A line of its own for every such time.
    pub(super) history: Option<Duration>,
    pub(super) quiet: bool,
    pub(super) json: bool,
    pub(super) svg: Option<&'a Path>,
}

fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX_NS, 3).expect("the bounds of a histogram")
}

fn line(times: &Histogram<u64>) -> String {
    let us = |ns: u64| ns as f64 / 1000.0;
    format!(
        "min: {:.1} us, avg: {:.1}, p50: {:.1}, p99: {:.1}, p99.9: {:.1}, max: {:.1} ({} samples)",
        us(times.min()),
        times.mean() / 1000.0,
        us(times.value_at_quantile(0.5)),
        us(times.value_at_quantile(0.99)),
        us(times.value_at_quantile(0.999)),
        us(times.max()),
        times.len()
    )
}

/// Asks and asks.
///
/// # Errors
/// The server cannot be reached, refuses, or goes away.
pub(super) fn run(request: &Request<'_>) -> Result<()> {
    let mut connection = Client::tcp(request.server)?;
    connection.authenticate(request.user, request.password)?;
    let (mut all, mut recent) = (times(), times());
    let start = system::now_ns();
    let end = request.duration.map_or(u64::MAX, |time| start.saturating_add(time.as_nanos() as u64));
    let (mut next, mut line_at, mut shown_at) = (start, start, start);
    let terminal = io::stdout().is_terminal() && !request.quiet && !request.json;
    while system::now_ns() < end && !system::stopped() {
        let sent = system::now_ns();
        let reply = connection.text(&["PING"])?;
        let now = system::now_ns();
        if reply != "PONG" {
            bail!("PING was answered with {reply}");
        }
        all.saturating_record(now - sent);
        recent.saturating_record(now - sent);
        if let Some(span) = request.history
            && now - line_at >= span.as_nanos() as u64
        {
            let seconds = (now - line_at) as f64 / 1e9;
            if !request.json {
                let erase = if terminal { "\r\x1b[K" } else { "" };
                show_line(format_args!("{erase}{} -- {seconds:.2} seconds range", line(&recent)));
            }
            recent.reset();
            line_at = now;
        } else if terminal && now - shown_at > 100_000_000 {
            show(format_args!("\r{}\x1b[K", line(if request.history.is_some() { &recent } else { &all })));
            shown_at = now;
        }
        next += request.interval.as_nanos() as u64;
        if next > now {
            if next - now > WATCHED_NS_MIN {
                connection.rest(Duration::from_nanos(next - now - WATCHED_NS_MIN / 2))?;
            }
            system::sleep_until(next);
        } else {
            next = now;
        }
    }
    if let Some(file) = request.svg {
        picture::draw(file, "Round trips of PING", &[(request.server.to_owned(), &by_microseconds(&all))])?;
    }
    if request.json {
        let us = |ns: u64| ns as f64 / 1000.0;
        let figures = serde_json::json!({
            "server": request.server, "samples": all.len(), "min_us": us(all.min()), "avg_us": all.mean() / 1000.0,
            "p50_us": us(all.value_at_quantile(0.5)), "p99_us": us(all.value_at_quantile(0.99)),
            "p999_us": us(all.value_at_quantile(0.999)), "max_us": us(all.max()),
        });
        show_line(figures);
    } else {
        show_line(format_args!("{}{}", if terminal { "\r\x1b[K" } else { "" }, line(&all)));
    }
    Ok(())
}
