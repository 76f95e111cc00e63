//! How long a server takes to answer PING.

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::{Result, bail};

use super::result::{Kind, Run, Times};
use super::system;
use crate::address::Address;
use crate::output::{fitted, show, show_line};

/// In a pause that is longer, the server's end is noticed.
const WATCHED_NS_MIN: u64 = 200_000_000;

/// What is to be measured.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) server: &'a Address,
    /// `None`: until it is interrupted.
    pub(super) duration: Option<Duration>,
    /// Between two requests.
    pub(super) interval: Duration,
    /// A line of its own for every such time.
    pub(super) history: Option<Duration>,
    pub(super) quiet: bool,
    pub(super) json: bool,
}

fn line(times: &Times) -> String {
    let shown = times.thread(None, None, 0);
    format!(
        "min: {:.1} us, avg: {:.1}, p50: {:.1}, p99: {:.1}, p99.9: {:.1}, max: {:.1} ({} samples)",
        shown.min, shown.avg, shown.p50, shown.p99, shown.p999, shown.max, shown.wakeups
    )
}

/// Asks and asks.
///
/// # Errors
/// The server cannot be reached, refuses, or goes away.
pub(super) fn run(request: &Request<'_>) -> Result<Run> {
    let mut connection = request.server.connect()?;
    let mut run = Run::new(Kind::RoundTrips, request.interval.as_micros() as u64, "other");
    let (mut all, mut recent) = (Times::new(), Times::new());
    let start = system::now_ns();
    let end = request.duration.map_or(u64::MAX, |time| system::later(start, time));
    let (mut next, mut line_at, mut shown_at) = (start, start, start);
    let terminal = io::stdout().is_terminal() && !request.quiet && !request.json;
    while system::now_ns() < end && !system::stopped() {
        let sent = system::now_ns();
        let reply = connection.text(&["PING"])?;
        let now = system::now_ns();
        if reply != "PONG" {
            bail!("PING was answered with {reply}");
        }
        all.note(now - sent);
        recent.note(now - sent);
        if let Some(span) = request.history
            && now - line_at >= span.as_nanos() as u64
        {
            let seconds = (now - line_at) as f64 / 1e9;
            if !request.json {
                let erase = if terminal { "\r\x1b[K" } else { "" };
                show_line(format_args!("{erase}{} -- {seconds:.2} seconds range", line(&recent)));
            }
            recent = Times::new();
            line_at = now;
        } else if terminal && now - shown_at > 100_000_000 {
            let line = line(if request.history.is_some() { &recent } else { &all });
            show(format_args!("\r{}\x1b[K", fitted(&line)));
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
    let shown = all.thread(Some(request.server.shown()), None, 0);
    if request.json {
        let figures = serde_json::json!({
            "server": shown.name, "samples": shown.wakeups, "min_us": shown.min, "avg_us": shown.avg,
            "p50_us": shown.p50, "p99_us": shown.p99, "p999_us": shown.p999, "max_us": shown.max,
        });
        show_line(figures);
    } else {
        show_line(format_args!("{}{}", if terminal { "\r\x1b[K" } else { "" }, line(&all)));
    }
    run.threads.push(shown);
    Ok(run)
}
