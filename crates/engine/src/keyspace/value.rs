//! Values that do not fit into their entry's own allocation.

use super::entry::StringForm;
use bytes::Bytes;

/// A value with an allocation of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string; replies share it without a copy.
    String(Bytes),
}

impl Default for Value {
    fn default() -> Self {
        Self::String(Bytes::new())
    }
}

impl Value {
    /// Bytes that the value holds on the heap, its own struct included.
    pub fn size(&self) -> usize {
        let Self::String(bytes) = self;
        size_of::<Self>() + bytes.len()
    }

    /// Redis's name of the type, as TYPE prints it.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
        }
    }
}

/// What a key holds, on its way to another key, database or shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The value.
    pub value: Value,
    /// The deadline in Unix milliseconds.
    pub expiry: Option<u64>,
    /// What OBJECT ENCODING says of it, if it is a string.
    pub form: StringForm,
}
