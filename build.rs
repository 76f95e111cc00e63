//! Notes the commit that the binary is built from, where there is a repository: `corelane --version` shows it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=.git/HEAD");
    println!("cargo::rerun-if-changed=.git/logs/HEAD");
    if !Path::new(".git").exists() {
        return;
    }
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    if let Ok(output) = output
        && output.status.success()
    {
        let commit = String::from_utf8_lossy(&output.stdout);
        println!("cargo::rustc-env=CORELANE_COMMIT={} ({})", env!("CARGO_PKG_VERSION"), commit.trim());
    }
}
