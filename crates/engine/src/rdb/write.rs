//! Writing values.

use super::types;

/// Collects what is written.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
    field_deadlines: bool,
}

impl Writer {
    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// The same so far.
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Makes room for so many bytes more.
    pub fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes);
    }

    /// Whether it takes Valkey 9 to read it.
    pub const fn has_field_deadlines(&self) -> bool {
        self.field_deadlines
    }

    fn length(&mut self, len: usize) {
        match len {
            0..0x40 => self.out.push(len as u8),
            0x40..0x4000 => self.out.extend_from_slice(&[0x40 | (len >> 8) as u8, len as u8]),
            0x4000..=0xFFFF_FFFF => {
                self.out.push(0x80);
                self.out.extend_from_slice(&(len as u32).to_be_bytes());
            }
            _ => {
                self.out.push(0x81);
                self.out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    /// A string of so many bytes, which must follow.
    pub fn string(&mut self, len: usize) {
        self.out.push(types::STRING);
        self.length(len);
    }

    /// Bytes of a string.
    pub fn part(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A list of so many elements, which must follow.
    pub fn list(&mut self, len: usize) {
        self.out.push(types::LIST);
        self.length(len);
    }

    /// A set of so many members, which must follow.
    pub fn set(&mut self, len: usize) {
        self.out.push(types::SET);
        self.length(len);
    }

    /// An element of a list or a member of a set.
    pub fn element(&mut self, bytes: &[u8]) {
        self.text(bytes);
    }

    /// A hash of so many fields, which must follow; with deadlines, every field has one, or `None` for never.
    pub fn hash(&mut self, len: usize, deadlines: bool) {
        self.field_deadlines = deadlines;
        self.out.push(if deadlines { types::HASH_DEADLINES } else { types::HASH });
        self.length(len);
    }

    /// A field with its value; `expiry` in Unix milliseconds.
    pub fn field(&mut self, name: &[u8], value: &[u8], expiry: Option<u64>) {
        self.text(name);
        self.text(value);
        if self.field_deadlines {
            let expiry = expiry.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX));
            self.out.extend_from_slice(&expiry.to_le_bytes());
        }
    }

    /// A sorted set of so many members, which must follow.
    pub fn sorted_set(&mut self, len: usize) {
        self.out.push(types::ZSET);
        self.length(len);
    }

    /// A member with its score.
    pub fn member(&mut self, member: &[u8], score: f64) {
        self.text(member);
        self.out.extend_from_slice(&score.to_le_bytes());
    }
}
