//! One key with its value in one heap allocation, and a thin pointer to it.
//!
//! ```text
//!  0      1            4           6             8
//!  ┌──────┬────────────┬───────────┬─────────────┬──────────┬──────────┬─────────┬─────────┐
//!  │ tag  │ access     │ key len   │ payload len │ long key │ expiry   │ key     │ payload │
//!  │ u8   │ u24        │ u16       │ u16         │ u64, opt │ u64, opt │ …       │ …       │
//!  └──────┴────────────┴───────────┴─────────────┴──────────┴──────────┴─────────┴─────────┘
//!  tag     bits 0..4 kind of the payload, 4 expiry present, 5 long key, 6 string encoding is raw
//!  access  when the key was last used, in seconds modulo 2^24
//!  long    the key's length where it does not fit 16 bits
//!  expiry  bits 0..48 Unix time in ms, 48..64 the timing wheel's hint (see `wheel`)
//!  payload Kind::Inline: the string itself, shorter than INLINE_MAX; Kind::Boxed: the address of a `Box<Value>`
//! ```
//!
//! A 16-byte key with a 64-byte string costs 88 bytes: 8 beyond key and value, 16 with a TTL. This module knows
//! nothing of tables, time or commands.

use super::value::{Detached, Value};
use bytes::Bytes;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Strings of this many bytes and more live in an allocation of their own, so that replies can share them.
pub(super) const INLINE_MAX: usize = 16 * 1024;
/// The latest deadline an entry can hold, in Unix milliseconds (year 10889); later ones are cut to it.
pub(super) const EXPIRY_MAX_MS: u64 = (1 << EXPIRY_BITS) - 1;
/// The hint of an entry that stands in no bucket of the timing wheel.
pub(super) const NO_HINT: u16 = u16::MAX;

const KIND_MASK: u8 = 0b0000_1111;
const KIND_INLINE: u8 = 0;
const KIND_BOXED: u8 = 1;
const HAS_EXPIRY: u8 = 1 << 4;
const LONG_KEY: u8 = 1 << 5;
const RAW: u8 = 1 << 6;
const HEADER: usize = 8;
const ACCESS_AT: usize = 1;
const EXPIRY_BITS: u32 = 48;

/// A key and its value; owns its allocation.
#[repr(transparent)]
pub struct Entry(NonNull<u8>);

/// A value on its way into an entry.
#[derive(Debug)]
pub enum NewValue<'a> {
    /// A string, copied.
    Slice(&'a [u8]),
    /// A string that may be shared when it is long enough.
    Shared(Bytes),
    /// A value that another entry gave up.
    Owned(Value),
}

impl NewValue<'_> {
    fn into_parts(self) -> Result<Vec<u8>, Box<Value>> {
        match self {
            Self::Slice(s) if s.len() < INLINE_MAX => Ok(s.to_vec()),
            Self::Slice(s) => Err(Box::new(Value::String(Bytes::copy_from_slice(s)))),
            Self::Shared(b) if b.len() < INLINE_MAX => Ok(b.to_vec()),
            Self::Shared(b) => Err(Box::new(Value::String(b))),
            Self::Owned(Value::String(b)) if b.len() < INLINE_MAX => Ok(b.to_vec()),
            Self::Owned(v) => Err(Box::new(v)),
        }
    }
}

/// Sizes and offsets that follow from an entry's header.
#[derive(Clone, Copy)]
struct Shape {
    tag: u8,
    key_len: usize,
    payload_len: usize,
}

impl Shape {
    fn expiry_at(self) -> usize {
        HEADER + if self.tag & LONG_KEY != 0 { 8 } else { 0 }
    }
    fn key_at(self) -> usize {
        self.expiry_at() + if self.tag & HAS_EXPIRY != 0 { 8 } else { 0 }
    }
    fn payload_at(self) -> usize {
        self.key_at() + self.key_len
    }
    fn size(self) -> usize {
        self.payload_at() + self.payload_len
    }
    fn layout(self) -> Layout {
        Layout::from_size_align(self.size(), 8).expect("an entry is smaller than isize::MAX")
    }
}

