//! The `corelane` binary: reads the command line and runs the server.
//!
//! What may go wrong is said on stderr in one sentence; the exit code is 0 after an orderly stop, 1 after a failure, 2 for
//! a command line that makes no sense.

mod flags;

use std::process::ExitCode;

use clap::Parser;
use corelane_runtime::host::Host;

use flags::Flags;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let flags = Flags::parse_from(flags::join_values(std::env::args_os()));
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
    println!("corelane {}: {}", env!("CARGO_PKG_VERSION"), host.summary());
    Ok(host.wait()?)
}
