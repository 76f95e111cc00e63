//! One key with its value in one heap allocation, and a thin pointer to it.
//!
//! ```text
//!  0      1            4           6             8
//!  ┌──────┬────────────┬───────────┬─────────────┬──────────┬──────────┬──────────┬─────────┬─────────┐
//!  │ tag  │ access     │ key len   │ payload len │ long key │ expiry   │ far      │ key     │ payload │
//!  │ u8   │ u24        │ u16       │ u16         │ u64, opt │ u64, opt │ u64, opt │ …       │ …       │
//!  └──────┴────────────┴───────────┴─────────────┴──────────┴──────────┴──────────┴─────────┴─────────┘
//!  tag     bits 0..3 kind of the payload, 3 string encoding is text, 4 expiry present, 5 long key, 6 string encoding is
//!          raw, 7 far expiry
//!  access  when or how often the key was last used (see `access`)
//!  long    the key's length where it does not fit 16 bits
//!  expiry  bits 0..48 Unix time in ms, 48..64 the timing wheel's hint (see `wheel`)
//!  far     the whole of a deadline that does not fit 48 bits (behind the year 10889)
//!  payload what the kind says: a string or a small collection itself, shorter than INLINE_MAX, or the address of a `Box<Value>`
//! ```
//!
//! A 16-byte key with a 64-byte string costs 88 bytes: 8 beyond key and value, 16 with a TTL. This module knows
//! nothing of tables, time or commands.

use super::access::Access;
use super::value::{Detached, Kind, Value, ValueRef};
use super::word::Item;
use crate::values::{HashRef, ListRef, SetRef, SortedSetRef};
use bytes::Bytes;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Strings of this many bytes and more live in an allocation of their own, so that replies can share them.
pub(super) const INLINE_MAX: usize = 16 * 1024;
/// The latest deadline that fits beside the hint, in Unix milliseconds (year 10889); later ones take a word of their own.
const EXPIRY_MAX_MS: u64 = (1 << EXPIRY_BITS) - 1;
/// The hint of an entry that stands in no bucket of the timing wheel.
pub(super) const NO_HINT: u16 = u16::MAX;

const KIND_MASK: u8 = 0b0000_0111;
const KIND_INLINE: u8 = Kind::String as u8;
const KIND_BOXED: u8 = Kind::Boxed as u8;
const TEXT: u8 = 1 << 3;
const HAS_EXPIRY: u8 = 1 << 4;
const LONG_KEY: u8 = 1 << 5;
const RAW: u8 = 1 << 6;
const FAR: u8 = 1 << 7;
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
    fn into_payload(self) -> Result<(Kind, Vec<u8>), Box<Value>> {
        let value = match self {
            Self::Slice(s) if s.len() < INLINE_MAX => return Ok((Kind::String, s.to_vec())),
            Self::Slice(s) => Value::String(Bytes::copy_from_slice(s)),
            Self::Shared(b) => Value::String(b),
            Self::Owned(value) => value,
        };
        value.into_payload(INLINE_MAX).map_err(Box::new)
    }
}

/// What OBJECT ENCODING says of a string beyond what its bytes and length say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StringForm {
    /// Nothing.
    #[default]
    Plain,
    /// It is held as text even where it looks like an integer (it came from INCRBYFLOAT).
    Text,
    /// It was edited in place and has room to grow, however short it is.
    Raw,
}

/// A deadline with the wheel's hint for it.
#[derive(Clone, Copy)]
struct Deadline {
    at: u64,
    hint: u16,
}

impl Deadline {
    const fn is_far(self) -> bool {
        self.at > EXPIRY_MAX_MS
    }

    fn word(self) -> u64 {
        self.at.min(EXPIRY_MAX_MS) | u64::from(self.hint) << EXPIRY_BITS
    }
}

