//! What happens to keys, as keyspace notifications tell it (`notify-keyspace-events`).

/// A set of Redis's event classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventClasses(u16);

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $letter:expr;)*) => {
        impl EventClasses {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*
            const LETTERS: &'static [(Self, u8)] = &[$((Self::$name, $letter)),*];
        }
    };
}

classes! {
    /// Channels named after the key: `__keyspace@0__:key`.
    KEYSPACE = 0, b'K';
    /// Channels named after the event: `__keyevent@0__:del`.
    KEYEVENT = 1, b'E';
    /// Of all types: DEL, EXPIRE, RENAME, …
    GENERIC = 2, b'g';
    /// Of strings.
    STRING = 3, b'$';
    /// Of lists.
    LIST = 4, b'l';
    /// Of sets.
    SET = 5, b's';
    /// Of hashes.
    HASH = 6, b'h';
    /// Of sorted sets.
    SORTED_SET = 7, b'z';
    /// A key's time has come.
    EXPIRED = 8, b'x';
    /// A key had to go because memory is short.
    EVICTED = 9, b'e';
    /// Of streams.
    STREAM = 10, b't';
    /// Of modules.
    MODULE = 11, b'd';
    /// A key that was read is not there.
    MISSED = 12, b'm';
    /// A key that was not there is.
    NEW = 13, b'n';
}

impl EventClasses {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// The classes that a value of `notify-keyspace-events` names; `A` stands for all of the kinds of events but `m` and `n`.
    pub fn from_letters(letters: &str) -> Self {
        letters.bytes().fold(Self::NONE, |set, letter| {
            let named = Self::LETTERS.iter().filter(|(class, own)| {
                *own == letter || (letter == b'A' && (Self::GENERIC.0..=Self::MODULE.0).contains(&class.0))
            });
            named.fold(set, |set, (class, _)| Self(set.0 | class.0))
        })
    }

    /// Whether all of `other` are among them.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Something that happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// Its class.
    pub class: EventClasses,
    /// Its name, such as `hset`.
    pub name: &'static str,
    /// The database.
    pub db: usize,
    /// The key.
    pub key: Box<[u8]>,
}

#[cfg(test)]
mod tests {
    use super::EventClasses;

    #[test]
    fn letters_name_classes() {
        let all = EventClasses::from_letters("AKE");
        assert!(
            all.has(EventClasses::KEYSPACE) && all.has(EventClasses::STREAM) && all.has(EventClasses::MODULE)
        );
        assert!(!all.has(EventClasses::MISSED) && !all.has(EventClasses::NEW));
        let some = EventClasses::from_letters("Elm");
        assert!(some.has(EventClasses::LIST) && some.has(EventClasses::MISSED));
        assert!(!some.has(EventClasses::KEYSPACE) && !some.has(EventClasses::STRING));
    }
}
