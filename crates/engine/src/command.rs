//! What a command is: one record that routing, COMMAND, access categories, documentation and the simulator read.

use crate::args::Args;
use crate::ctx::{Ctx, Decide, Next, PartResult, SessionCtx};
use crate::errors::Error;
pub use crate::pace::{Pace, Pacing, PieceSizes};
use crate::session::Client;
use crate::settings::Settings;
use corelane_resp::Reply;

/// Runs on the shard that owns the keys, to completion, and writes the reply.
pub type Handler = fn(&mut Ctx<'_>, Args<'_>, &mut Reply) -> Result<Flow, Error>;
/// Runs on the connection's shard and touches nothing but the connection.
pub type SessionHandler = fn(&mut SessionCtx<'_>, Args<'_>, &mut Reply) -> Result<(), Error>;
/// Makes one reply of the parts' replies.
pub type MergeFn = fn(&[PartResult], Args<'_>, &mut Reply);
/// Chooses the next step of a staged command from the results of the last one.
pub type DecideFn = fn(&mut Decide<'_>) -> Next;

/// Refuses arguments before any shard sees them.
pub type Check = fn(Args<'_>, &Settings) -> Result<(), Error>;

/// Refuses a client for who it is, before the command is counted.
pub type Permit = fn(&Client, Args<'_>, &Settings) -> Result<(), Error>;
/// Whether the argument at this index is one that no log and no monitor may show.
pub type IsSecret = fn(Args<'_>, usize) -> bool;

/// Whether a handler is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The reply is complete.
    Done,
    /// A bounded piece of work is done: call again with this, which is not 0, in `Ctx::resume`. Only where `Ctx::pace` is
    /// [`Pace::Pieces`].
    Again(u64),
    /// It would take long: its key has been looked up, and nothing else has been done. Call again where it can be done in
    /// pieces. Only where `Ctx::pace` is [`Pace::Brief`].
    Later,
}

/// How a command is executed on a sharded keyspace.
#[derive(Clone, Copy)]
pub enum Plan {
    /// On the connection's own shard, without keys.
    Session(SessionHandler),
    /// On the shard of the first key.
    OneShard(Handler),
    /// On one shard that the arguments name in another way (SCAN's cursor); it sees the whole shard.
    Routed {
        /// The slot whose owner runs it.
        route: fn(Args<'_>) -> Result<crate::slot::Slot, Error>,
        /// What it does there.
        run: Handler,
    },
    /// A part on each shard that owns keys of it (or on all, see [`Scope`]), and one reply of all parts'.
    EachShard {
        /// Handles the keys of `Ctx::keys`.
        part: Handler,
        /// Combines the replies.
        merge: Merge,
    },
    /// Reads on all shards involved, then decides, then writes, in as many stages as it needs, under its intents.
    Staged {
        /// Reads; its replies are the results of stage 0.
        read: Handler,
        /// Called after every stage.
        decide: DecideFn,
        /// Runs stage 1, 2, … on the shards that `decide` names.
        write: Handler,
    },
    /// Runs what has been queued since MULTI.
    Exec,
    /// The command is a container of subcommands.
    Container,
}

/// How the replies of the parts become one.
#[derive(Clone, Copy)]
pub enum Merge {
    /// `+OK`, or the first error.
    AllOk,
    /// The sum of integer replies, or the first error.
    Sum,
    /// An array with an element per key, in the order of the keys.
    InKeyOrder,
    /// Anything else.
    With(MergeFn),
}

/// What a command that runs on several shards holds while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Intents on its keys.
    Keys,
    /// The same, also where all of them are on one shard: that is told which client has asked (WATCH).
    Watch,
    /// Intents on every shard as a whole: the database as one value (DBSIZE, FLUSHALL, KEYS).
    Whole,
    /// The same, and alone: it changes every shard's settings (CONFIG SET).
    Alone,
    /// Nothing: it reads the servers' state, not data (INFO, CLIENT LIST).
    Nothing,
}

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $repr:ty { $($(#[$fdoc:meta])* $flag:ident = $bit:expr, $text:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name($repr);
        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);
            $($(#[$fdoc])* pub const $flag: Self = Self(1 << $bit);)*
            const NAMES: &'static [(Self, &'static str)] = &[$((Self::$flag, $text)),*];
            /// Both sets together.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
            /// Whether all flags of `other` are set.
            #[inline]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
            /// Redis's names of the flags that are set, in Redis's order.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
            }
        }
        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }
    };
}

flags! {
    /// The flags of COMMAND INFO.
    Flags: u32 {
        /// Changes data.
        WRITE = 0, "write";
        /// Reads data.
        READONLY = 1, "readonly";
        /// Is refused when memory is short.
        DENYOOM = 2, "denyoom";
        /// For operators.
        ADMIN = 3, "admin";
        /// Belongs to publish/subscribe.
        PUBSUB = 4, "pubsub";
        /// Not allowed in scripts.
        NOSCRIPT = 5, "noscript";
        /// May block its client.
        BLOCKING = 6, "blocking";
        /// Allowed while data is loaded.
        LOADING = 7, "loading";
        /// Allowed on a stale replica.
        STALE = 8, "stale";
        /// Not shown to MONITOR.
        SKIP_MONITOR = 9, "skip_monitor";
        /// Not shown in the slow log.
        SKIP_COMMANDLOG = 10, "skip_commandlog";
        /// Sent with ASKING in clusters.
        ASKING = 11, "asking";
        /// Constant or logarithmic time.
        FAST = 12, "fast";
        /// Allowed before authentication.
        NO_AUTH = 13, "no_auth";
        /// Not allowed in MULTI.
        NO_MULTI = 15, "no_multi";
        /// Its keys depend on the arguments.
        MOVABLEKEYS = 16, "movablekeys";
        /// Allowed while the server is busy with a script.
        ALLOW_BUSY = 17, "allow_busy";
        /// Not allowed asynchronously while loading.
        NO_ASYNC_LOADING = 18, "no_async_loading";
    }
}

flags! {
    /// What a command does to a key.
    KeyFlags: u16 {
        /// Read only.
        RO = 0, "RO";
        /// Read and written.
        RW = 1, "RW";
        /// Overwritten.
        OW = 2, "OW";
        /// Removed.
        RM = 3, "RM";
        /// The value is returned or copied.
        ACCESS = 4, "access";
        /// The value is changed.
        UPDATE = 5, "update";
        /// Something is added.
        INSERT = 6, "insert";
        /// Something is removed.
        DELETE = 7, "delete";
        /// Not a key.
        NOT_KEY = 8, "not_key";
        /// May be missing from what the spec finds.
        INCOMPLETE = 9, "incomplete";
        /// Which of these applies depends on the arguments.
        VARIABLE_FLAGS = 10, "variable_flags";
    }
}

impl Flags {
    /// Concerns replicas though it is no write, and waits for the end of a pause of writes: COMMAND does not show it.
    pub const MAY_REPLICATE: Self = Self(1 << 31);
    /// Ends or leaves a transaction, so that MULTI does not have it wait for EXEC: COMMAND does not show it.
    pub const UNQUEUED: Self = Self(1 << 30);
    /// For whoever listens to channels in RESP2, where messages and replies look alike: COMMAND does not show it.
    pub const WHILE_LISTENING: Self = Self(1 << 29);
}

impl KeyFlags {
    /// Only for the way to a shard: COMMAND does not show it.
    pub const NOT_SHOWN: Self = Self(1 << 15);
}

/// Where keys stand in the arguments (Redis's key specifications).
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// What happens to them.
    pub flags: KeyFlags,
    /// The argument that the search starts at.
    pub begin: usize,
    /// How it goes on.
    pub find: Find,
    /// A remark for COMMAND INFO.
    pub notes: Option<&'static str>,
    /// What happens to the keys with these arguments, where `VARIABLE_FLAGS` says that it depends on them.
    pub flags_for: Option<fn(Args<'_>) -> KeyFlags>,
}

/// How the keys are found from the beginning of their specification.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// Every `step` arguments up to `last`, counted from `begin`, or from the end where negative.
    Range {
        /// The last key: 0 is `begin` itself, -1 the last argument.
        last: i16,
        /// From key to key.
        step: usize,
    },
    /// The argument at `begin` + `count_at` says how many follow from `begin` + `first` on.
    Count {
        /// Where the number stands.
        count_at: usize,
        /// Where the first key stands.
        first: usize,
        /// From key to key.
        step: usize,
    },
    /// Behind a word that may stand anywhere from `begin` on.
    Keyword {
        /// The word.
        word: &'static str,
        /// Where the key is, of all keys of the command that are found in this way.
        key: fn(Args<'_>) -> Option<usize>,
    },
    /// In a way that no specification can say; where there is one key at most, this tells where it is.
    Unknown(Option<fn(Args<'_>) -> Option<usize>>),
}

impl KeySpec {
    /// One key at `begin`.
    pub const fn one(begin: usize, flags: KeyFlags) -> Self {
        Self { flags, begin, find: Find::Range { last: 0, step: 1 }, notes: None, flags_for: None }
    }
    /// Keys from `begin` to the end, every `step` arguments.
    pub const fn all_from(begin: usize, step: usize, flags: KeyFlags) -> Self {
        Self { flags, begin, find: Find::Range { last: -1, step }, notes: None, flags_for: None }
    }
}

/// Keys of one command: arguments `first`, `first + step`, … , `count` of them, and one that may stand apart from these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key's index in the arguments.
    pub first: usize,
    /// From key to key.
    pub step: usize,
    /// How many, the one that stands apart not included.
    pub count: usize,
    /// The index of one more key, before `first` or behind all others: where a result is stored.
    pub apart: Option<usize>,
}

impl KeyRange {
    /// No keys.
    pub const NONE: Self = Self { first: 0, step: 1, count: 0, apart: None };

    /// The one key at an index.
    pub const fn one(idx: usize) -> Self {
        Self { first: idx, step: 1, count: 1, apart: None }
    }

    /// How many keys there are.
    pub const fn len(self) -> usize {
        self.count + self.apart.is_some() as usize
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The indices of the keys in the arguments, in ascending order.
    #[inline]
    pub fn indices(self) -> impl Iterator<Item = usize> + Clone {
        let before = self.apart.filter(|apart| *apart < self.first);
        let behind = self.apart.filter(|apart| *apart >= self.first);
        let row = (0..self.count).map(move |n| self.first + n * self.step);
        before.into_iter().chain(row).chain(behind)
    }
}

/// One command or subcommand.
pub struct Command {
    /// In lower case; for a subcommand without its container's name.
    pub name: &'static str,
    /// Arguments including the name; negative: at least that many.
    pub arity: i16,
    /// What COMMAND INFO says.
    pub flags: Flags,
    /// Access categories beyond those that follow from flags and group, with their `@`.
    pub categories: &'static [&'static str],
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// How it runs.
    pub plan: Plan,
    /// What it holds while it runs on several shards.
    pub scope: Scope,
    /// Tells of which arguments its keys do not follow, since some depend on what others hold: then its scope is the whole database.
    pub widens: Option<fn(Args<'_>) -> bool>,
    /// Tells of which arguments it changes nothing, though it may with others.
    pub only_reads: Option<fn(Args<'_>) -> bool>,
    /// Refuses bad arguments before any shard sees them; needed where several shards would see them.
    pub check: Option<Check>,
    /// Where there is a `check`: fails it before that for clients that may not do what the arguments say.
    pub admit: Option<Permit>,
    /// Refuses clients that may not run it; a subcommand's own goes before its container's.
    pub permit: Option<Permit>,
    /// Tells which of its arguments are passwords or the like; `None`: none is.
    pub secrets: Option<IsSecret>,
    /// The first version of Redis or Valkey that had it.
    pub since: &'static str,
    /// Redis's group: string, generic, connection, server.
    pub group: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// In O notation.
    pub complexity: &'static str,
    /// The arguments as a usage line, from which COMMAND DOCS is made (`commands/command_docs.rs` tells its form).
    pub syntax: &'static str,
    /// What else COMMAND DOCS says: `syscmd` for what no application should use.
    pub doc_flags: &'static [&'static str],
    /// Hints for clients and proxies.
    pub tips: &'static [&'static str],
    /// Of a container.
    pub subcommands: &'static [Self],
    /// To clients it is one command: COMMAND does not show its subcommands, and errors do not tell them apart.
    pub subcommands_hidden: bool,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Command {
    /// What a record leaves out.
    pub const DEFAULT: Self = Self {
        name: "",
        arity: 1,
        flags: Flags::NONE,
        categories: &[],
        keys: &[],
        plan: Plan::Container,
        scope: Scope::Keys,
        widens: None,
        only_reads: None,
        check: None,
        admit: None,
        permit: None,
        secrets: None,
        since: "1.0.0",
        group: "generic",
        summary: "",
        complexity: "O(1)",
        syntax: "",
        doc_flags: &[],
        tips: &[],
        subcommands: &[],
        subcommands_hidden: false,
    };

    /// The subcommands that clients know of.
    pub const fn shown_subcommands(&self) -> &'static [Self] {
        if self.subcommands_hidden { &[] } else { self.subcommands }
    }

    /// The key specifications that clients know of.
    pub const fn shown_keys(&self) -> &'static [KeySpec] {
        match self.keys {
            [spec] if spec.flags.has(KeyFlags::NOT_SHOWN) => &[],
            keys => keys,
        }
    }

    /// Whether `count` arguments, the name included, are as many as it takes.
    #[inline]
    pub const fn accepts(&self, count: usize) -> bool {
        if self.arity >= 0 {
            count == self.arity as usize
        } else {
            count >= self.arity.unsigned_abs() as usize
        }
    }

    /// An argument as logs and monitors show it.
    pub(crate) fn shown<'a>(&self, args: Args<'a>, idx: usize) -> &'a [u8] {
        match self.secrets {
            Some(is_secret) if is_secret(args, idx) => b"(redacted)",
            _ => args.at(idx),
        }
    }

    /// Whether it changes data.
    #[inline]
    pub const fn is_write(&self) -> bool {
        self.flags.has(Flags::WRITE)
    }

    /// Whether this client may run it with these arguments; its shards then need not ask.
    #[inline]
    pub(crate) fn checked(&self, client: &Client, args: Args<'_>, settings: &Settings) -> Result<(), Error> {
        let Some(check) = self.check else { return Ok(()) };
        self.admit.map_or(Ok(()), |admit| admit(client, args, settings))?;
        check(args, settings)
    }

    /// What it holds with these arguments.
    #[inline]
    pub fn scope_for(&self, args: Args<'_>) -> Scope {
        match self.widens {
            Some(widens) if widens(args) => Scope::Whole,
            _ => self.scope,
        }
    }

    /// Whether nothing else may run where it does: it changes data or settings.
    #[inline]
    pub const fn is_exclusive(&self) -> bool {
        self.is_write() || matches!(self.scope, Scope::Alone)
    }

    /// The same with these arguments.
    pub fn is_exclusive_for(&self, args: Args<'_>) -> bool {
        self.is_exclusive() && !self.only_reads.is_some_and(|only_reads| only_reads(args))
    }

    /// Where the keys stand in these arguments; `None` where the arguments do not say so properly.
    pub fn key_range(&self, args: Args<'_>) -> Option<KeyRange> {
        match self.keys {
            [] => Some(KeyRange::NONE),
            [spec] => spec.range(args),
            // A destination, and behind it as many sources as there are.
            [first, KeySpec { begin, find: Find::Range { last: -1, step: 1 }, .. }]
                if *begin == first.begin + 1 =>
            {
                let count = args.len().checked_sub(first.begin)?;
                Some(KeyRange { first: first.begin, step: 1, count, apart: None })
            }
            // A destination, and as many sources as an argument says.
            [destination, sources @ KeySpec { find: Find::Count { .. }, .. }] => {
                Some(KeyRange { apart: Some(destination.begin), ..sources.range(args)? })
            }
            [first, KeySpec { find: Find::Keyword { key, .. }, .. }, ..] => {
                Some(KeyRange { apart: key(args), ..KeyRange::one(first.begin) })
            }
            [first, .., KeySpec { find: Find::Unknown(place), .. }] => {
                let more = place.and_then(|place| place(args)).map(|at| at - first.begin);
                let (step, count) = more.map_or((1, 1), |step| (step, 2));
                Some(KeyRange { first: first.begin, step, count, apart: None })
            }
            [first, .., last] => Some(KeyRange {
                first: first.begin,
                step: (last.begin - first.begin) / (self.keys.len() - 1),
                count: self.keys.len(),
                apart: None,
            }),
        }
    }
}

impl KeySpec {
    /// Whether there are too few arguments for a key that it would find.
    pub(crate) fn finds_none(&self, args: Args<'_>) -> bool {
        self.range(args).is_some_and(|range| range.count == 0)
    }

    fn range(&self, args: Args<'_>) -> Option<KeyRange> {
        match self.find {
            Find::Range { last, step } => {
                let end = if last < 0 {
                    args.len().checked_sub(last.unsigned_abs().into())?
                } else {
                    self.begin + last as usize
                };
                let count = (end + step).checked_sub(self.begin)? / step;
                Some(KeyRange { first: self.begin, step, count, apart: None })
            }
            Find::Count { count_at, first, step } => {
                let count =
                    usize::try_from(crate::args::parse_int(args.get(self.begin + count_at)?)?).ok()?;
                let last = count.checked_sub(1)?.checked_mul(step)?.checked_add(self.begin + first)?;
                let range = KeyRange { first: self.begin + first, step, count, apart: None };
                (last < args.len()).then_some(range)
            }
            Find::Keyword { .. } | Find::Unknown(_) => None,
        }
    }
}
