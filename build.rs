//! Notes what the binary is built from, where there is a repository: `corelane --version` shows the commit, INFO all of it.

use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;

/// What the binary is made of.
const SOURCES: [&str; 4] = ["crates", "Cargo.toml", "Cargo.lock", "build.rs"];

/// What git answers; nothing if there is no git, or no repository of our own.
fn git(args: &[&str]) -> Option<Vec<u8>> {
    let output = Path::new(".git").exists().then(|| Command::new("git").args(args).output())?.ok()?;
    output.status.success().then_some(output.stdout)
}

fn git_line(args: &[&str]) -> Option<String> {
    git(args).map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
}

fn main() {
    for path in SOURCES {
        println!("cargo::rerun-if-changed={path}");
    }
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git_line(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let version = env::var("CARGO_PKG_VERSION").expect("cargo names the version");
    let changes = git(&[&["diff", "HEAD", "--"], &SOURCES[..]].concat());
    let commit = git_line(&["rev-parse", "HEAD"]);
    if let (Some(commit), Some(changes)) = (&commit, &changes) {
        println!("cargo::rustc-env=CORELANE_COMMIT={version} ({})", &commit[..12]);
        println!("cargo::rustc-env=CORELANE_GIT_SHA1={}", &commit[..8]);
        println!("cargo::rustc-env=CORELANE_GIT_DIRTY={}", u8::from(!changes.is_empty()));
    }
    // Equal for equal sources and compilers, so that builds can be repeated.
    let compiler = env::var_os("RUSTC").and_then(|rustc| Command::new(rustc).arg("-vV").output().ok());
    let how = ["TARGET", "PROFILE", "OPT_LEVEL"].map(|name| env::var(name).unwrap_or_default());
    let mut hasher = DefaultHasher::new();
    (version, commit, changes, compiler.map(|output| output.stdout), how).hash(&mut hasher);
    println!("cargo::rustc-env=CORELANE_BUILD_ID={:016x}", hasher.finish());
}
