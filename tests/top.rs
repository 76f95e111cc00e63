//! `corelane top` in a terminal of tmux, as somebody sees and uses it.

mod common;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::server::{self, Server};

/// Limit on waiting for something to appear.
const MS_MAX: u64 = 15_000;

/// A tmux server of its own with one terminal, in which a shell waits for commands.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// `None` where there is no tmux, after a skip.
    fn open(width: u16, height: u16) -> Option<Self> {
        if !server::installed("tmux", "-V") {
            return None;
        }
        let terminal = Self { socket: format!("corelane-{}-{}", std::process::id(), server::free_port()) };
        let (width, height) = (width.to_string(), height.to_string());
        let shell = "env -u ENV PS1='shell$ ' TERM=screen sh";
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, shell]);
        terminal.await_text("shell$");
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Output {
        let output = Command::new("tmux").args(["-L", &self.socket]).args(args).output().expect("tmux runs");
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        output
    }

    /// What is on the screen.
    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn run(&self, args: &str) {
        self.run_tool(&format!("top {args}"));
    }

    fn run_tool(&self, args: &str) {
        let line = format!("clear; {} {args}; echo exit=$?", env!("CARGO_BIN_EXE_corelane"));
        self.keys(&["-l", &line]);
        self.keys(&["Enter"]);
    }

    /// Waits until the screen is as it should be.
    fn await_screen(&self, what: &str, mut good: impl FnMut(&str) -> bool) -> String {
        let found = server::poll(MS_MAX, || Some(self.screen()).filter(|screen| good(screen)));
        found.unwrap_or_else(|| panic!("never {what} in\n{}", self.screen()))
    }

    fn await_text(&self, text: &str) -> String {
        self.await_screen(text, |screen| screen.contains(text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails only where it is gone already.
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}

/// The lines of the table's rows, without their heads.
fn rows(screen: &str) -> Vec<&str> {
    let lines = screen.lines().skip_while(|line| !line.trim_start().starts_with("shard"));
    lines.skip(1).take_while(|line| !line.trim().is_empty()).collect()
}

fn first_words(screen: &str) -> Vec<&str> {
    rows(screen).iter().filter_map(|row| row.split_whitespace().next()).collect()
}

#[test]
fn it_shows_shards_obeys_keys_and_gives_the_terminal_back() {
    if server::stand_in() {
        return;
    }
    let server = Server::ours(5);
    let Some(terminal) = Terminal::open(80, 24) else { return };
    let mut client = server.client();
    for key in 0..50 {
        client.check(&format!("SET key:{key} x"), "+OK\r\n");
    }
    terminal.run(&format!("-h 127.0.0.1:{} -i 0.1", server.port));
    let screen = terminal
        .await_screen("a second look", |screen| screen.contains("every 0.1 s") && rows(screen).len() == 5);
    assert!(screen.starts_with(" corelane "), "{screen}");
    for part in ["commands/s", "turn", "memory", "hits", "network in", "q quit", "sort: shard", "p99.9"] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    assert!(!screen.contains("shell$"), "the screen is all of it:\n{screen}");
    assert_eq!(first_words(&screen), ["0", "1", "2", "3", "4"], "{screen}");

    terminal.keys(&["r"]);
    terminal.await_screen("the other order", |screen| first_words(screen) == ["4", "3", "2", "1", "0"]);
    terminal.keys(&["s"]);
    terminal.await_text("sort: cpu %");
    terminal.keys(&["p"]);
    terminal.await_text(" paused");
    terminal.keys(&["p", "-"]);
    terminal.await_text("every 0.2 s");

    for (width, height) in [("132", "40"), ("50", "12"), ("30", "5"), ("80", "24")] {
        terminal.tmux(&["resize-window", "-x", width, "-y", height]);
        let wanted = if width == "30" { "too small" } else { "commands/s" };
        let screen = terminal.await_screen("the new size", |screen| {
            screen.contains(wanted) && screen.trim_end().lines().count() <= height.parse().unwrap_or(0)
        });
        assert!(screen.lines().all(|line| line.chars().count() <= width.parse().unwrap_or(0)), "{screen}");
    }

    terminal.keys(&["q"]);
    let screen = terminal.await_text("exit=0");
    assert!(!screen.contains("q quit"), "the terminal is as it was before:\n{screen}");
    terminal.keys(&["-l", "stty -a | tr ';' '\\n' | grep -cw -e icanon -e echo; echo typed"]);
    terminal.keys(&["Enter"]);
    let screen = terminal.await_screen("echo", |screen| screen.lines().any(|line| line == "typed"));
    assert!(!screen.contains("-icanon") && screen.contains("echo typed"), "{screen}");
}

#[test]
fn other_servers_have_one_row() {
    let Some(valkey) = Server::valkey() else { return };
    let Some(terminal) = Terminal::open(100, 30) else { return };
    terminal.run(&format!("-h 127.0.0.1:{} -i 0.1", valkey.port));
    let screen = terminal.await_screen("a row", |screen| rows(screen).len() == 1);
    assert!(screen.starts_with(" valkey 9."), "{screen}");
    terminal.keys(&["C-c"]);
    terminal.await_text("exit=0");
}

#[test]
fn a_server_that_goes_away_ends_it_with_a_sentence() {
    let mut server = Server::ours(2);
    let Some(terminal) = Terminal::open(80, 24) else { return };
    let address = format!("127.0.0.1:{}", server.port);
    terminal.run(&format!("-h {address} -i 0.1"));
    terminal.await_text("q quit");
    server.signal("KILL");
    server.await_exit(10_000).expect("an exit");
    let screen = terminal.await_text("exit=1");
    assert!(screen.contains("corelane top: the server"), "{screen}");
    assert!(!screen.contains("q quit"), "{screen}");
    terminal.run(&format!("-h {address}"));
    terminal.await_screen("a refusal", |screen| {
        screen.contains("cannot connect to") && screen.contains("exit=1")
    });
}

#[test]
fn between_two_looks_it_notices_too_that_the_server_is_gone() {
    let mut server = Server::ours(1);
    let Some(terminal) = Terminal::open(80, 24) else { return };
    terminal.run(&format!("-h 127.0.0.1:{} -i 60", server.port));
    terminal.await_text("q quit");
    server.signal("KILL");
    server.await_exit(10_000).expect("an exit");
    let ended = Instant::now();
    let screen = terminal.await_text("exit=1");
    assert!(ended.elapsed() < Duration::from_secs(1), "{:?}", ended.elapsed());
    assert!(screen.contains("the server has closed the connection"), "{screen}");
}

/// Refusals and bad flags are told before the terminal is taken over.
#[test]
fn refusals_and_bad_flags_are_sentences() {
    let server = Server::ours(1);
    server.client().check("CONFIG SET requirepass secret", "+OK\r\n");
    let address = format!("127.0.0.1:{}", server.port);
    for (args, code, sentence) in [
        (&["-h", &address][..], 1, "NOAUTH"),
        (&["-h", &address, "--pass", "wrong"], 1, "the server refuses the password: WRONGPASS"),
        (&["-h", &address, "--pass", "secret", "--user", "nobody"], 1, "the server refuses the password"),
        (&["-h", &address, "--pass", "secret"], 1, "needs a terminal"),
        (&["-h", &address, "--user", "somebody"], 2, "--pass <PASSWORD>"),
        (&["-i", "0"], 2, "not a number of seconds above 0"),
        (&["--unixsocket", "/nonexistent/socket"], 1, "cannot connect to /nonexistent/socket"),
        (&["-p", "4194305"], 1, "cannot look at the descriptors of process 4194305"),
        (&["--nope"], 2, "unexpected argument '--nope'"),
    ] {
        let began = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_corelane"))
            .arg("top")
            .args(args)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("corelane runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(sentence), "{args:?}: {said}");
        assert!(began.elapsed() < Duration::from_secs(1), "{args:?}: {:?}", began.elapsed());
    }
}

#[test]
fn a_signal_ends_it_in_order() {
    let server = Server::ours(1);
    let Some(terminal) = Terminal::open(80, 24) else { return };
    let pid = server.path("pid");
    let program = env!("CARGO_BIN_EXE_corelane");
    let inner = format!("echo $$ >{}; exec {program} top -h 127.0.0.1:{}", pid.display(), server.port);
    terminal.keys(&["-l", &format!("clear; sh -c '{inner}'; echo exit=$?")]);
    terminal.keys(&["Enter"]);
    terminal.await_text("q quit");
    let pid = std::fs::read_to_string(pid).expect("the process's number");
    let killed = Command::new("kill").args(["-TERM", pid.trim()]).status().expect("kill runs");
    assert!(killed.success());
    let screen = terminal.await_text("exit=0");
    assert!(!screen.contains("q quit"), "{screen}");
}

#[test]
fn without_a_terminal_it_says_so() {
    let server = Server::ours(1);
    let address = format!("127.0.0.1:{}", server.port);
    let output = Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["top", "-h", &address])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("corelane runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("needs a terminal"), "{said}");
}

#[test]
fn it_ends_when_its_terminal_goes_away() {
    if server::stand_in() {
        return;
    }
    let server = Server::ours(1);
    let Some(terminal) = Terminal::open(80, 24) else { return };
    let line = format!("exec {} top -h 127.0.0.1:{} -i 0.2", env!("CARGO_BIN_EXE_corelane"), server.port);
    terminal.keys(&["-l", &line]);
    terminal.keys(&["Enter"]);
    terminal.await_text("q quit");
    let pid = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let pid = String::from_utf8_lossy(&pid.stdout).trim().to_owned();
    let state = format!("/proc/{pid}/status");
    assert!(std::path::Path::new(&state).exists());
    drop(terminal);
    let gone = server::poll(MS_MAX, || (!std::path::Path::new(&state).exists()).then_some(()));
    assert!(gone.is_some(), "process {pid} is still there");
}

/// What is longer than the terminal's lines would be wrapped, and stay when it is written anew.
#[test]
fn live_lines_of_the_other_tools_are_written_over_in_narrow_terminals() {
    let Some(terminal) = Terminal::open(50, 24) else { return };
    let server = Server::ours(1);
    for (line, part, times) in [
        (format!("latency --server 127.0.0.1:{} -D 1", server.port), "min: ", 1),
        ("latency -D 1 -i 10000".to_owned(), "T: 0 (", 1),
        (format!("bench -p {} -t get -q --duration 1", server.port), "GET: rps", 0),
    ] {
        terminal.run_tool(&line);
        let screen = terminal.await_text("exit=0");
        assert_eq!(screen.matches(part).count(), times, "{line}\n{screen}");
    }
}