impl Entry {
    /// An entry for `key`. `expiry` is a Unix time in milliseconds.
    pub fn new(key: &[u8], value: NewValue<'_>, expiry: Option<u64>) -> Self {
        if let NewValue::Slice(slice) = value
            && slice.len() < INLINE_MAX
        {
            return Self::build(KIND_INLINE, key, slice, expiry.map(pack_expiry));
        }
        match value.into_parts() {
            Ok(inline) => Self::build(KIND_INLINE, key, &inline, expiry.map(pack_expiry)),
            Err(boxed) => Self::build_boxed(key, boxed, expiry.map(pack_expiry)),
        }
    }

    fn build_boxed(key: &[u8], value: Box<Value>, expiry: Option<u64>) -> Self {
        let address = Box::into_raw(value).expose_provenance();
        Self::build(KIND_BOXED, key, &address.to_ne_bytes(), expiry)
    }

    /// Allocates and fills an entry; `expiry` is the packed word.
    fn build(kind_and_raw: u8, key: &[u8], payload: &[u8], expiry: Option<u64>) -> Self {
        let mut tag = kind_and_raw & (KIND_MASK | RAW);
        if expiry.is_some() {
            tag |= HAS_EXPIRY;
        }
        if key.len() > usize::from(u16::MAX) {
            tag |= LONG_KEY;
        }
        let shape = Shape { tag, key_len: key.len(), payload_len: payload.len() };
        // SAFETY: the layout's size is at least HEADER, so it is not zero.
        let raw = unsafe { alloc(shape.layout()) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(shape.layout()) };
        let entry = Self(ptr);
        let short_key_len = if tag & LONG_KEY != 0 { 0 } else { key.len() as u16 };
        entry.write(0, &[tag, 0, 0, 0]);
        entry.write(4, &short_key_len.to_le_bytes());
        entry.write(6, &(payload.len() as u16).to_le_bytes());
        if tag & LONG_KEY != 0 {
            entry.write(HEADER, &(key.len() as u64).to_ne_bytes());
        }
        if let Some(word) = expiry {
            entry.write(shape.expiry_at(), &word.to_ne_bytes());
        }
        entry.write(shape.key_at(), key);
        entry.write(shape.payload_at(), payload);
        entry
    }

    /// Writes `bytes` at `at`, which must lie inside the allocation.
    #[inline]
    fn write(&self, at: usize, bytes: &[u8]) {
        // SAFETY: callers pass offsets of fields of this entry's shape, which the allocation was made for.
        let target = unsafe { self.0.add(at) };
        // SAFETY: as above, `bytes` fits behind `target`, and no reference into the entry is alive while it is written
        // (writers hold the only handle).
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    #[inline]
    fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        // SAFETY: callers pass offsets of initialised fields of this entry's shape.
        let source = unsafe { self.0.add(at) };
        // SAFETY: as above, N bytes are readable there; a byte array has alignment 1.
        unsafe { source.cast::<[u8; N]>().read() }
    }

    #[inline]
    fn shape(&self) -> Shape {
        let header = u64::from_le_bytes(self.read(0));
        let tag = header as u8;
        let key_len = if tag & LONG_KEY != 0 {
            u64::from_ne_bytes(self.read(HEADER)) as usize
        } else {
            usize::from((header >> 32) as u16)
        };
        Shape { tag, key_len, payload_len: usize::from((header >> 48) as u16) }
    }

    #[inline]
    fn slice(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: callers pass a field of this entry's shape.
        let start = unsafe { self.0.add(at) };
        // SAFETY: the field is initialised and lives as long as the borrow of the entry.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let shape = self.shape();
        self.slice(shape.key_at(), shape.key_len)
    }

    /// Reads the first and the last byte, for the sake of having them in the cache.
    #[inline]
    pub(super) fn end_byte(&self) -> usize {
        let last = self.shape().size() - 1;
        usize::from(self.read::<1>(last)[0])
    }

    /// The value if it is a string.
    #[inline]
    pub fn string(&self) -> Option<&[u8]> {
        let shape = self.shape();
        if shape.tag & KIND_MASK == KIND_INLINE {
            return Some(self.slice(shape.payload_at(), shape.payload_len));
        }
        let Value::String(bytes) = self.boxed(shape);
        Some(bytes)
    }

    /// The value as a shared string, where it is one with an allocation of its own.
    #[inline]
    pub fn shared_string(&self) -> Option<&Bytes> {
        let shape = self.shape();
        if shape.tag & KIND_MASK == KIND_INLINE {
            return None;
        }
        let Value::String(bytes) = self.boxed(shape);
        Some(bytes)
    }

