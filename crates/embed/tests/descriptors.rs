//! What a start says and does where few descriptors may be open. The limit is one of the whole process: each case is one.

use std::process::Command;

use corelane_embed::{Builder, Bytes, Frame};

/// Set in a process that has the limit.
const LIMITED: &str = "CORELANE_TEST_LIMITED";

/// Runs the test of this name once more in a process that may have so many descriptors. False in that process.
fn is_run_elsewhere(descriptors: u32, test: &str) -> bool {
    if std::env::var_os(LIMITED).is_some() {
        return false;
    }
    let run = format!("ulimit -n {descriptors}; exec \"$0\" --exact {test}");
    let exe = std::env::current_exe().unwrap();
    let output = Command::new("sh").args(["-c", &run]).arg(exe).env(LIMITED, "").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    true
}

fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn few_descriptors_are_enough_without_listeners() {
    if is_run_elsewhere(30, "few_descriptors_are_enough_without_listeners") {
        return;
    }
    let cache = Builder::new().shards(2).start().unwrap();
    cache.mset([("a", "1"), ("b", "2"), ("c", "3")]).wait().unwrap();
    assert_eq!(cache.len().wait(), Ok(3));
    cache.stop().unwrap();
    let error = Builder::new().shards(2).port(port()).start().unwrap_err().to_string();
    let expected = "only 30 file descriptors may be open and 48 are needed for 2 shards and 32 connections";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn connections_are_as_many_as_asked_for_or_an_error() {
    if is_run_elsewhere(200, "connections_are_as_many_as_asked_for_or_an_error") {
        return;
    }
    let error = Builder::new().shards(2).port(port()).connections_max(200).start().unwrap_err().to_string();
    let expected =
        "only 200 file descriptors may be open and 216 are needed for 2 shards and 200 connections";
    assert!(error.starts_with(expected), "{error}");
    for (builder, connections) in [(Builder::new(), "184"), (Builder::new().connections_max(150), "150")] {
        let cache = builder.shards(2).port(port()).start().unwrap();
        let shown = cache.execute(&["CONFIG", "GET", "maxclients"]).wait().unwrap();
        let words = ["maxclients", connections].map(|word| Frame::Bulk(Bytes::from(word)));
        assert_eq!(shown, Frame::Map(vec![words.into()]));
        cache.stop().unwrap();
    }
}
