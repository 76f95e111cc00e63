//! The log: Redis's levels on top of `tracing`, to the standard output or to a file. What the libraries below us say of themselves
//! is for their authors: only their warnings get through.

use std::fs::File;
use std::io;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use corelane_engine::config::Config;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, reload};

/// What the names of all our crates begin with.
const OURS: &str = "corelane";

/// Changes the level of the log.
static LEVEL: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// What Redis calls `notice` is tracing's `info`, `verbose` its `debug`, and `debug` its `trace`.
fn filter(level: &str) -> Targets {
    let level = match level {
        "debug" => LevelFilter::TRACE,
        "verbose" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        "nothing" => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    };
    Targets::new().with_target(OURS, level).with_default(level.min(LevelFilter::WARN))
}

/// Starts the log of this process; an empty `path` is the standard output.
pub(crate) fn start(level: &str, path: &str) -> Result<()> {
    let (filter, handle) = reload::Layer::new(filter(level));
    let layer = tracing_subscriber::fmt::layer().with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    let set = if path.is_empty() {
        tracing::subscriber::set_global_default(registry.with(layer.with_ansi(false)))
    } else {
        let file = LogFile::open(path)
            .with_context(|| format!("cannot open the log file {path}; name one that can be written"))?;
        tracing::subscriber::set_global_default(registry.with(layer.with_ansi(false).with_writer(file)))
    };
    set.context("the log was started twice")?;
    // Only the first log of a process can be changed, and there is no second one.
    let _ = LEVEL.set(handle);
    Ok(())
}

/// The file that is logged to. As in Redis it is opened for each entry, so that whoever moves it away (logrotate) need tell nobody.
struct LogFile {
    path: String,
    /// As it was at the start, for when it cannot be opened.
    first: File,
}

impl LogFile {
    fn open(path: &str) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), first: appending(path)? })
    }
}

fn appending(path: &str) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = LogEntry<'a>;

    fn make_writer(&'a self) -> LogEntry<'a> {
        appending(&self.path).map_or(LogEntry::First(&self.first), LogEntry::Own)
    }
}

/// Where one entry goes.
enum LogEntry<'a> {
    Own(File),
    First(&'a File),
}

impl io::Write for LogEntry<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Own(file) => file.write(bytes),
            Self::First(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Notes a change of the configuration, and follows it. Values that are secrets are not told.
pub(crate) fn note_changes(before: &Config, after: &Config) {
    if before.value("loglevel") != after.value("loglevel") {
        set_level(after.value("loglevel"));
    }
    for directive in after.changed_since(before) {
        let value = if directive.secret { "(redacted)" } else { after.value_of(directive) };
        tracing::info!("{} is set to {:?}", directive.name, value);
        if directive.idle {
            tracing::warn!("{} is known and changes nothing here", directive.name);
        }
    }
}

/// Has the log tell more or less from now on.
fn set_level(level: &str) {
    if let Some(handle) = LEVEL.get()
        && let Err(error) = handle.modify(|current| *current = filter(level))
    {
        tracing::warn!("cannot change the log level to {level}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        use std::io::Write;
        let path = |name: &str| std::env::temp_dir().join(format!("corelane-{name}-{}", std::process::id()));
        let (now, moved) = (path("log"), path("log-moved"));
        let log = LogFile::open(now.to_str().unwrap()).unwrap();
        log.make_writer().write_all(b"one").unwrap();
        std::fs::rename(&now, &moved).unwrap();
        log.make_writer().write_all(b"two").unwrap();
        std::fs::remove_file(&now).unwrap();
        std::fs::create_dir(&now).unwrap();
        log.make_writer().write_all(b"three").unwrap();
        std::fs::remove_dir(&now).unwrap();
        assert_eq!(std::fs::read(&moved).unwrap(), b"onethree");
        std::fs::remove_file(&moved).unwrap();
    }

    #[test]
    fn levels_are_for_what_we_say_and_libraries_only_warn() {
        for (name, ours, theirs) in [
            ("debug", Some(Level::TRACE), Some(Level::WARN)),
            ("verbose", Some(Level::DEBUG), Some(Level::WARN)),
            ("notice", Some(Level::INFO), Some(Level::WARN)),
            ("warning", Some(Level::WARN), Some(Level::WARN)),
            ("nothing", None, None),
        ] {
            let filter = filter(name);
            for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                let passes = |most: Option<Level>| most.is_some_and(|most| level <= most);
                assert_eq!(
                    filter.would_enable("corelane_runtime::host", &level),
                    passes(ours),
                    "{name} {level}"
                );
                assert_eq!(
                    filter.would_enable("glommio::executor", &level),
                    passes(theirs),
                    "{name} {level}"
                );
            }
        }
    }
}
