//! The fields of a small hash some of which have deadlines, or had: one pack of field, value, deadline, field, value, deadline, …
//!
//! Fields and values are kept as the strings that they are; a deadline is an integer, 0 where there is none. What
//! [`super::fields`] says of fields whose time has come holds here, too.

use super::element::Element;
use super::field_table::FieldTable;
use super::pack::{Pack, PackRef};

/// Unix time in milliseconds.
type Millis = u64;

/// How many elements of the pack a field takes.
const STRIDE: usize = 3;
/// Bytes that a field takes beside its name, its value and a deadline, if they are short; and a deadline.
const FRAMES: usize = 8;
/// More fields are not looked for one by one,
const FIELDS_MAX: usize = 128;
/// nor among more bytes.
const PACK_BYTES_MAX: usize = 8192;

/// Few fields with values and deadlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimedPack {
    pack: Pack,
    /// How many fields have a deadline.
    timed: usize,
    /// The key's own deadline: its entry holds whatever comes first, that or a field's.
    key_expiry: Option<Millis>,
    /// Fields whose time had come by then are hidden; 0 where none are.
    hidden_until: Millis,
    /// For the form that many fields have.
    seed: u64,
}

/// A field with what belongs to it, and where these are.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    at: usize,
    value_at: usize,
    deadline_at: usize,
    end: usize,
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    /// 0 for none.
    deadline: Millis,
}

impl Field<'_> {
    pub(super) const fn deadline(&self) -> Option<Millis> {
        if self.deadline == 0 { None } else { Some(self.deadline) }
    }

    const fn is_due(&self, now: Millis) -> bool {
        self.deadline != 0 && self.deadline <= now
    }
}

