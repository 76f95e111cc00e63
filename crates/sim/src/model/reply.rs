//! Replies, as far as the workload's commands have them.

use corelane_resp::Frame;

/// What a single-threaded Redis would answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Ok,
    Int(i64),
    Text(Option<String>),
    Texts(Vec<Option<String>>),
    /// In any order.
    Names(Vec<String>),
    /// One of these; none if there are none.
    OneOf(Vec<String>),
    /// A key and some of its elements.
    Popped(String, Vec<String>),
    /// A text that begins with this and goes on.
    Payload(Vec<u8>),
    Nothing,
    Error,
}

impl Expected {
    pub(super) fn texts(texts: impl IntoIterator<Item = String>) -> Self {
        Self::Texts(texts.into_iter().map(Some).collect())
    }

    /// Whether `reply` is that.
    pub(super) fn is(&self, reply: &Frame) -> bool {
        match (self, reply) {
            (Self::Ok, Frame::Simple(text)) => text.as_ref() == b"OK",
            (Self::Int(value), Frame::Int(got)) => value == got,
            (Self::Error, Frame::Error(_)) | (Self::Nothing, Frame::Null) => true,
            (Self::Payload(start), Frame::Bulk(bytes)) => {
                bytes.starts_with(start) && bytes.len() > start.len()
            }
            (Self::Text(text), frame) => text_of(frame).as_ref() == Some(text),
            (Self::Texts(texts), Frame::Array(items)) => {
                items.len() == texts.len()
                    && items.iter().zip(texts).all(|(item, text)| text_of(item).as_ref() == Some(text))
            }
            (Self::Names(names), Frame::Array(items)) => {
                let mut got: Vec<String> = items.iter().filter_map(text_of).flatten().collect();
                got.sort();
                items.len() == names.len() && got == *names
            }
            (Self::OneOf(names), frame) => match text_of(frame) {
                Some(Some(name)) => names.contains(&name),
                Some(None) => names.is_empty(),
                None => false,
            },
            (Self::Popped(key, elements), Frame::Array(items)) => {
                let [name, Frame::Array(popped)] = &items[..] else { return false };
                text_of(name).as_ref() == Some(&Some(key.clone()))
                    && Self::texts(elements.clone()).is(&Frame::Array(popped.clone()))
            }
            _ => false,
        }
    }
}

fn text_of(frame: &Frame) -> Option<Option<String>> {
    match frame {
        Frame::Bulk(bytes) => Some(Some(String::from_utf8_lossy(bytes).into_owned())),
        Frame::Null => Some(None),
        _ => None,
    }
}
