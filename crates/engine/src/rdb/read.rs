//! Reading values.

use super::packed::{intset, listpack, ziplist};
use super::{Field, Portable, lzf, types};

/// Why a value cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The bytes are not what their type says.
    #[error("malformed value")]
    Malformed,
    /// A type that is not known here.
    #[error("unknown type {0}")]
    UnknownType(u8),
}

use Unreadable::Malformed;

/// A length, or one of the special encodings of a string.
enum Length {
    Plain(usize),
    Special(u8),
}

/// A value whose type has been read, and how much of it has not. A unit of it is what is read at once: an element with what
/// belongs to it, a node of many elements, or all of it.
#[derive(Clone, Copy, Debug)]
pub struct Unread {
    number: u8,
    units: usize,
}

impl Unread {
    /// How many units are left.
    pub const fn units(self) -> usize {
        self.units
    }

    /// About how many elements a unit has, where `bytes` hold so many `units`; a long string is as many short ones.
    pub fn unit_len(self, bytes: usize, units: usize) -> usize {
        const SHORT_BYTES: usize = 512;
        const PACKED_BYTES: usize = 8;
        let unit_bytes = bytes / units.max(1);
        match self.number {
            types::STRING => unit_bytes / SHORT_BYTES,
            types::LIST
            | types::SET
            | types::HASH
            | types::HASH_DEADLINES
            | types::ZSET_TEXT
            | types::ZSET => 1,
            _ => unit_bytes / PACKED_BYTES,
        }
        .max(1)
    }

    /// Takes so many units, or as many as there are.
    fn take(&mut self, units: usize) -> usize {
        let taken = units.min(self.units);
        self.units -= taken;
        taken
    }
}

/// Reads from bytes that are all there.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// Pairs of elements, which there must be a whole number of, at least one.
fn pairs(elements: Vec<Vec<u8>>) -> Result<impl Iterator<Item = (Vec<u8>, Vec<u8>)>, Unreadable> {
    if elements.is_empty() || !elements.len().is_multiple_of(2) {
        return Err(Malformed);
    }
    let mut elements = elements.into_iter();
    Ok(std::iter::from_fn(move || Some((elements.next()?, elements.next()?))))
}

/// A score in text. Redis writes `inf`, `-inf` and what C's `%.17g` prints.
fn score(text: &[u8]) -> Result<f64, Unreadable> {
    let score: f64 = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)?;
    if score.is_nan() { Err(Malformed) } else { Ok(score) }
}