fn field_at(pack: PackRef<'_>, at: usize) -> Field<'_> {
    let text = |at| match pack.get(at) {
        Element::Bytes(bytes) => bytes,
        _ => b"",
    };
    let value_at = pack.end_of(at);
    let deadline_at = pack.end_of(value_at);
    let deadline = match pack.get(deadline_at) {
        Element::Int(deadline) => deadline as Millis,
        _ => 0,
    };
    let end = pack.end_of(deadline_at);
    Field { at, value_at, deadline_at, end, name: text(at), value: text(value_at), deadline }
}

impl TimedPack {
    /// None yet, with room for those of a hash without deadlines.
    pub(super) fn with_room(without: PackRef<'_>, seed: u64) -> Self {
        let mut pack = Pack::default();
        pack.make_room(without.bytes().len() + without.len() / 2);
        Self { pack, timed: 0, key_expiry: None, hidden_until: 0, seed }
    }

    /// Whether it may have one more field, of so many bytes together with its value.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.stored() < FIELDS_MAX && self.pack.as_ref().bytes().len() + bytes <= PACK_BYTES_MAX
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.pack.heap_bytes()
    }

    /// How many there are, hidden ones included.
    pub(super) fn stored(&self) -> usize {
        self.pack.as_ref().len() / STRIDE
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        if self.hidden_until == 0 { self.stored() } else { self.visible().count() }
    }

    /// All of them, hidden ones included, in the order in which they came.
    fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let pack = self.pack.as_ref();
        let first = pack.first().map(|at| field_at(pack, at));
        std::iter::successors(first, move |field| {
            (field.end < pack.bytes().len()).then(|| field_at(pack, field.end))
        })
    }

    /// Those that are not hidden.
    pub(super) fn visible(&self) -> impl Iterator<Item = Field<'_>> {
        self.fields().filter(|field| !self.is_hidden(field))
    }

    fn is_hidden(&self, field: &Field<'_>) -> bool {
        field.is_due(self.hidden_until)
    }

    /// A field, whether or not it is hidden.
    fn find(&self, name: &[u8]) -> Option<Field<'_>> {
        self.fields().find(|field| field.name == name)
    }

    /// A field that is not hidden.
    pub(super) fn get(&self, name: &[u8]) -> Option<Field<'_>> {
        self.find(name).filter(|field| !self.is_hidden(field))
    }

    /// Sets the value of a field, which has no deadline then, or keeps the one that it has; true if the field is new.
    pub(super) fn set(&mut self, name: &[u8], value: &[u8], keep_deadline: bool) -> bool {
        let Some(field) = self.find(name) else {
            self.pack.make_room(name.len() + value.len() + FRAMES);
            self.pack.push_back(Element::Bytes(name));
            self.pack.push_back(Element::Bytes(value));
            self.pack.push_back(Element::Int(0));
            return true;
        };
        let (value_at, hidden) = (field.value_at, self.is_hidden(&field));
        let more = value.len().saturating_sub(field.value.len());
        self.pack.make_room(more + FRAMES);
        self.pack.replace(value_at, Element::Bytes(value));
        if hidden || !keep_deadline {
            self.set_deadline(name, None);
        }
        hidden
    }

    /// Removes a field; true if it was there.
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        let Some(Field { at, deadline, .. }) = self.get(name) else { return false };
        self.take_out(at, deadline);
        true
    }

    fn take_out(&mut self, at: usize, deadline: Millis) {
        self.pack.remove(at, STRIDE);
        self.pack.trim();
        self.count_timed(deadline, 0);
    }

    /// Keeps what follows from how many deadlines there are.
    fn count_timed(&mut self, old: Millis, new: Millis) {
        self.timed = self.timed + usize::from(new != 0) - usize::from(old != 0);
        if self.timed == 0 {
            (self.key_expiry, self.hidden_until) = (None, 0);
        }
    }

    /// Gives a field that is there a deadline below 2^63, or takes it away.
    pub(super) fn set_deadline(&mut self, name: &[u8], deadline: Option<Millis>) {
        let Some(Field { deadline_at, deadline: old, .. }) = self.find(name) else { return };
        let new = deadline.unwrap_or(0);
        self.pack.make_room(FRAMES);
        self.pack.replace(deadline_at, Element::Int(new as i64));
        self.count_timed(old, new);
    }

    /// When the next field vanishes, or the first of the hidden ones was to.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        if self.timed == 0 {
            return None;
        }
        self.fields().filter_map(|field| field.deadline()).min()
    }

    /// Whether no field is left at a time.
    pub(super) fn is_over(&self, now: Millis) -> bool {
        self.timed != 0 && self.timed == self.stored() && self.fields().all(|field| field.is_due(now))
    }

    /// Removes fields whose time has come, at most `budget`, and hides the others of them; how many it has removed.
    pub(super) fn drop_expired(&mut self, now: Millis, budget: usize) -> usize {
        let (mut dropped, mut next) = (0, self.pack.as_ref().first());
        while let Some(at) = next.filter(|at| self.timed != 0 && *at < self.pack.as_ref().bytes().len()) {
            let field = field_at(self.pack.as_ref(), at);
            if !field.is_due(now) {
                next = Some(field.end);
                continue;
            }
            if dropped == budget {
                self.hidden_until = now;
                return dropped;
            }
            let deadline = field.deadline;
            self.take_out(at, deadline);
            dropped += 1;
        }
        self.hidden_until = 0;
        dropped
    }

    /// The key's deadline that is kept here; the outer `None` where there are no deadlines of fields.
    pub(super) fn key_expiry(&self) -> Option<Option<Millis>> {
        (self.timed != 0).then_some(self.key_expiry)
    }

    /// Keeps the key's deadline where there are deadlines of fields.
    pub(super) fn keep_key_expiry(&mut self, expiry: Option<Millis>) {
        if self.timed != 0 {
            self.key_expiry = expiry;
        }
    }

    /// The same in the form for many fields.
    pub(super) fn to_table(&self) -> FieldTable {
        let mut table = FieldTable::new(self.seed);
        for field in self.fields() {
            table.set(field.name, field.value);
            if let Some(at) = field.deadline() {
                table.set_deadline(field.name, Some(at));
            }
        }
        table.keep(self.key_expiry, self.hidden_until);
        table
    }
}