    /// Redis's name of the value's type.
    pub fn type_name(&self) -> &'static str {
        let shape = self.shape();
        if shape.tag & KIND_MASK == KIND_INLINE { "string" } else { self.boxed(shape).type_name() }
    }

    fn box_ptr(&self, shape: Shape) -> *mut Value {
        debug_assert_eq!(shape.tag & KIND_MASK, KIND_BOXED);
        std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(self.read(shape.payload_at())))
    }

    fn boxed(&self, shape: Shape) -> &Value {
        // SAFETY: a boxed entry owns the `Box<Value>` whose address it holds; the borrow of the entry keeps it alive.
        unsafe { &*self.box_ptr(shape) }
    }

    fn boxed_mut(&mut self, shape: Shape) -> &mut Value {
        // SAFETY: as in `boxed`, and the entry is borrowed exclusively.
        unsafe { &mut *self.box_ptr(shape) }
    }

    /// Overwrites the value, keeping key and deadline. Copies in place where the size stays the same.
    #[inline]
    pub fn set_value(&mut self, value: NewValue<'_>) {
        self.overwrite(value, self.expiry_word());
    }

    /// Overwrites value and deadline, keeping the key; the hint stays from deadline to deadline.
    #[inline]
    pub(super) fn set_value_and_expiry(&mut self, value: NewValue<'_>, expiry: Option<u64>) {
        let hint = u64::from(self.hint()) << EXPIRY_BITS;
        self.overwrite(value, expiry.map(|at| at.min(EXPIRY_MAX_MS) | hint));
    }

    /// `expiry` is the packed word.
    #[inline]
    fn overwrite(&mut self, value: NewValue<'_>, expiry: Option<u64>) {
        let shape = self.shape();
        if let NewValue::Slice(slice) = value
            && shape.tag & KIND_MASK == KIND_INLINE
            && slice.len() == shape.payload_len
            && (shape.tag & HAS_EXPIRY != 0) == expiry.is_some()
        {
            self.write(0, &[shape.tag & !RAW]);
            if let Some(word) = expiry {
                self.write(shape.expiry_at(), &word.to_ne_bytes());
            }
            self.write(shape.payload_at(), slice);
            return;
        }
        let replacement = match value {
            NewValue::Slice(slice) if slice.len() < INLINE_MAX => {
                Self::build(KIND_INLINE, self.key(), slice, expiry)
            }
            other => match other.into_parts() {
                Ok(inline) => Self::build(KIND_INLINE, self.key(), &inline, expiry),
                Err(boxed) => Self::build_boxed(self.key(), boxed, expiry),
            },
        };
        self.replace(replacement);
    }

    /// Puts another entry in this one's place, which keeps its access time.
    fn replace(&mut self, replacement: Self) {
        replacement.write(ACCESS_AT, &self.read::<3>(ACCESS_AT));
        *self = replacement;
    }

    /// Changes a string by `change`, growing it in place where it has an allocation of its own. `change` sees the
    /// present bytes; afterwards the string's encoding is raw, as in Redis after APPEND, SETRANGE or SETBIT.
    pub fn edit_string(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let shape = self.shape();
        let mut content = if shape.tag & KIND_MASK == KIND_INLINE {
            self.slice(shape.payload_at(), shape.payload_len).to_vec()
        } else {
            let Value::String(bytes) = self.boxed_mut(shape);
            // A `Bytes` that nobody else holds gives its allocation, spare capacity included, back without a copy.
            Vec::from(std::mem::take(bytes))
        };
        change(&mut content);
        if shape.tag & KIND_MASK == KIND_BOXED && content.len() >= INLINE_MAX {
            let Value::String(bytes) = self.boxed_mut(shape);
            *bytes = Bytes::from(content);
        } else if content.len() >= INLINE_MAX {
            // Room to grow: a string that is edited once is likely to be edited again.
            content.reserve(content.len() / 4);
            self.set_value(NewValue::Shared(Bytes::from(content)));
        } else {
            self.set_value(NewValue::Slice(&content));
        }
        self.set_raw();
    }

    /// Whether the string's encoding is raw whatever its length (it was edited in place).
    pub fn is_raw(&self) -> bool {
        self.shape().tag & RAW != 0
    }

    /// Takes the entry apart: what is left of it without its key, for another key, database or shard.
    pub fn detach(mut self) -> Detached {
        let shape = self.shape();
        if shape.tag & KIND_MASK == KIND_INLINE {
            return self.clone_detached();
        }
        let (expiry, raw) = (self.expiry(), self.is_raw());
        Detached { value: std::mem::take(self.boxed_mut(shape)), expiry, raw }
    }

    /// A copy of what the key holds; long strings are shared.
    pub fn clone_detached(&self) -> Detached {
        let shape = self.shape();
        let value = if shape.tag & KIND_MASK == KIND_INLINE {
            Value::String(Bytes::copy_from_slice(self.slice(shape.payload_at(), shape.payload_len)))
        } else {
            self.boxed(shape).clone()
        };
        Detached { value, expiry: self.expiry(), raw: self.is_raw() }
    }

    /// Marks the string's encoding as raw, as after an edit in place.
    pub(super) fn set_raw(&mut self) {
        let tag = self.shape().tag | RAW;
        self.write(0, &[tag]);
    }

    #[inline]
    fn expiry_word(&self) -> Option<u64> {
        let shape = self.shape();
        (shape.tag & HAS_EXPIRY != 0).then(|| u64::from_ne_bytes(self.read(shape.expiry_at())))
    }

    /// When the key vanishes, in Unix milliseconds.
    #[inline]
    pub fn expiry(&self) -> Option<u64> {
        self.expiry_word().map(|word| word & EXPIRY_MAX_MS)
    }

    /// Where the timing wheel holds a hint for this key; `NO_HINT` where it does not.
    pub fn hint(&self) -> u16 {
        self.expiry_word().map_or(NO_HINT, |word| (word >> EXPIRY_BITS) as u16)
    }

    /// Sets or removes the deadline. The hint survives a change of deadline; without a deadline there is none.
    pub fn set_expiry(&mut self, expiry: Option<u64>) {
        let shape = self.shape();
        match (expiry, self.expiry_word()) {
            (Some(at), Some(old)) => {
                let word = at.min(EXPIRY_MAX_MS) | (old & !EXPIRY_MAX_MS);
                self.write(shape.expiry_at(), &word.to_ne_bytes());
            }
            (None, None) => {}
            (new, _) => {
                let (kind, payload) = (shape.tag, self.slice(shape.payload_at(), shape.payload_len));
                let replacement = Self::build(kind, self.key(), payload, new.map(pack_expiry));
                // The payload's box, if any, belongs to the replacement now.
                self.write(0, &[shape.tag & !KIND_MASK]);
                self.replace(replacement);
            }
        }
    }

    /// Notes an access at `now_s` seconds; kept modulo 2^24, which is half a year.
    #[inline]
    pub fn touch(&mut self, now_s: u64) {
        let [a, b, c, ..] = now_s.to_le_bytes();
        self.write(ACCESS_AT, &[a, b, c]);
    }

    /// Seconds since the last access, as of `now_s`.
    pub fn idle_s(&self, now_s: u64) -> u64 {
        let [a, b, c] = self.read(ACCESS_AT);
        now_s.wrapping_sub(u64::from(u32::from_le_bytes([a, b, c, 0]))) & 0xFF_FFFF
    }

    /// Records the wheel's hint; does nothing for an entry without a deadline.
    pub fn set_hint(&mut self, hint: u16) {
        if let Some(word) = self.expiry_word() {
            let word = (word & EXPIRY_MAX_MS) | u64::from(hint) << EXPIRY_BITS;
            self.write(self.shape().expiry_at(), &word.to_ne_bytes());
        }
    }

    /// Bytes that this entry holds, its boxed value included.
    pub fn size(&self) -> usize {
        let shape = self.shape();
        let boxed = if shape.tag & KIND_MASK == KIND_BOXED { self.boxed(shape).size() } else { 0 };
        shape.size() + boxed
    }

    /// Gives up the handle; `from_raw` takes it back.
    #[inline]
    pub(super) fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    /// # Safety
    /// `raw` came from `into_raw` and no other `Entry` is made from it while this one lives.
    #[inline]
    pub(super) unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw)
    }
}

