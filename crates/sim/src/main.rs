//! Runs the simulator over a range of seeds: `corelane-sim FIRST COUNT`.

use corelane_sim::{Options, run_and_check};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let [first, count] = numbers[..] else {
        eprintln!("usage: corelane-sim FIRST COUNT runs COUNT seeds from FIRST on");
        return ExitCode::from(2);
    };
    let mut operations = 0;
    for seed in first..first + count {
        match run_and_check(&Options::from_seed(seed)) {
            Ok(history) => operations += history.records.len(),
            Err(violation) => {
                eprintln!("\n{violation}");
                return ExitCode::FAILURE;
            }
        }
        if (seed - first) % 500 == 499 {
            eprint!("\r{} of {count} seeds", seed - first + 1);
            let _ = std::io::stderr().flush();
        }
    }
    eprintln!();
    println!("{count} seeds from {first}: {operations} commands, every history explained");
    ExitCode::SUCCESS
}
