//! The tools beside the server: the program's first argument names one.

use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

use corelane_runtime::options::ServerOptions;

use crate::{bench, doctor, experiment, latency, stat, top, understand};

/// What follows a tool's name on the command line.
type Words = Box<dyn Iterator<Item = OsString>>;

/// One tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    about: &'static str,
    pub(crate) run: fn(Words) -> ExitCode,
}

/// All of them.
pub(crate) const TOOLS: [Tool; 6] = [
    Tool { name: "bench", about: "loads a server, as redis-benchmark does", run: |words| bench::run(words) },
    Tool { name: "stat", about: "shows what a running server is doing", run: |words| stat::run(words) },
    Tool { name: "top", about: "shows it live, on the whole terminal", run: |words| top::run(words) },
    Tool {
        name: "latency",
        about: "measures how late this machine wakes threads, or a server answers",
        run: |words| latency::run(words),
    },
    Tool {
        name: "experiment",
        about: "makes published measurements of servers and machines anew",
        run: |words| experiment::run(words),
    },
    Tool { name: "doctor", about: "looks whether this machine can run the server", run: examine },
];

fn examine(words: Words) -> ExitCode {
    let Some((json, directives)) = doctor::arguments(words) else { return doctor::help() };
    match understand(directives.into_iter()) {
        Ok(invocation) => doctor::run(ServerOptions::from_config(invocation.config), json),
        Err(code) => code,
    }
}

/// For the program's help.
pub(crate) fn overview() -> String {
    let mut text = "Tools, each with a --help of its own:\n".to_owned();
    for tool in &TOOLS {
        let _ = writeln!(text, "  corelane {:<11} {}", tool.name, tool.about);
    }
    text
}
