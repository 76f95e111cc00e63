//! The `corelane` binary: reads the command line and runs the server.
//!
//! What may go wrong is said on stderr in one sentence; the exit code is 0 after an orderly stop, 1 after a failure, 2 for
//! a command line or a configuration that makes no sense.

mod address;
mod allocator;
mod bench;
mod build_info;
mod client;
mod config_file;
mod doctor;
mod experiment;
mod flags;
mod info;
mod latency;
mod log;
mod machine;
mod memory;
mod metrics;
mod output;
mod rewrite;
mod stat;
mod target;
mod threads;
mod time;
mod tools;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use corelane_engine::Hooks;
use corelane_runtime::host::Host;
use corelane_runtime::options::ServerOptions;
use corelane_runtime::topology::{Machine, place};

use flags::Invocation;
use tools::TOOLS;

/// The exit code for what makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    corelane_runtime::use_allocator(allocator::MIMALLOC);
    let mut args = std::env::args_os().skip(1).peekable();
    for tool in &TOOLS {
        if args.next_if(|word| word == tool.name).is_some() {
            return output::exit_code((tool.run)(Box::new(args)));
        }
    }
    let invocation = match understand(args) {
        Ok(invocation) => invocation,
        Err(code) => return code,
    };
    if invocation.check_only {
        return check(invocation);
    }
    let to_a_file = !invocation.config.value("logfile").is_empty();
    match run(invocation) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelane: {error:#}");
            if to_a_file {
                tracing::error!("{error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Whether what makes sense in itself does so on this machine: its CPUs are asked for, nothing else is touched.
fn check(invocation: Invocation) -> ExitCode {
    let options = ServerOptions::from_config(invocation.config);
    let layout = Machine::here()
        .and_then(|machine| place(options.cpus.as_deref(), options.shards, options.placement, &machine));
    match layout {
        Ok(_) => {
            output::show_line("the configuration makes sense");
            output::exit_code(ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("corelane: {error}");
            ExitCode::from(USAGE)
        }
    }
}

/// The command line, or the exit code after what was wrong with it has been said; `--help` and `--version` are such, too.
fn understand(args: impl Iterator<Item = OsString>) -> Result<Invocation, ExitCode> {
    flags::parse(args).map_err(|error| match error.downcast_ref::<clap::Error>() {
        Some(clap) => {
            // A closed terminal leaves nobody to be told.
            let _ = clap.print();
            ExitCode::from(clap.exit_code() as u8)
        }
        None => {
            eprintln!("corelane: {error:#}");
            ExitCode::from(USAGE)
        }
    })
}

fn run(invocation: Invocation) -> anyhow::Result<()> {
    let mut options = ServerOptions::from_config(invocation.config);
    options.hooks = Hooks { rewrite: rewrite::rewrite, changed: log::note_changes, ..Hooks::default() };
    options.program_info = build_info::fields();
    log::start(options.config.value("loglevel"), options.config.value("logfile"))?;
    if !invocation.idle.is_empty() {
        tracing::warn!("these directives are known and change nothing here: {}", invocation.idle.join(", "));
    }
    tracing::info!("corelane {} starts, process {}", flags::VERSION, std::process::id());
    let metrics = metrics::listen(&options.config)?;
    if !metrics.is_empty() {
        options.gate_slots = metrics::GATE_SLOTS;
    }
    let host = Host::start(&options)?;
    for warning in host.warnings() {
        tracing::warn!("{warning}");
    }
    memory::return_in_background()?;
    if let Some(doorway) = host.doorway() {
        metrics::start(metrics, doorway)?;
    }
    for line in host.banner() {
        tracing::info!("{line}");
    }
    tracing::info!("{}", host.summary());
    host.wait()?;
    tracing::info!("corelane has ended in order");
    Ok(())
}