impl<'a> Reader<'a> {
    /// Reads from these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn length_or_special(&mut self) -> Result<Length, Unreadable> {
        let [head] = self.array()?;
        let len = match head >> 6 {
            0 => usize::from(head),
            1 => usize::from(head & 0x3F) << 8 | usize::from(self.array::<1>()?[0]),
            2 if head == 0x80 => u32::from_be_bytes(self.array()?) as usize,
            2 if head == 0x81 => usize::try_from(u64::from_be_bytes(self.array()?)).map_err(|_| Malformed)?,
            2 => return Err(Malformed),
            _ => return Ok(Length::Special(head & 0x3F)),
        };
        Ok(Length::Plain(len))
    }

    fn length(&mut self) -> Result<usize, Unreadable> {
        match self.length_or_special()? {
            Length::Plain(len) => Ok(len),
            Length::Special(_) => Err(Malformed),
        }
    }

    /// A count of elements, of which there is at least one.
    fn count(&mut self) -> Result<usize, Unreadable> {
        self.length().and_then(|count| if count == 0 { Err(Malformed) } else { Ok(count) })
    }

    /// A string, in any of its encodings.
    pub fn string(&mut self) -> Result<Vec<u8>, Unreadable> {
        let int = |int: i64| Ok(int.to_string().into_bytes());
        match self.length_or_special()? {
            Length::Plain(len) => Ok(self.take(len)?.to_vec()),
            Length::Special(0) => int(i8::from_le_bytes(self.array()?).into()),
            Length::Special(1) => int(i16::from_le_bytes(self.array()?).into()),
            Length::Special(2) => int(i32::from_le_bytes(self.array()?).into()),
            Length::Special(3) => {
                let (packed, len) = (self.length()?, self.length()?);
                lzf::decompress(self.take(packed)?, len).ok_or(Malformed)
            }
            Length::Special(_) => Err(Malformed),
        }
    }

    fn strings(&mut self, count: usize) -> Result<Vec<Vec<u8>>, Unreadable> {
        (0..count).map(|_| self.string()).collect()
    }

    /// A score as sorted sets had it before Redis 5: a length, and text; or one of three lengths that stand for numbers.
    fn old_score(&mut self) -> Result<f64, Unreadable> {
        match self.array()? {
            [253] => Err(Malformed),
            [254] => Ok(f64::INFINITY),
            [255] => Ok(f64::NEG_INFINITY),
            [len] => score(self.take(len.into())?),
        }
    }

    /// A type and a value of it.
    ///
    /// # Errors
    /// The type is unknown, or what follows is none of its values: cut off, of lengths that do not fit, without elements, or
    /// with an element twice.
    pub fn value(&mut self) -> Result<Portable, Unreadable> {
        let mut unread = self.begin()?;
        let value = self.some(&mut unread, usize::MAX)?;
        if is_sound(&value) { Ok(value) } else { Err(Malformed) }
    }

    /// A type, and how many units its value has.
    ///
    /// # Errors
    /// There is no type, or there are no units.
    pub fn begin(&mut self) -> Result<Unread, Unreadable> {
        let [number] = self.array()?;
        let units = match number {
            types::LIST
            | types::LIST_QUICKLIST
            | types::LIST_QUICKLIST_2
            | types::SET
            | types::HASH
            | types::HASH_DEADLINES
            | types::ZSET_TEXT
            | types::ZSET => self.count()?,
            _ => 1,
        };
        Ok(Unread { number, units })
    }

    /// The next units of a value, at most so many. That no element comes twice is not looked at.
    ///
    /// # Errors
    /// The type is unknown, or what follows is none of its values.
    pub fn some(&mut self, unread: &mut Unread, units: usize) -> Result<Portable, Unreadable> {
        let (number, units) = (unread.number, unread.take(units));
        Ok(match number {
            types::STRING => Portable::String(self.string()?),
            types::LIST | types::LIST_ZIPLIST | types::LIST_QUICKLIST | types::LIST_QUICKLIST_2 => {
                Portable::List(self.list(number, units)?)
            }
            types::SET | types::SET_INTSET | types::SET_LISTPACK => Portable::Set(self.set(number, units)?),
            types::HASH | types::HASH_ZIPLIST | types::HASH_LISTPACK | types::HASH_DEADLINES => {
                Portable::Hash(self.hash(number, units)?)
            }
            types::ZSET_TEXT | types::ZSET | types::ZSET_ZIPLIST | types::ZSET_LISTPACK => {
                Portable::SortedSet(self.sorted_set(number, units)?)
            }
            unknown => return Err(Unreadable::UnknownType(unknown)),
        })
    }

    fn list(&mut self, number: u8, units: usize) -> Result<Vec<Vec<u8>>, Unreadable> {
        const PLAIN_NODE: usize = 1;
        match number {
            types::LIST => self.strings(units),
            types::LIST_ZIPLIST => ziplist(&self.string()?),
            _ => {
                let mut elements = Vec::new();
                for _ in 0..units {
                    if number == types::LIST_QUICKLIST {
                        elements.append(&mut ziplist(&self.string()?)?);
                    } else if self.length()? == PLAIN_NODE {
                        elements.push(self.string()?);
                    } else {
                        elements.append(&mut listpack(&self.string()?)?);
                    }
                }
                Ok(elements)
            }
        }
    }

    fn set(&mut self, number: u8, units: usize) -> Result<Vec<Vec<u8>>, Unreadable> {
        match number {
            types::SET => self.strings(units),
            types::SET_INTSET => intset(&self.string()?),
            _ => listpack(&self.string()?),
        }
    }

    fn hash(&mut self, number: u8, units: usize) -> Result<Vec<Field>, Unreadable> {
        const NO_DEADLINE: i64 = -1;
        let plain = |(name, value)| Field { name, value, expiry: None };
        match number {
            types::HASH_ZIPLIST => Ok(pairs(ziplist(&self.string()?)?)?.map(plain).collect()),
            types::HASH_LISTPACK => Ok(pairs(listpack(&self.string()?)?)?.map(plain).collect()),
            _ => (0..units)
                .map(|_| {
                    let (name, value) = (self.string()?, self.string()?);
                    let expiry = match number {
                        types::HASH_DEADLINES => i64::from_le_bytes(self.array()?),
                        _ => NO_DEADLINE,
                    };
                    Ok(Field { name, value, expiry: u64::try_from(expiry).ok() })
                })
                .collect(),
        }
    }

    fn sorted_set(&mut self, number: u8, units: usize) -> Result<Vec<(Vec<u8>, f64)>, Unreadable> {
        let scored = |(member, text): (Vec<u8>, Vec<u8>)| Ok((member, score(&text)?));
        match number {
            types::ZSET_ZIPLIST => pairs(ziplist(&self.string()?)?)?.map(scored).collect(),
            types::ZSET_LISTPACK => pairs(listpack(&self.string()?)?)?.map(scored).collect(),
            _ => (0..units)
                .map(|_| {
                    let member = self.string()?;
                    let score = match number {
                        types::ZSET => f64::from_le_bytes(self.array()?),
                        _ => self.old_score()?,
                    };
                    if score.is_nan() { Err(Malformed) } else { Ok((member, score)) }
                })
                .collect(),
        }
    }
}

/// Whether a collection has elements, and none twice that may be there once.
fn is_sound(value: &Portable) -> bool {
    let once = |names: &mut dyn Iterator<Item = &Vec<u8>>| {
        let mut names: Vec<&Vec<u8>> = names.collect();
        names.sort_unstable();
        !names.is_empty() && names.is_sorted_by(|a, b| a < b)
    };
    match value {
        Portable::String(_) => true,
        Portable::List(elements) => !elements.is_empty(),
        Portable::Set(members) => once(&mut members.iter()),
        Portable::Hash(fields) => once(&mut fields.iter().map(|field| &field.name)),
        Portable::SortedSet(members) => once(&mut members.iter().map(|(member, _)| member)),
    }
}