fn pack_expiry(at: u64) -> u64 {
    at.min(EXPIRY_MAX_MS) | u64::from(NO_HINT) << EXPIRY_BITS
}

impl Drop for Entry {
    fn drop(&mut self) {
        let shape = self.shape();
        if shape.tag & KIND_MASK == KIND_BOXED {
            // SAFETY: the entry owns the box; nobody reads it after the entry is gone.
            drop(unsafe { Box::from_raw(self.box_ptr(shape)) });
        }
        // SAFETY: allocated in `build` with the layout of this very shape.
        unsafe { dealloc(self.0.as_ptr(), shape.layout()) };
    }
}

// SAFETY: an entry owns all it points to and has no interior mutability.
unsafe impl Send for Entry {}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("key", &Bytes::copy_from_slice(self.key())).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_values_and_deadlines_survive_every_change_of_shape() {
        for key_len in [0, 1, 16, 65_535, 65_536, 70_000] {
            let key = vec![b'k'; key_len];
            let mut entry = Entry::new(&key, NewValue::Slice(b"v"), None);
            for len in [0, 1, 64, INLINE_MAX - 1, INLINE_MAX, 3] {
                let value = vec![b'x'; len];
                entry.set_value(NewValue::Slice(&value));
                assert_eq!((entry.key(), entry.string()), (&key[..], Some(&value[..])));
                entry.set_expiry(Some(77));
                entry.set_hint(5);
                entry.set_expiry(Some(78));
                assert_eq!((entry.expiry(), entry.hint()), (Some(78), 5));
                entry.set_value(NewValue::Shared(Bytes::from(value.clone())));
                assert_eq!((entry.expiry(), entry.string()), (Some(78), Some(&value[..])));
                entry.set_expiry(None);
                assert_eq!((entry.expiry(), entry.hint(), entry.string()), (None, NO_HINT, Some(&value[..])));
            }
        }
    }

    #[test]
    fn edits_cross_the_inline_limit_in_both_directions() {
        let mut entry = Entry::new(b"k", NewValue::Slice(b"ab"), Some(9));
        entry.edit_string(|s| s.resize(INLINE_MAX + 1, 0));
        assert_eq!(entry.string().map(<[u8]>::len), Some(INLINE_MAX + 1));
        entry.edit_string(|s| s.push(1));
        entry.edit_string(|s| s.truncate(2));
        assert_eq!((entry.string(), entry.expiry(), entry.is_raw()), (Some(&b"ab"[..]), Some(9), true));
        let copy = entry.clone_detached();
        assert_eq!((&copy.value, copy.expiry, copy.raw), (&Value::String(Bytes::from("ab")), Some(9), true));
        assert_eq!(entry.detach(), copy);
    }

    #[test]
    fn the_last_access_survives_every_change_of_shape() {
        let mut entry = Entry::new(b"k", NewValue::Slice(b"v"), None);
        entry.touch(1000);
        entry.set_value(NewValue::Slice(b"longer"));
        entry.set_expiry(Some(5));
        entry.set_value_and_expiry(NewValue::Slice(&[0; INLINE_MAX]), None);
        entry.edit_string(|s| s.truncate(1));
        assert_eq!(entry.idle_s(1007), 7);
    }

    #[test]
    fn value_and_deadline_are_overwritten_together() {
        let mut entry = Entry::new(b"k", NewValue::Slice(b"v"), Some(5));
        entry.set_hint(9);
        for (value, expiry) in [("w", Some(6)), ("long", Some(7)), ("gone", None), ("back", Some(8))] {
            let hint = if expiry.is_some() { entry.hint() } else { NO_HINT };
            entry.set_value_and_expiry(NewValue::Slice(value.as_bytes()), expiry);
            assert_eq!(
                (entry.string(), entry.expiry(), entry.hint()),
                (Some(value.as_bytes()), expiry, hint)
            );
        }
    }

    #[test]
    fn a_small_string_costs_eight_bytes_and_sixteen_with_a_deadline() {
        let entry = Entry::new(&[b'k'; 16], NewValue::Slice(&[0; 64]), None);
        assert_eq!(entry.size(), 16 + 64 + 8);
        let entry = Entry::new(&[b'k'; 16], NewValue::Slice(&[0; 64]), Some(1));
        assert_eq!(entry.size(), 16 + 64 + 16);
    }
}
