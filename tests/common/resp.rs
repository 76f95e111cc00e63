//! Reply decoding for tests, written apart from the codec under test so that one bug cannot hide the other.

use std::fmt;

/// One decoded RESP2 or RESP3 reply.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    /// `$-1`, `*-1` or `_`.
    Null,
    Int(i64),
    Simple(String),
    Error(String),
    Bulk(Vec<u8>),
    /// `,` as its text: comparisons are about bytes.
    Double(String),
    Bool(bool),
    BigNumber(String),
    Verbatim(Vec<u8>),
    Array(Vec<Self>),
    Set(Vec<Self>),
    Push(Vec<Self>),
    /// Pairs in the order sent.
    Map(Vec<(Self, Self)>),
}

/// Short and readable: mismatches print it.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => write!(f, "null"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Double(text) => write!(f, ",{text}"),
            Self::BigNumber(text) => write!(f, "({text}"),
            Self::Bulk(bytes) | Self::Verbatim(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Array(items) => f.debug_list().entries(items).finish(),
            Self::Set(items) | Self::Push(items) => f.debug_set().entries(items).finish(),
            Self::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish(),
        }
    }
}

impl Value {
    /// The elements of an array, set or push; a map as its keys and values in turn.
    pub(crate) fn items(&self) -> Vec<Self> {
        match self {
            Self::Array(items) | Self::Set(items) | Self::Push(items) => items.clone(),
            Self::Map(pairs) => pairs.iter().flat_map(|(k, v)| [k.clone(), v.clone()]).collect(),
            other => panic!("not an aggregate: {other:?}"),
        }
    }

    /// A map's pairs, also where RESP2 sent it as a flat array.
    pub(crate) fn pairs(&self) -> Vec<(Self, Self)> {
        self.items().chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// The text of a string-like reply.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Simple(text) | Self::Error(text) | Self::Double(text) | Self::BigNumber(text) => {
                text.clone()
            }
            Self::Bulk(bytes) | Self::Verbatim(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Int(n) => n.to_string(),
            other => panic!("not a string: {other:?}"),
        }
    }

    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(n) => *n,
            other => panic!("not an integer: {other:?}"),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// The value of `key` in a map reply.
    pub(crate) fn field(&self, key: &str) -> Option<Self> {
        self.pairs().into_iter().find(|(k, _)| k.text() == key).map(|(_, v)| v)
    }
}

/// Bytes that are no RESP at all.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed reply: {}", self.0)
    }
}

/// The first reply in `input` and the bytes it takes; `None` if it is not complete yet.
pub(crate) fn decode(input: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
    let mut reader = Reader { input, at: 0 };
    Ok(reader.value()?.map(|value| (value, reader.at)))
}

/// All of `raw` as exactly one reply.
pub(crate) fn decode_whole(raw: &[u8]) -> Value {
    match decode(raw) {
        Ok(Some((value, used))) if used == raw.len() => value,
        other => panic!("not one reply: {other:?} in {}", raw.escape_ascii()),
    }
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn line(&mut self) -> Option<String> {
        let rest = &self.input[self.at..];
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        self.at += end + 2;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    fn value(&mut self) -> Result<Option<Value>, Malformed> {
        let Some(line) = self.line() else { return Ok(None) };
        let Some(kind) = line.chars().next().filter(char::is_ascii) else {
            return Err(Malformed(format!("type byte of {line:?}")));
        };
        let text = line[1..].to_owned();
        let value = match kind {
            '+' => Value::Simple(text),
            '-' => Value::Error(text),
            ',' => Value::Double(text),
            '(' => Value::BigNumber(text),
            '_' => Value::Null,
            '#' => Value::Bool(text == "t"),
            ':' => Value::Int(number(&text)?),
            '$' | '=' => return self.blob(kind, number(&text)?),
            '*' | '~' | '>' | '%' => return self.aggregate(kind, number(&text)?),
            _ => return Err(Malformed(format!("type byte of {line:?}"))),
        };
        Ok(Some(value))
    }

    fn blob(&mut self, kind: char, len: i64) -> Result<Option<Value>, Malformed> {
        let Ok(len) = usize::try_from(len) else { return Ok(Some(Value::Null)) };
        let rest = &self.input[self.at..];
        if rest.len() < len + 2 {
            return Ok(None);
        }
        if &rest[len..len + 2] != b"\r\n" {
            return Err(Malformed("bulk without its end".into()));
        }
        self.at += len + 2;
        let bytes = rest[..len].to_vec();
        Ok(Some(if kind == '=' { Value::Verbatim(bytes) } else { Value::Bulk(bytes) }))
    }

    fn aggregate(&mut self, kind: char, len: i64) -> Result<Option<Value>, Malformed> {
        let Ok(len) = usize::try_from(len) else { return Ok(Some(Value::Null)) };
        let count = if kind == '%' { len * 2 } else { len };
        let mut items = Vec::new();
        for _ in 0..count {
            match self.value()? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(match kind {
            '~' => Value::Set(items),
            '>' => Value::Push(items),
            '%' => Value::Map(items.chunks(2).map(|kv| (kv[0].clone(), kv[1].clone())).collect()),
            _ => Value::Array(items),
        }))
    }
}

fn number(text: &str) -> Result<i64, Malformed> {
    text.parse().map_err(|_| Malformed(format!("number {text:?}")))
}
