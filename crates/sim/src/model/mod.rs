//! What a single-threaded Redis would answer: the reference that histories are held against.

mod collections;
mod measured;
mod reply;
mod waiting;

use crate::workload::{Operation, RESTORED};
use corelane_resp::Frame;
use measured::Log;
use reply::Expected;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waiting::Waiter;

/// A database, what its clients watch, and who waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Model {
    keys: BTreeMap<String, Value>,
    /// By client.
    watches: BTreeMap<usize, Watches>,
    /// In the order of their arrival.
    waiting: Vec<Waiter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Value {
    Text(String),
    List(VecDeque<String>),
    Set(BTreeSet<String>),
    Sorted(BTreeMap<String, i64>),
    Hash(BTreeMap<String, String>),
    /// A HyperLogLog.
    Log(Log),
}

impl Value {
    /// What a payload of DUMP begins with: all of a list; of others, whose elements come in any order, nothing is said.
    fn dumped(&self) -> Vec<u8> {
        let Self::List(list) = self else { return Vec::new() };
        let length = |len: usize| match len {
            0..64 => vec![len as u8],
            _ => vec![0x40 | (len >> 8) as u8, len as u8],
        };
        let elements = list.iter().flat_map(|text| [length(text.len()), text.as_bytes().to_vec()].concat());
        [1].into_iter().chain(length(list.len())).chain(elements).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watches {
    keys: BTreeSet<String>,
    touched: bool,
}

impl Model {
    /// Executes an operation of a client and says whether `reply` is what it answers; whatever it answers, if nobody has seen
    /// that.
    pub fn explains(&mut self, client: usize, operation: &Operation, reply: Option<&Frame>) -> bool {
        let words = &operation.words;
        let expected = match words[0].as_str() {
            "WATCH" => {
                self.watches.entry(client).or_default().keys.extend(words[1..].iter().cloned());
                Expected::Ok
            }
            "UNWATCH" => {
                self.watches.remove(&client);
                Expected::Ok
            }
            "EXEC" => return self.explains_exec(client, operation, reply),
            "CLIENT" => self.unblock(operation),
            _ => self.execute(words),
        };
        reply.is_none_or(|reply| expected.is(reply))
    }

    /// A transaction is refused exactly if a key was changed that its client watches, and is otherwise one step.
    fn explains_exec(&mut self, client: usize, operation: &Operation, reply: Option<&Frame>) -> bool {
        let refused = self.watches.remove(&client).is_some_and(|watches| watches.touched);
        match reply {
            None => {
                if !refused {
                    operation.queued.iter().for_each(|words| drop(self.execute(words)));
                }
                true
            }
            Some(Frame::Null) => refused,
            Some(Frame::Array(replies)) if !refused && replies.len() == operation.queued.len() => {
                operation.queued.iter().zip(replies).all(|(words, reply)| self.execute(words).is(reply))
            }
            _ => false,
        }
    }

    fn touch(&mut self, key: &str) {
        for watches in self.watches.values_mut() {
            watches.touched |= watches.keys.contains(key);
        }
    }

    fn put(&mut self, key: &str, value: Value) {
        self.touch(key);
        self.keys.insert(key.to_owned(), value);
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        let value = self.keys.remove(key)?;
        self.touch(key);
        Some(value)
    }

    fn text(&self, key: &str) -> Result<Option<String>, Expected> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Expected::Error),
        }
    }

    fn execute(&mut self, words: &[String]) -> Expected {
        if let Some(expected) = self.on_collections(words) {
            return expected;
        }
        self.on_strings(words).unwrap_or_else(|error| error)
    }

    fn on_strings(&mut self, words: &[String]) -> Result<Expected, Expected> {
        let rest = &words[1..];
        Ok(match words[0].as_str() {
            "GET" => Expected::Text(self.text(&rest[0])?),
            "GETDEL" => {
                let text = self.text(&rest[0])?;
                self.take(&rest[0]);
                Expected::Text(text)
            }
            "SET" => {
                self.put(&rest[0], Value::Text(rest[1].clone()));
                Expected::Ok
            }
            "SETNX" => {
                let free = !self.keys.contains_key(&rest[0]);
                if free {
                    self.put(&rest[0], Value::Text(rest[1].clone()));
                }
                Expected::Int(free.into())
            }
            "APPEND" => {
                let value = self.text(&rest[0])?.unwrap_or_default() + &rest[1];
                let len = value.len();
                self.put(&rest[0], Value::Text(value));
                Expected::Int(len as i64)
            }
            "MGET" => Expected::Texts(rest.iter().map(|key| self.text(key).unwrap_or(None)).collect()),
            "MSET" => {
                self.set_pairs(rest);
                Expected::Ok
            }
            "MSETNX" => {
                let free = rest.chunks(2).all(|pair| !self.keys.contains_key(&pair[0]));
                if free {
                    self.set_pairs(rest);
                }
                Expected::Int(free.into())
            }
            "BITOP" => self.combine_bits(&rest[0], &rest[1], &rest[2..])?,
            "BITCOUNT" => {
                let text = self.text(&rest[0])?.unwrap_or_default();
                Expected::Int(text.bytes().map(|byte| i64::from(byte.count_ones())).sum())
            }
            "BITPOS" => {
                let text = self.text(&rest[0])?.unwrap_or_default();
                let first = text.bytes().position(|byte| byte != 0);
                Expected::Int(
                    first.map_or(-1, |at| at as i64 * 8 + i64::from(text.as_bytes()[at].leading_zeros())),
                )
            }
            "LCS" => Expected::Text(Some(self.common_subsequence(&rest[0], &rest[1])?)),
            name => self.on_keys(name, rest),
        })
    }

    fn on_keys(&mut self, name: &str, rest: &[String]) -> Expected {
        match name {
            "DEL" | "UNLINK" => {
                Expected::Int(rest.iter().filter(|key| self.take(key).is_some()).count() as i64)
            }
            "EXISTS" | "TOUCH" => {
                Expected::Int(rest.iter().filter(|key| self.keys.contains_key(*key)).count() as i64)
            }
            "DBSIZE" => Expected::Int(self.keys.len() as i64),
            "KEYS" => Expected::Names(self.keys.keys().cloned().collect()),
            "RANDOMKEY" => Expected::OneOf(self.keys.keys().cloned().collect()),
            "FLUSHALL" => {
                for key in self.keys.keys().cloned().collect::<Vec<_>>() {
                    self.take(&key);
                }
                Expected::Ok
            }
            "DUMP" => {
                self.keys.get(&rest[0]).map_or(Expected::Nothing, |value| Expected::Payload(value.dumped()))
            }
            "RESTORE" if rest.len() < 4 && self.keys.contains_key(&rest[0]) => Expected::Error,
            "RESTORE" => {
                self.put(&rest[0], Value::List(RESTORED.map(str::to_owned).into()));
                Expected::Ok
            }
            name => self.move_or_copy(name, &rest[0], &rest[1]),
        }
    }

    fn set_pairs(&mut self, words: &[String]) {
        for pair in words.chunks(2) {
            self.put(&pair[0], Value::Text(pair[1].clone()));
        }
    }

    fn move_or_copy(&mut self, name: &str, from: &str, to: &str) -> Expected {
        if name == "COPY" && from == to {
            return Expected::Error;
        }
        let Some(value) = self.keys.get(from).cloned() else {
            return if name == "COPY" { Expected::Int(0) } else { Expected::Error };
        };
        let taken = self.keys.contains_key(to);
        match name {
            "RENAME" if from == to => Expected::Ok,
            "RENAME" => {
                self.take(from);
                self.put(to, value);
                Expected::Ok
            }
            "RENAMENX" if taken => Expected::Int(0),
            "RENAMENX" => {
                self.take(from);
                self.put(to, value);
                Expected::Int(1)
            }
            "COPY" if taken => Expected::Int(0),
            "COPY" => {
                self.put(to, value);
                Expected::Int(1)
            }
            other => unreachable!("the workload has no {other}"),
        }
    }

    fn combine_bits(&mut self, how: &str, to: &str, from: &[String]) -> Result<Expected, Expected> {
        let texts: Vec<String> = from
            .iter()
            .map(|key| Ok(self.text(key)?.unwrap_or_default()))
            .collect::<Result<_, Expected>>()?;
        let len = texts.iter().map(String::len).max().unwrap_or(0);
        let byte = |at: usize| {
            let bytes = texts.iter().map(|text| text.as_bytes().get(at).copied().unwrap_or(0));
            bytes.reduce(|a, b| if how == "AND" { a & b } else { a | b }).unwrap_or(0)
        };
        let result: Vec<u8> = (0..len).map(byte).collect();
        if len == 0 {
            self.take(to);
        } else {
            self.put(to, Value::Text(String::from_utf8(result).expect("ASCII stays ASCII")));
        }
        Ok(Expected::Int(len as i64))
    }

    fn common_subsequence(&self, a: &str, b: &str) -> Result<String, Expected> {
        let (a, b) = (self.text(a)?.unwrap_or_default(), self.text(b)?.unwrap_or_default());
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut lens = vec![vec![0usize; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                lens[i][j] = if a[i - 1] == b[j - 1] {
                    lens[i - 1][j - 1] + 1
                } else {
                    lens[i - 1][j].max(lens[i][j - 1])
                };
            }
        }
        let (mut i, mut j, mut found) = (a.len(), b.len(), Vec::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                found.push(a[i - 1]);
                (i, j) = (i - 1, j - 1);
            } else if lens[i - 1][j] > lens[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        found.reverse();
        Ok(String::from_utf8_lossy(&found).into_owned())
    }
}
