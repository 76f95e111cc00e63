//! How long a thread that never waits is kept from running, as `redis-cli --intrinsic-latency` finds it: it computes something,
//! over and over, and the longest time for one computation is what the system took for itself.

use std::hint::black_box;
use std::time::Duration;

use super::result::{Kind, Run, Times};
use super::system;
use crate::output::show_line;

/// Something to compute that takes well under a microsecond.
fn compute(seed: u64) -> u64 {
    (0..64).fold(seed, |x, n| (x ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23))
}

/// Computes for `duration`, or until it is interrupted.
pub(super) fn run(duration: Duration, json: bool) -> Run {
    let mut run = Run::new(Kind::Intrinsic, 0, "other");
    let start = system::now_ns();
    let end = system::later(start, duration);
    let (mut times, mut now, mut seed) = (Times::new(), start, 1);
    while now < end && !system::stopped() {
        seed = black_box(compute(seed));
        let after = system::now_ns();
        let longest_ns = times.exact.max;
        times.note(after - now);
        if after - now > longest_ns && !json {
            show_line(format_args!("Max latency so far: {} microseconds.", (after - now) / 1000));
        }
        now = after;
    }
    let (runs, longest_ns) = (times.all.len(), times.exact.max);
    let avg_ns = (now - start) as f64 / runs.max(1) as f64;
    if json {
        let figures = serde_json::json!({
            "runs": runs, "avg_us": avg_ns / 1000.0, "max_us": longest_ns as f64 / 1000.0,
        });
        show_line(figures);
    } else {
        show_line(format_args!(
            "\n{runs} total runs (avg latency: {:.4} microseconds / {avg_ns:.2} nanoseconds per run).\n\
             Worst run took {:.0}x longer than the average latency.",
            avg_ns / 1000.0,
            longest_ns as f64 / avg_ns
        ));
    }
    run.threads.push(times.thread(None, None, 0));
    run
}