/// A deadline that no bucket of the wheel has a hint for.
const fn unhinted(at: u64) -> Deadline {
    Deadline { at, hint: NO_HINT }
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
        // Eight bytes for each of the two bits.
        self.expiry_at() + usize::from(self.tag & HAS_EXPIRY) / 2 + usize::from(self.tag & FAR) / 16
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
            return Self::build(KIND_INLINE, key, slice, expiry.map(unhinted));
        }
        match value.into_payload() {
            Ok((kind, payload)) => Self::build(kind as u8, key, &payload, expiry.map(unhinted)),
            Err(boxed) => {
                let mut entry = Self::build_boxed(key, boxed, expiry.map(unhinted));
                entry.adopt(expiry);
                entry
            }
        }
    }

    fn build_boxed(key: &[u8], value: Box<Value>, expiry: Option<Deadline>) -> Self {
        let address = Box::into_raw(value).expose_provenance();
        Self::build(KIND_BOXED, key, &address.to_ne_bytes(), expiry)
    }

    /// Allocates and fills an entry.
    fn build(kind_and_form: u8, key: &[u8], payload: &[u8], expiry: Option<Deadline>) -> Self {
        let mut tag = kind_and_form & (KIND_MASK | RAW | TEXT);
        if let Some(deadline) = expiry {
            tag |= HAS_EXPIRY | if deadline.is_far() { FAR } else { 0 };
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
        if let Some(deadline) = expiry {
            entry.write(shape.expiry_at(), &deadline.word().to_ne_bytes());
            if deadline.is_far() {
                entry.write(shape.expiry_at() + 8, &deadline.at.to_ne_bytes());
            }
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
        self.shared_string().map(|bytes| &bytes[..])
    }

    /// The value if it is a hash.
    #[inline]
    pub fn hash(&self) -> Option<HashRef<'_>> {
        if let ValueRef::Hash(hash) = self.value() { Some(hash) } else { None }
    }

    /// The value if it is a list.
    #[inline]
    pub fn list(&self) -> Option<ListRef<'_>> {
        if let ValueRef::List(list) = self.value() { Some(list) } else { None }
    }

    /// The value if it is a set.
    #[inline]
    pub fn set(&self) -> Option<SetRef<'_>> {
        if let ValueRef::Set(set) = self.value() { Some(set) } else { None }
    }

    /// The value if it is a sorted set.
    #[inline]
    pub fn sorted_set(&self) -> Option<SortedSetRef<'_>> {
        if let ValueRef::SortedSet(set) = self.value() { Some(set) } else { None }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        let shape = self.shape();
        match Kind::of(shape.tag) {
            Kind::Boxed => self.boxed(shape).as_ref(),
            kind => kind.read(self.slice(shape.payload_at(), shape.payload_len)),
        }
    }

    /// The value as a shared string, where it is one with an allocation of its own.
    #[inline]
    pub fn shared_string(&self) -> Option<&Bytes> {
        let shape = self.shape();
        if shape.tag & KIND_MASK != KIND_BOXED {
            return None;
        }
        match self.boxed(shape) {
            Value::String(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Redis's name of the value's type.
    pub fn type_name(&self) -> &'static str {
        self.value().type_name()
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
        self.overwrite(value, self.deadline());
    }

    /// Overwrites value and deadline, keeping the key; the hint stays from deadline to deadline.
    #[inline]
    pub(super) fn set_value_and_expiry(&mut self, value: NewValue<'_>, expiry: Option<u64>) {
        let hint = self.hint();
        self.overwrite(value, expiry.map(|at| Deadline { at, hint }));
    }

    #[inline]
    fn overwrite(&mut self, value: NewValue<'_>, expiry: Option<Deadline>) {
        let shape = self.shape();
        if let NewValue::Slice(slice) = value
            && shape.tag & KIND_MASK == KIND_INLINE
            && slice.len() == shape.payload_len
            && shape.tag & (HAS_EXPIRY | FAR) == if expiry.is_some() { HAS_EXPIRY } else { 0 }
            && !expiry.is_some_and(Deadline::is_far)
        {
            self.write(0, &[shape.tag & !(RAW | TEXT)]);
            if let Some(deadline) = expiry {
                self.write(shape.expiry_at(), &deadline.word().to_ne_bytes());
            }
            self.write(shape.payload_at(), slice);
            return;
        }
        let replacement = match value {
            NewValue::Slice(slice) if slice.len() < INLINE_MAX => {
                Self::build(KIND_INLINE, self.key(), slice, expiry)
            }
            other => match other.into_payload() {
                Ok((kind, payload)) => Self::build(kind as u8, self.key(), &payload, expiry),
                Err(boxed) => {
                    self.replace(Self::build_boxed(self.key(), boxed, expiry));
                    self.adopt(expiry.map(|deadline| deadline.at));
                    return;
                }
            },
        };
        self.replace(replacement);
    }

    /// Puts another entry in this one's place, which keeps its access time.
    fn replace(&mut self, replacement: Self) {
        replacement.write(ACCESS_AT, &self.read::<3>(ACCESS_AT));
        *self = replacement;
    }

    /// Changes a value by `change`, which must leave its type as it is. A small one is copied into `scratch`, changed there and
    /// copied back; a large one is changed where it is.
    pub fn edit<T>(&mut self, scratch: &mut Vec<u8>, change: impl FnOnce(&mut Value) -> T) -> T {
        let shape = self.shape();
        let kind = Kind::of(shape.tag);
        if kind == Kind::Boxed {
            let expiry = self.expiry();
            let result = change(self.boxed_mut(shape));
            if expiry != self.due() || self.timed_fields().is_some() {
                self.set_expiry(expiry);
            }
            let shape = self.shape();
            if self.boxed_mut(shape).trim_list() {
                let short = std::mem::take(self.boxed_mut(shape));
                self.set_value(NewValue::Owned(short));
            }
            return result;
        }
        let mut payload = std::mem::take(scratch);
        payload.clear();
        payload.extend_from_slice(self.slice(shape.payload_at(), shape.payload_len));
        let mut value = kind.own(payload);
        let result = change(&mut value);
        match value.into_payload(INLINE_MAX) {
            Ok((new, payload)) if new == kind && payload.len() == shape.payload_len => {
                self.write(shape.payload_at(), &payload);
                *scratch = payload;
            }
            Ok((new, payload)) => {
                let replacement = Self::build(new as u8, self.key(), &payload, self.deadline());
                self.replace(replacement);
                *scratch = payload;
            }
            Err(value) => {
                let expiry = self.due();
                let replacement = Self::build_boxed(self.key(), Box::new(value), self.deadline());
                self.replace(replacement);
                self.adopt(expiry);
            }
        }
        result
    }

    /// Takes out a value that takes long to free, and leaves an empty string.
    pub(super) fn take_large(&mut self) -> Option<Value> {
        let shape = self.shape();
        if shape.tag & KIND_MASK != KIND_BOXED || !self.boxed(shape).is_large() {
            return None;
        }
        Some(std::mem::take(self.boxed_mut(shape)))
    }

    /// Changes a string by `change`, growing it in place where it has an allocation of its own. `change` sees the
    /// present bytes; afterwards the string's encoding is raw, as in Redis after APPEND, SETRANGE or SETBIT.
    pub fn edit_string(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let shape = self.shape();
        let boxed = shape.tag & KIND_MASK == KIND_BOXED;
        let mut content = match boxed.then(|| std::mem::take(self.boxed_mut(shape))) {
            // A `Bytes` that nobody else holds gives its allocation, spare capacity included, back without a copy.
            Some(Value::String(bytes)) => Vec::from(bytes),
            _ => self.slice(shape.payload_at(), shape.payload_len).to_vec(),
        };
        change(&mut content);
        if boxed && content.len() >= INLINE_MAX {
            *self.boxed_mut(shape) = Value::String(Bytes::from(content));
        } else if content.len() >= INLINE_MAX {
            // Room to grow: a string that is edited once is likely to be edited again.
            content.reserve(content.len() / 4);
            self.set_value(NewValue::Shared(Bytes::from(content)));
        } else {
            self.set_value(NewValue::Slice(&content));
        }
        self.set_form(StringForm::Raw);
    }

    /// Takes the entry apart: what is left of it without its key, for another key, database or shard.
    pub fn detach(mut self) -> Detached {
        let shape = self.shape();
        if shape.tag & KIND_MASK != KIND_BOXED {
            return self.clone_detached();
        }
        let (expiry, form) = (self.expiry(), self.form());
        Detached { value: std::mem::take(self.boxed_mut(shape)), expiry, form }
    }

    /// A copy of what the key holds; long strings are shared.
    pub fn clone_detached(&self) -> Detached {
        let shape = self.shape();
        let value = match Kind::of(shape.tag) {
            Kind::Boxed => self.boxed(shape).clone(),
            kind => kind.own(self.slice(shape.payload_at(), shape.payload_len).to_vec()),
        };
        Detached { value, expiry: self.expiry(), form: self.form() }
    }

    pub(super) fn set_form(&mut self, form: StringForm) {
        let bits = match form {
            StringForm::Plain => 0,
            StringForm::Text => TEXT,
            StringForm::Raw => RAW,
        };
        let tag = self.shape().tag & !(RAW | TEXT) | bits;
        self.write(0, &[tag]);
    }

    /// The deadline's lower 48 bits, or as many ones, and the hint.
    #[inline]
    fn expiry_word(&self) -> Option<u64> {
        let shape = self.shape();
        (shape.tag & HAS_EXPIRY != 0).then(|| u64::from_ne_bytes(self.read(shape.expiry_at())))
    }

    /// When the key, or the first field of a hash, vanishes, in Unix milliseconds.
    #[inline]
    pub(super) fn due(&self) -> Option<u64> {
        let shape = self.shape();
        match shape.tag & (HAS_EXPIRY | FAR) {
            0 => None,
            HAS_EXPIRY => Some(u64::from_ne_bytes(self.read(shape.expiry_at())) & EXPIRY_MAX_MS),
            _ => Some(u64::from_ne_bytes(self.read(shape.expiry_at() + 8))),
        }
    }

    fn deadline(&self) -> Option<Deadline> {
        self.due().map(|at| Deadline { at, hint: self.hint() })
    }

    /// Where the timing wheel holds a hint for this key; `NO_HINT` where it does not.
    pub fn hint(&self) -> u16 {
        self.expiry_word().map_or(NO_HINT, |word| (word >> EXPIRY_BITS) as u16)
    }

    fn set_due(&mut self, expiry: Option<u64>) {
        let (shape, old) = (self.shape(), self.deadline());
        let new = expiry.map(|at| Deadline { at, hint: old.map_or(NO_HINT, |old| old.hint) });
        match (new, old) {
            (None, None) => {}
            (Some(new), Some(old)) if !new.is_far() && !old.is_far() => {
                self.write(shape.expiry_at(), &new.word().to_ne_bytes());
            }
            _ => {
                let (kind, payload) = (shape.tag, self.slice(shape.payload_at(), shape.payload_len));
                let replacement = Self::build(kind, self.key(), payload, new);
                // The payload's box, if any, belongs to the replacement now.
                self.write(0, &[shape.tag & !KIND_MASK]);
                self.replace(replacement);
            }
        }
    }

    /// The 24 bits in which `access` keeps when or how often the key is used.
    #[inline]
    pub fn access(&self) -> Access {
        let [a, b, c] = self.read(ACCESS_AT);
        Access(u32::from_le_bytes([a, b, c, 0]))
    }

    /// Keeps the lower 24 bits.
    #[inline]
    pub fn set_access(&mut self, access: Access) {
        let [a, b, c, _] = access.0.to_le_bytes();
        self.write(ACCESS_AT, &[a, b, c]);
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
}

// SAFETY: the pointer is that of the entry's allocation, and the handle is nothing else.
unsafe impl Item for Entry {
    #[inline]
    fn key(&self) -> &[u8] {
        Self::key(self)
    }

    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw)
    }

    fn heap_bytes(&self) -> usize {
        self.size()
    }
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

mod deadline;
#[cfg(test)]
mod tests;
