//! Values in Redis's RDB format: what DUMP gives, RESTORE takes, and snapshot files hold.
//!
//! ```text
//!  ┌──────┬─────────────────────┬─────────────────┬───────────────┐
//!  │ type │ value               │ RDB version     │ CRC-64        │     a payload of DUMP
//!  │ u8   │ as the type says    │ u16, LE         │ u64, LE       │
//!  └──────┴─────────────────────┴─────────────────┴───────────────┘
//! ```
//! Written are the types that every Redis since 4.0 reads, with version 10 (Redis 7.0), and, where a hash has fields with
//! deadlines, Valkey 9's type with its version 80. Read is everything from Redis 2.6 to Valkey 9.1 that holds one of our types.
//! The format has no description but the code that writes it; the encodings here were found by looking at payloads and at the
//! public notes of <https://rdb.fnordig.de>.

mod lzf;
mod packed;
mod read;
mod write;

pub use read::{Reader, Unread, Unreadable};
pub use write::Writer;

use crc::{CRC_64_REDIS, Crc, Table};

/// The version of Redis 7.0.
const VERSION: u16 = 10;
/// The version of Valkey 9, in which hashes have fields with deadlines.
const VERSION_FIELD_DEADLINES: u16 = 80;
/// The versions in between were given by Redis after Valkey had left: their types need not be the same.
const FOREIGN_VERSIONS: std::ops::Range<u16> = 12..VERSION_FIELD_DEADLINES;
const FOOTER_LEN: usize = 10;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Numbers of the types.
mod types {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const ZSET_TEXT: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const ZSET: u8 = 5;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const ZSET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_QUICKLIST: u8 = 14;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const ZSET_LISTPACK: u8 = 17;
    pub(super) const LIST_QUICKLIST_2: u8 = 18;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const HASH_DEADLINES: u8 = 22;
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Portable {
    /// A string.
    String(Vec<u8>),
    /// A list.
    List(Vec<Vec<u8>>),
    /// A set.
    Set(Vec<Vec<u8>>),
    /// A hash.
    Hash(Vec<Field>),
    /// A sorted set; members with scores.
    SortedSet(Vec<(Vec<u8>, f64)>),
}

/// A field of a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// When it vanishes, in Unix milliseconds.
    pub expiry: Option<u64>,
}

/// The checksum of bytes that follow others, whose checksum is given: 0 for none.
pub fn checksum(before: u64, bytes: &[u8]) -> u64 {
    // The algorithm reflects what it begins with.
    let mut digest = CRC.digest_with_initial(before.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

/// Makes a payload of what a writer has written: version and checksum are added. So many of the bytes have been summed up before,
/// to this checksum.
pub fn seal(writer: Writer, (summed, before): (usize, u64)) -> Vec<u8> {
    let version = if writer.has_field_deadlines() { VERSION_FIELD_DEADLINES } else { VERSION };
    let mut payload = writer.into_bytes();
    payload.extend_from_slice(&version.to_le_bytes());
    let checksum = checksum(before, &payload[summed..]);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// Whether payloads must have the right checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Others are refused.
    #[default]
    Checked,
    /// It does not matter: for tests with broken payloads.
    Ignored,
}

/// Of which versions payloads may be (`rdb-version-check`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// Those that are known.
    #[default]
    Strict,
    /// Any: of Redis after Valkey had left it, or of the future.
    Relaxed,
}

/// A payload of a version that may be.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    /// What it holds, without version and checksum.
    pub content: &'a [u8],
    /// What the checksum is of: with the version.
    pub summed: &'a [u8],
    /// The checksum.
    pub checksum: u64,
    /// Its version is one of Redis's own.
    foreign: bool,
}

impl<'a> Sealed<'a> {
    /// Looks at the end of a payload; `None` where it has none, or that of a version that may not be.
    pub fn of(payload: &'a [u8], versions: Versions) -> Option<Self> {
        let (content, footer) = payload.split_at_checked(payload.len().checked_sub(FOOTER_LEN)?)?;
        let (version, checksum) = footer.split_at(2);
        let version = u16::from_le_bytes(version.try_into().ok()?);
        let checksum = u64::from_le_bytes(checksum.try_into().ok()?);
        let foreign = FOREIGN_VERSIONS.contains(&version);
        let known = version <= VERSION_FIELD_DEADLINES && !foreign;
        let may_be = version != 0 && (known || versions == Versions::Relaxed);
        may_be.then_some(Self { content, summed: &payload[..content.len() + 2], checksum, foreign })
    }

    /// The number of its type, where that is another one's under its version.
    pub fn foreign_type(&self) -> Option<u8> {
        self.content.first().copied().filter(|number| self.foreign && *number == types::HASH_DEADLINES)
    }
}

#[cfg(test)]
mod tests;
