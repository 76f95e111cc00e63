//! Faults that the simulator switches on, to show that its checker notices them.

/// Ways to break the protocol on purpose, so that the simulator can show that its checker notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Participants let go of their intents as soon as they have granted them.
    pub release_early: bool,
    /// EXEC runs although watched keys have changed.
    pub ignore_watches: bool,
    /// Every claim on a command that waits is granted.
    pub grants_blindly: bool,
    /// Who has come last is served first.
    pub serves_last: bool,
    /// Keys that are made under intents wake nobody who waits for them.
    pub misses_new: bool,
    /// Commands that are done in pieces hold no intents in between.
    pub reads_unguarded: bool,
}
