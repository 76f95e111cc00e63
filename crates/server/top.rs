//! `corelane top`: what a running server does, live, on the whole terminal.
//!
//! One thread asks the server, one draws and reads keys, so that keys are obeyed while the server is slow. Pausing is not
//! asking.

mod history;
mod look;
mod screen;
mod table;
mod text;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::client::Client;
use crate::latency::system;
use crate::stat::seconds;
use crate::target::Target;
use history::History;
use look::Look;
use screen::Screen;
use table::Sort;

/// How often the keyboard and the server's answer are looked for.
const STEP: Duration = Duration::from_millis(50);
/// Keys change the interval within these.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// An answer that takes longer is told of.
const SILENCE: Duration = Duration::from_secs(1);

/// Shows what a running server does, live
#[derive(Debug, Parser)]
#[command(
    name = "corelane top",
    disable_help_flag = true,
    after_help = "Keys: q quits, p pauses, s sorts by the next column, r reverses, + and - change the interval, arrows move."
)]
struct Options {
    #[command(flatten)]
    target: Target,
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Runs the tool on the arguments behind its name.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let name = OsString::from("corelane top");
    let options = match Options::try_parse_from(std::iter::once(name).chain(args)) {
        Ok(options) => options,
        Err(error) => {
            // A closed terminal leaves nobody to be told.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match watch(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelane top: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn watch(options: &Options) -> Result<()> {
    let mut client = options.target.connect()?;
    let mut history = History::default();
    history.add(Look::take(&mut client)?);
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    ensure!(terminal, "this needs a terminal; `corelane stat --watch 1` does not");
    let screen = Screen {
        target: options.target.name(),
        interval: options.interval.clamp(INTERVAL_MIN, INTERVAL_MAX),
        paused: false,
        sort: Sort::default(),
        reversed: false,
        first: 0,
        silent: None,
    };
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || answer(client, &asked, &tell));
    system::stop_on_signals();
    on_screen(|terminal| live(terminal, screen, history, &ask, &told))
}

/// Gives the terminal to `run`, and back as it was: when that returns, and when it panics.
fn on_screen(run: impl FnOnce(&mut DefaultTerminal) -> Result<()>) -> Result<()> {
    let mut terminal = ratatui::try_init().context("cannot take over the terminal")?;
    let outcome = run(&mut terminal);
    ratatui::restore();
    outcome
}

/// Looks at the server whenever it is asked to, until nobody asks or the server is gone, which it notices in between, too.
fn answer(mut client: Client, asked: &Receiver<()>, tell: &Sender<Result<Look>>) {
    loop {
        let look = match asked.try_recv() {
            Ok(()) => Look::take(&mut client).map(Some),
            Err(TryRecvError::Empty) => client.rest(STEP).map(|()| None),
            Err(TryRecvError::Disconnected) => return,
        };
        let failed = look.is_err();
        if look.transpose().is_some_and(|look| tell.send(look).is_err()) || failed {
            return;
        }
    }
}

fn live(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    mut history: History,
    ask: &Sender<()>,
    told: &Receiver<Result<Look>>,
) -> Result<()> {
    let (mut asked_at, mut waiting, mut changed) = (Instant::now(), false, true);
    while !system::stopped() {
        match told.try_recv() {
            Ok(look) => {
                history.add(look?);
                (waiting, changed) = (false, true);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => bail!("the thread that asks the server has ended"),
        }
        if !waiting && !screen.paused && asked_at.elapsed() >= screen.interval {
            // If nobody listens any more, the next look at `told` says why.
            let _ = ask.send(());
            (asked_at, waiting) = (Instant::now(), true);
        }
        let silent = (waiting && asked_at.elapsed() > SILENCE).then(|| asked_at.elapsed());
        changed |= silent.is_some() || screen.silent.is_some();
        screen.silent = silent;
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| screen.draw(frame, &history)).context("cannot draw")?;
        }
        // Asked to wait for a terminal that is gone, crossterm would do so for ever, and without sleep.
        if !system::wait_for_input(io::stdin().as_raw_fd(), STEP) {
            bail!("the terminal is gone");
        }
        if event::poll(Duration::ZERO).context("cannot read the keyboard")? {
            match event::read().context("cannot read the keyboard")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if !obey(&mut screen, key) {
                        return Ok(());
                    }
                    changed = true;
                }
                Event::Resize(..) => changed = true,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Does what a key stands for; false for one that ends it all.
fn obey(screen: &mut Screen, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('p' | ' ') => screen.paused = !screen.paused,
        KeyCode::Char('s') => screen.sort = screen.sort.next(),
        KeyCode::Char('r') => screen.reversed = !screen.reversed,
        KeyCode::Char('+') => screen.interval = (screen.interval / 2).max(INTERVAL_MIN),
        KeyCode::Char('-') => screen.interval = (screen.interval * 2).min(INTERVAL_MAX),
        KeyCode::Up => screen.first = screen.first.saturating_sub(1),
        KeyCode::Down => screen.first += 1,
        KeyCode::PageUp => screen.first = screen.first.saturating_sub(10),
        KeyCode::PageDown => screen.first += 10,
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// With this in its environment the test below is what runs inside of the terminal.
    const INSIDE: &str = "CORELANE_TEST_PANICS_ON_SCREEN";

    #[test]
    fn a_panic_gives_the_terminal_back() {
        if std::env::var_os(INSIDE).is_some() {
            let _ = on_screen(|_| panic!("on purpose"));
            return;
        }
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("SKIPPED: tmux not found");
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "tmux not found");
            return;
        }
        let socket = format!("corelane-panic-{}", std::process::id());
        let tmux = |args: &[&str]| {
            let output = Command::new("tmux").args(["-L", &socket]).args(args).output().expect("tmux runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let program = std::env::current_exe().expect("this program");
        let test = "top::tests::a_panic_gives_the_terminal_back";
        let line = format!(
            "{INSIDE}=1 {} --exact {test} --nocapture; echo after; stty -a; exec sleep 60",
            program.display()
        );
        tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "50", &line]);
        let started = Instant::now();
        let mut screen = String::new();
        while !screen.contains("icanon") && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
            screen = tmux(&["capture-pane", "-p"]);
        }
        tmux(&["kill-server"]);
        assert!(screen.contains("on purpose") && screen.contains("after"), "{screen}");
        assert!(
            screen.contains(" icanon") && !screen.contains("-icanon") && !screen.contains("-echo "),
            "{screen}"
        );
    }
}
