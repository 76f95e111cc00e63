//! A table's word: the address of what it holds (an [`Item`]) with 16 bits of its key's hash in the bits that addresses leave free.
//!
//! ```text
//!  63        48 47                                0
//!  ┌───────────┬──────────────────────────────────┐
//!  │ hash tag  │ address of the item              │     0: the word is free
//!  └───────────┴──────────────────────────────────┘
//! ```
//! User space ends below 2^47 on x86-64 and below 2^48 on AArch64 unless a program asks for more, which we never do.

use super::entry::Entry;
use crate::values::BlobItem;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;

/// What a table holds: something behind one pointer that knows its key.
///
/// # Safety
/// `from_raw` gives back what `into_raw` was given, and the address is that of a heap allocation.
pub unsafe trait Item: Sized {
    /// Its key.
    fn key(&self) -> &[u8];

    /// Gives up the handle; `from_raw` takes it back.
    fn into_raw(self) -> NonNull<u8>;

    /// Takes a handle back.
    ///
    /// # Safety
    /// `raw` came from `into_raw`, and no other handle that is made from it is used while this one lives.
    unsafe fn from_raw(raw: NonNull<u8>) -> Self;

    /// Bytes that freeing it gives back.
    fn heap_bytes(&self) -> usize;
}

/// A free word, or one that owns an item. Not `Copy`: whoever moves a word moves the item's ownership with it.
#[repr(transparent)]
pub(crate) struct Word<T: Item>(u64, PhantomData<T>);

impl<T: Item> Word<T> {
    pub(crate) const FREE: Self = Self(0, PhantomData);

    #[inline]
    pub(crate) fn new(tag: u16, item: T) -> Self {
        let address = item.into_raw().as_ptr().expose_provenance() as u64;
        assert_eq!(address & !ADDRESS_MASK, 0, "an address of more than 48 bits");
        Self(address | u64::from(tag) << ADDRESS_BITS, PhantomData)
    }

    #[inline]
    pub(crate) const fn is_free(&self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) const fn tag(&self) -> u16 {
        (self.0 >> ADDRESS_BITS) as u16
    }

    /// A second handle on the item, which must neither outlive the word's borrow nor be dropped.
    #[inline]
    fn alias(&self) -> ManuallyDrop<T> {
        let address = (self.0 & ADDRESS_MASK) as usize;
        let raw = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("the word is not free");
        // SAFETY: the address came from `into_raw` in `new`. The alias is wrapped so that it is never dropped, and
        // callers bind it to a borrow of the word, so it is used under the aliasing rules of that borrow.
        ManuallyDrop::new(unsafe { T::from_raw(raw) })
    }

    #[inline]
    pub(crate) fn item(&self) -> ItemRef<'_, T> {
        ItemRef { item: self.alias(), word: PhantomData }
    }

    #[inline]
    pub(crate) fn item_mut(&mut self) -> ItemMut<'_, T> {
        let (item, tag) = (self.alias(), self.tag());
        // The guard owns the item until it is dropped: if it never is, the item leaks, but nothing dangles.
        self.0 = 0;
        ItemMut { item, tag, word: self }
    }

    /// Takes the item out and leaves the word free.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_free() {
            return None;
        }
        let item = ManuallyDrop::into_inner(self.alias());
        self.0 = 0;
        Some(item)
    }
}

impl<T: Item> Drop for Word<T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.take());
    }
}

// SAFETY: a word owns its item.
unsafe impl<T: Item + Send> Send for Word<T> {}

/// An item seen through its word.
pub struct ItemRef<'a, T: Item> {
    item: ManuallyDrop<T>,
    word: PhantomData<&'a Word<T>>,
}

impl<T: Item> Deref for ItemRef<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.item
    }
}

impl<'a, T: BlobItem> ItemRef<'a, T> {
    /// The bytes of an element, which live as long as the word is borrowed.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let bytes = self.item.blob().bytes();
        // SAFETY: the bytes are on the heap and belong to the word, which is borrowed for 'a; the handle here is only another
        // name for it.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
    }
}

/// An item that may be changed, and with it its address. The word is free until this is dropped.
pub struct ItemMut<'a, T: Item> {
    item: ManuallyDrop<T>,
    tag: u16,
    word: &'a mut Word<T>,
}

impl<T: Item> Deref for ItemMut<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Item> DerefMut for ItemMut<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.item
    }
}

impl<T: Item> Drop for ItemMut<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the handle is not used after this, the word becomes the owner again.
        let item = unsafe { ManuallyDrop::take(&mut self.item) };
        self.word.0 = ManuallyDrop::new(Word::new(self.tag, item)).0;
    }
}

/// A key's entry seen through its word.
/// A key's entry, for reading.
pub(crate) type EntryRef<'a> = ItemRef<'a, Entry>;
/// A key's entry that may be changed.
pub type EntryMut<'a> = ItemMut<'a, Entry>;
