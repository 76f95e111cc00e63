//! The `corelane` binary: reads the command line and runs the server.
//!
//! What may go wrong is said on stderr in one sentence; the exit code is 0 after an orderly stop, 1 after a failure, 2 for
//! a command line that makes no sense.

mod allocator;
mod doctor;
mod flags;
mod memory;
mod observation_flags;

use std::process::ExitCode;

use clap::Parser;
use corelane_runtime::host::Host;

use flags::Flags;

fn main() -> ExitCode {
    corelane_runtime::use_allocator(allocator::MIMALLOC);
    let mut args = std::env::args_os();
    let program = args.next().into_iter();
    let mut args = args.peekable();
    if args.next_if(|word| word == "doctor").is_some() {
        let Some((json, directives)) = doctor::arguments(args) else { return doctor::help() };
        let flags = Flags::parse_from(flags::join_values(program.chain(directives)));
        return doctor::run(flags.into_options(), json);
    }
    let flags = Flags::parse_from(flags::join_values(program.chain(args)));
    match run(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> anyhow::Result<()> {
    let host = Host::start(&flags.into_options())?;
    for warning in host.warnings() {
        eprintln!("corelane: {warning}");
    }
    memory::return_in_background()?;
    println!("corelane {}: {}", env!("CARGO_PKG_VERSION"), host.summary());
    Ok(host.wait()?)
}
