//! What a single-threaded Redis would answer: the reference that histories are held against.

use crate::workload::Operation;
use corelane_resp::Frame;
use std::collections::{BTreeMap, BTreeSet};

/// A database of strings, and what its clients watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Model {
    keys: BTreeMap<String, String>,
    /// By client.
    watches: BTreeMap<usize, Watches>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watches {
    keys: BTreeSet<String>,
    touched: bool,
}

/// A reply, as far as the workload's commands have them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    Ok,
    Int(i64),
    Text(Option<String>),
    Texts(Vec<Option<String>>),
    /// In any order.
    Names(Vec<String>),
    /// One of these; none if there are none.
    OneOf(Vec<String>),
    Error,
}

impl Model {
    /// Executes an operation of a client and says whether `reply` is what it answers.
    pub fn explains(&mut self, client: usize, operation: &Operation, reply: &Frame) -> bool {
        let words = &operation.words;
        match words[0].as_str() {
            "WATCH" => {
                self.watches.entry(client).or_default().keys.extend(words[1..].iter().cloned());
                matches(&Expected::Ok, reply)
            }
            "UNWATCH" => {
                self.watches.remove(&client);
                matches(&Expected::Ok, reply)
            }
            "EXEC" => self.explains_exec(client, operation, reply),
            _ => {
                let expected = self.execute(words);
                matches(&expected, reply)
            }
        }
    }

    /// A transaction is refused exactly if a key was changed that its client watches, and is otherwise one step.
    fn explains_exec(&mut self, client: usize, operation: &Operation, reply: &Frame) -> bool {
        let refused = self.watches.remove(&client).is_some_and(|watches| watches.touched);
        match reply {
            Frame::Null => refused,
            Frame::Array(replies) if !refused && replies.len() == operation.queued.len() => {
                operation.queued.iter().zip(replies).all(|(words, reply)| {
                    let expected = self.execute(words);
                    matches(&expected, reply)
                })
            }
            _ => false,
        }
    }

    fn touch(&mut self, key: &str) {
        for watches in self.watches.values_mut() {
            watches.touched |= watches.keys.contains(key);
        }
    }

    fn put(&mut self, key: &str, value: String) {
        self.touch(key);
        self.keys.insert(key.to_owned(), value);
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let value = self.keys.remove(key)?;
        self.touch(key);
        Some(value)
    }

    fn execute(&mut self, words: &[String]) -> Expected {
        let rest = &words[1..];
        match words[0].as_str() {
            "GET" => Expected::Text(self.keys.get(&rest[0]).cloned()),
            "GETDEL" => Expected::Text(self.take(&rest[0])),
            "SET" => {
                self.put(&rest[0], rest[1].clone());
                Expected::Ok
            }
            "SETNX" => {
                let free = !self.keys.contains_key(&rest[0]);
                if free {
                    self.put(&rest[0], rest[1].clone());
                }
                Expected::Int(free.into())
            }
            "APPEND" => {
                let value = self.keys.get(&rest[0]).cloned().unwrap_or_default() + &rest[1];
                let len = value.len();
                self.put(&rest[0], value);
                Expected::Int(len as i64)
            }
            "MGET" => Expected::Texts(rest.iter().map(|key| self.keys.get(key).cloned()).collect()),
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
            "DEL" => Expected::Int(rest.iter().filter(|key| self.take(key).is_some()).count() as i64),
            "EXISTS" => Expected::Int(rest.iter().filter(|key| self.keys.contains_key(*key)).count() as i64),
            "LCS" => Expected::Text(Some(self.common_subsequence(&rest[0], &rest[1]))),
            "DBSIZE" => Expected::Int(self.keys.len() as i64),
            "KEYS" => Expected::Names(self.keys.keys().cloned().collect()),
            "RANDOMKEY" => Expected::OneOf(self.keys.keys().cloned().collect()),
            "FLUSHALL" => {
                for key in self.keys.keys().cloned().collect::<Vec<_>>() {
                    self.take(&key);
                }
                Expected::Ok
            }
            name => self.move_or_copy(name, &rest[0], &rest[1]),
        }
    }

    fn set_pairs(&mut self, words: &[String]) {
        for pair in words.chunks(2) {
            self.put(&pair[0], pair[1].clone());
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

    fn common_subsequence(&self, a: &str, b: &str) -> String {
        let text = |key: &str| self.keys.get(key).map_or(&b""[..], |value| value.as_bytes());
        let (a, b) = (text(a), text(b));
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
        String::from_utf8_lossy(&found).into_owned()
    }
}

fn text_of(frame: &Frame) -> Option<Option<String>> {
    match frame {
        Frame::Bulk(bytes) => Some(Some(String::from_utf8_lossy(bytes).into_owned())),
        Frame::Null => Some(None),
        _ => None,
    }
}

fn matches(expected: &Expected, reply: &Frame) -> bool {
    match (expected, reply) {
        (Expected::Ok, Frame::Simple(text)) => text.as_ref() == b"OK",
        (Expected::Int(value), Frame::Int(got)) => value == got,
        (Expected::Error, Frame::Error(_)) => true,
        (Expected::Text(text), frame) => text_of(frame).as_ref() == Some(text),
        (Expected::Texts(texts), Frame::Array(items)) => {
            items.len() == texts.len()
                && items.iter().zip(texts).all(|(item, text)| text_of(item).as_ref() == Some(text))
        }
        (Expected::Names(names), Frame::Array(items)) => {
            let mut got: Vec<String> = items.iter().filter_map(text_of).flatten().collect();
            got.sort();
            items.len() == names.len() && got == *names
        }
        (Expected::OneOf(names), frame) => match text_of(frame) {
            Some(Some(name)) => names.contains(&name),
            Some(None) => names.is_empty(),
            None => false,
        },
        _ => false,
    }
}
