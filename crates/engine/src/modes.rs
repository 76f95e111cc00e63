//! What a connection may have asked for and few have: one word, and while it is zero a command looks no further.

/// The modes a connection is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes(u16);

impl Modes {
    /// None.
    pub const NONE: Self = Self(0);
    /// `CLIENT NO-EVICT on`: not to be disconnected for the sake of memory.
    pub const NO_EVICT: Self = Self(1);
    /// `CLIENT NO-TOUCH on`: its reads are no accesses.
    pub const NO_TOUCH: Self = Self(1 << 1);
    /// `CLIENT REPLY OFF`.
    pub const REPLY_OFF: Self = Self(1 << 2);
    /// `CLIENT REPLY SKIP` was its last command.
    pub const SKIP_NEXT: Self = Self(1 << 3);
    /// The command being run is the one that `CLIENT REPLY SKIP` was for.
    pub const SKIP: Self = Self(1 << 4);
    /// Has asked for MONITOR and is not answered yet.
    pub const MONITOR_SOON: Self = Self(1 << 5);
    /// Is shown the commands of all clients.
    pub const MONITOR: Self = Self(1 << 6);
    /// `CLIENT CAPA redirect`: can be sent to another server.
    pub const REDIRECT: Self = Self(1 << 7);
    /// Listens to channels, or is about to.
    pub const SUBSCRIBED: Self = Self(1 << 8);
    /// Between MULTI and EXEC: its commands are queued, or being run.
    pub const MULTI: Self = Self(1 << 9);

    const MUTING: u16 = Self::REPLY_OFF.0 | Self::SKIP.0;
    /// What RESET leaves as it is.
    const LASTING: u16 = Self::REDIRECT.0;

    /// Whether it is in none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it is in this mode, or in one of several.
    #[inline]
    pub const fn has(self, mode: Self) -> bool {
        self.0 & mode.0 != 0
    }

    /// Whether it is in either of two modes, for [`Self::has`].
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Enters or leaves a mode.
    pub const fn set(&mut self, mode: Self, on: bool) {
        self.0 = if on { self.0 | mode.0 } else { self.0 & !mode.0 };
    }

    /// Whether the command being run is to have no reply.
    #[inline]
    pub const fn mutes(self) -> bool {
        self.0 & Self::MUTING != 0
    }

    /// Another command begins, or input that is none.
    pub(crate) const fn next_command(&mut self) {
        self.set(Self::SKIP, self.has(Self::SKIP_NEXT));
        self.set(Self::SKIP_NEXT, false);
    }

    /// RESET, which itself has no reply where CLIENT REPLY SKIP came before it.
    pub(crate) const fn reset(&mut self) {
        self.0 &= Self::LASTING | Self::SKIP.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_mutes_one_command() {
        let mut modes = Modes::NONE;
        modes.set(Modes::SKIP_NEXT, true);
        let muted: Vec<bool> = (0..3)
            .map(|_| {
                modes.next_command();
                modes.mutes()
            })
            .collect();
        assert_eq!((muted, modes), (vec![true, false, false], Modes::NONE));
    }

    #[test]
    fn reset_keeps_what_the_client_can_do() {
        let mut modes = Modes::REPLY_OFF.or(Modes::REDIRECT).or(Modes::NO_EVICT);
        assert!(modes.mutes() && modes.has(Modes::NO_EVICT));
        modes.reset();
        assert_eq!(modes, Modes::REDIRECT);
    }
}
