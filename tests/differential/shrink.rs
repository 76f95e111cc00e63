//! Cuts a failing sequence of commands down to a shortest one that still fails.

use crate::common::words::{self, Command};

/// Upper bound on the runs one shrinking may take.
const RUNS_MAX: usize = 600;

/// Removes runs of commands, halving their length down to one (delta debugging, Zeller 1999), then single arguments,
/// then makes arguments plain, as long as `fails` stays true.
pub(crate) fn shortest(commands: Vec<Command>, fails: impl Fn(&[Command]) -> bool) -> Vec<Command> {
    let mut search = Search { best: commands, fails, runs_left: RUNS_MAX };
    search.remove_commands();
    search.remove_arguments();
    search.simplify_arguments();
    search.remove_commands();
    search.best
}

struct Search<F> {
    best: Vec<Command>,
    fails: F,
    runs_left: usize,
}

impl<F: Fn(&[Command]) -> bool> Search<F> {
    /// Keeps `candidate` if it fails too.
    fn attempt(&mut self, candidate: Vec<Command>) -> bool {
        if self.runs_left == 0 || candidate == self.best {
            return false;
        }
        self.runs_left -= 1;
        let better = (self.fails)(&candidate);
        if better {
            self.best = candidate;
        }
        better
    }

    fn remove_commands(&mut self) {
        let mut size = self.best.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < self.best.len() {
                let mut candidate = self.best.clone();
                candidate.drain(at..(at + size).min(self.best.len()));
                if !self.attempt(candidate) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn remove_arguments(&mut self) {
        for command in (0..self.best.len()).rev() {
            for argument in (1..self.best[command].len()).rev() {
                let mut candidate = self.best.clone();
                candidate[command].remove(argument);
                self.attempt(candidate);
            }
        }
    }

    fn simplify_arguments(&mut self) {
        for command in 0..self.best.len() {
            for argument in 1..self.best[command].len() {
                for plain in ["a", "1"] {
                    let mut candidate = self.best.clone();
                    candidate[command][argument] = plain.into();
                    if self.attempt(candidate) {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_failure_of_two_commands_shrinks_to_these() {
    let noise = (0..30).map(|n| words::parse(&format!("SET key:{n} {n} EX 100")));
    let mut commands: Vec<Command> = noise.collect();
    commands.insert(7, words::parse("APPEND k some-value"));
    commands.insert(25, words::parse("INCR k"));
    let fails = |commands: &[Command]| {
        let at = |name: &str| commands.iter().position(|command| words::name(command) == name);
        matches!((at("APPEND"), at("INCR")), (Some(append), Some(incr)) if append < incr && commands[incr].len() > 1)
    };
    let lines: Vec<String> = shortest(commands, fails).iter().map(|command| words::print(command)).collect();
    assert_eq!(lines, ["APPEND", "INCR a"]);
}
