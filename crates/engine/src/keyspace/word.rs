//! A table's word: an entry's address with 16 bits of its key's hash in the bits that addresses leave free.
//!
//! ```text
//!  63        48 47                                0
//!  ┌───────────┬──────────────────────────────────┐
//!  │ hash tag  │ address of the entry             │     0: the word is free
//!  └───────────┴──────────────────────────────────┘
//! ```
//! User space ends below 2^47 on x86-64 and below 2^48 on AArch64 unless a program asks for more, which we never do.

use super::entry::Entry;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;

/// A free word, or one that owns an entry. Not `Copy`: whoever moves a word moves the entry's ownership with it.
#[repr(transparent)]
pub(super) struct Word(u64);

impl Word {
    pub(super) const FREE: Self = Self(0);

    #[inline]
    pub(super) fn new(tag: u16, entry: Entry) -> Self {
        let address = entry.into_raw().as_ptr().expose_provenance() as u64;
        assert_eq!(address & !ADDRESS_MASK, 0, "an address of more than 48 bits");
        Self(address | u64::from(tag) << ADDRESS_BITS)
    }

    #[inline]
    pub(super) const fn is_free(&self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) const fn tag(&self) -> u16 {
        (self.0 >> ADDRESS_BITS) as u16
    }

    /// A second handle on the entry, which must neither outlive the word's borrow nor be dropped.
    #[inline]
    fn alias(&self) -> ManuallyDrop<Entry> {
        let address = (self.0 & ADDRESS_MASK) as usize;
        let raw = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("the word is not free");
        // SAFETY: the address came from `Entry::into_raw` in `new`. The alias is wrapped so that it is never dropped, and
        // callers bind it to a borrow of the word, so it is used under the aliasing rules of that borrow.
        ManuallyDrop::new(unsafe { Entry::from_raw(raw) })
    }

    #[inline]
    pub(super) fn entry(&self) -> EntryRef<'_> {
        EntryRef { entry: self.alias(), word: PhantomData }
    }

    #[inline]
    pub(super) fn entry_mut(&mut self) -> EntryMut<'_> {
        let (entry, tag) = (self.alias(), self.tag());
        // The guard owns the entry until it is dropped: if it never is, the entry leaks, but nothing dangles.
        self.0 = 0;
        EntryMut { entry, tag, word: self }
    }

    /// Takes the entry out and leaves the word free.
    pub(super) fn take(&mut self) -> Option<Entry> {
        if self.is_free() {
            return None;
        }
        let entry = ManuallyDrop::into_inner(self.alias());
        self.0 = 0;
        Some(entry)
    }
}

impl Drop for Word {
    #[inline]
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// An entry seen through its word.
pub(super) struct EntryRef<'a> {
    entry: ManuallyDrop<Entry>,
    word: PhantomData<&'a Word>,
}

impl Deref for EntryRef<'_> {
    type Target = Entry;
    #[inline]
    fn deref(&self) -> &Entry {
        &self.entry
    }
}

/// An entry that may be changed, and with it its address. The word is free until this is dropped.
pub struct EntryMut<'a> {
    entry: ManuallyDrop<Entry>,
    tag: u16,
    word: &'a mut Word,
}

impl Deref for EntryMut<'_> {
    type Target = Entry;
    #[inline]
    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl DerefMut for EntryMut<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Entry {
        &mut self.entry
    }
}

impl Drop for EntryMut<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the handle is not used after this, the word becomes the owner again.
        let entry = unsafe { ManuallyDrop::take(&mut self.entry) };
        self.word.0 = ManuallyDrop::new(Word::new(self.tag, entry)).0;
    }
}
