//! Lists, sets, sorted sets and hashes of the model.

use super::reply::Expected;
use super::{Model, Value};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A value of another type is an error.
pub(super) type Checked<T> = Result<T, Expected>;

/// What a command pops from: the end is its left one.
fn is_left(word: &str) -> bool {
    word.eq_ignore_ascii_case("LEFT")
}

/// The members of a sorted set.
fn in_order(sorted: BTreeMap<String, i64>) -> impl Iterator<Item = String> {
    let mut members: Vec<(i64, String)> = sorted.into_iter().map(|(member, score)| (score, member)).collect();
    members.sort();
    members.into_iter().map(|(_, member)| member)
}

impl Model {
    fn list(&self, key: &str) -> Checked<Option<&VecDeque<String>>> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Value::List(list)) => Ok(Some(list)),
            Some(_) => Err(Expected::Error),
        }
    }

    fn set(&self, key: &str) -> Checked<BTreeSet<String>> {
        match self.keys.get(key) {
            None => Ok(BTreeSet::new()),
            Some(Value::Set(set)) => Ok(set.clone()),
            Some(_) => Err(Expected::Error),
        }
    }

    pub(super) fn sorted(&self, key: &str) -> Checked<BTreeMap<String, i64>> {
        match self.keys.get(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Sorted(sorted)) => Ok(sorted.clone()),
            Some(_) => Err(Expected::Error),
        }
    }

    fn hash(&self, key: &str) -> Checked<BTreeMap<String, String>> {
        match self.keys.get(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Hash(hash)) => Ok(hash.clone()),
            Some(_) => Err(Expected::Error),
        }
    }

    /// Sets a value, or removes the key if that is empty.
    pub(super) fn store(&mut self, key: &str, value: Value) {
        let empty = match &value {
            Value::Text(_) | Value::Log(_) => false,
            Value::List(list) => list.is_empty(),
            Value::Set(set) => set.is_empty(),
            Value::Sorted(sorted) => sorted.is_empty(),
            Value::Hash(hash) => hash.is_empty(),
        };
        if empty {
            self.take(key);
        } else {
            self.put(key, value);
        }
    }

    fn push(&mut self, key: &str, left: bool, elements: &[String]) -> Checked<Expected> {
        let mut list = self.list(key)?.cloned().unwrap_or_default();
        for element in elements {
            if left {
                list.push_front(element.clone());
            } else {
                list.push_back(element.clone());
            }
        }
        let len = list.len();
        self.put(key, Value::List(list));
        Ok(Expected::Int(len as i64))
    }

    /// Inserts an element behind another.
    fn insert(&mut self, key: &str, pivot: &str, element: &str) -> Checked<Expected> {
        let Some(mut list) = self.list(key)?.cloned() else { return Ok(Expected::Int(0)) };
        let Some(place) = list.iter().position(|other| other == pivot) else { return Ok(Expected::Int(-1)) };
        list.insert(place + 1, element.to_owned());
        let len = list.len();
        self.put(key, Value::List(list));
        Ok(Expected::Int(len as i64))
    }

    fn pop(&mut self, key: &str, left: bool) -> Checked<Option<String>> {
        let Some(mut list) = self.list(key)?.cloned() else { return Ok(None) };
        let element = if left { list.pop_front() } else { list.pop_back() };
        self.store(key, Value::List(list));
        Ok(element)
    }

    fn pop_first(
        &mut self,
        keys: &[String],
        left: bool,
        count: usize,
    ) -> Checked<Option<(String, Vec<String>)>> {
        for key in keys {
            if self.list(key)?.is_none() {
                continue;
            }
            let mut popped = Vec::new();
            while popped.len() < count
                && let Some(element) = self.pop(key, left)?
            {
                popped.push(element);
            }
            return Ok(Some((key.clone(), popped)));
        }
        Ok(None)
    }

    fn move_element(&mut self, words: &[String], from_left: bool, to_left: bool) -> Checked<Expected> {
        let (from, to) = (&words[0], &words[1]);
        if self.list(from)?.is_none() {
            return Ok(Expected::Nothing);
        }
        self.list(to)?;
        let element = self.pop(from, from_left)?.unwrap_or_default();
        self.push(to, to_left, std::slice::from_ref(&element))?;
        Ok(Expected::Text(Some(element)))
    }

    /// Combines sets.
    fn combined(&self, name: &str, keys: &[String]) -> Checked<BTreeSet<String>> {
        let sets: Vec<BTreeSet<String>> = keys.iter().map(|key| self.set(key)).collect::<Checked<_>>()?;
        let (first, rest) = sets.split_first().expect("the workload names keys");
        let combine = |a: BTreeSet<String>, b: &BTreeSet<String>| match name {
            "SINTER" => &a & b,
            "SUNION" => &a | b,
            _ => &a - b,
        };
        Ok(rest.iter().fold(first.clone(), combine))
    }

    /// A command on collections; `None` if it is none.
    pub(super) fn on_collections(&mut self, words: &[String]) -> Option<Expected> {
        let result = match self.on_list(words) {
            Some(result) => result,
            None => self.on_members(words)?,
        };
        Some(result.unwrap_or_else(|error| error))
    }

    fn on_list(&mut self, words: &[String]) -> Option<Checked<Expected>> {
        let (name, rest) = (words[0].as_str(), &words[1..]);
        let last = rest.len().saturating_sub(1);
        let popped = |found: Option<(String, Vec<String>)>| match found {
            Some((key, elements)) => Expected::texts(std::iter::once(key).chain(elements)),
            None => Expected::Nothing,
        };
        Some(match name {
            "LPUSH" | "RPUSH" => self.push(&rest[0], name == "LPUSH", &rest[1..]),
            "LPOP" | "RPOP" => self.pop(&rest[0], name == "LPOP").map(Expected::Text),
            "LLEN" => self.list(&rest[0]).map(|list| Expected::Int(list.map_or(0, VecDeque::len) as i64)),
            "LRANGE" => self.list(&rest[0]).map(|list| Expected::texts(list.into_iter().flatten().cloned())),
            "LPOS" => self.list(&rest[0]).map(|list| {
                let place = list.and_then(|list| list.iter().position(|element| *element == rest[1]));
                place.map_or(Expected::Nothing, |place| Expected::Int(place as i64))
            }),
            "LREM" => self.list(&rest[0]).map(Option::<&_>::cloned).map(|list| {
                let mut list: VecDeque<String> = list.unwrap_or_default();
                let before = list.len();
                list.retain(|element| *element != rest[2]);
                let removed = before - list.len();
                if removed > 0 {
                    self.store(&rest[0], Value::List(list));
                }
                Expected::Int(removed as i64)
            }),
            "LINSERT" => self.insert(&rest[0], &rest[2], &rest[3]),
            "LMOVE" | "BLMOVE" => self.move_element(rest, is_left(&rest[2]), is_left(&rest[3])),
            "RPOPLPUSH" | "BRPOPLPUSH" => self.move_element(rest, false, true),
            "BLPOP" | "BRPOP" => self.pop_first(&rest[..last], name == "BLPOP", 1).map(popped),
            "SORT_RO" => self.sorted_elements(&rest[0]).map(Expected::texts),
            "SORT" => self.sorted_elements(&rest[0]).map(|sorted| {
                let len = sorted.len();
                self.store(&rest[3], Value::List(sorted.into()));
                Expected::Int(len as i64)
            }),
            "LMPOP" => self.pop_many(rest),
            "BLMPOP" => self.pop_many(&rest[1..]),
            _ => return None,
        })
    }

    /// As SORT with ALPHA has them. The workload sorts lists; sets and sorted sets come to their keys by other commands.
    fn sorted_elements(&self, key: &str) -> Checked<Vec<String>> {
        let mut elements: Vec<String> = match self.keys.get(key) {
            None => Vec::new(),
            Some(Value::List(list)) => list.iter().cloned().collect(),
            Some(Value::Set(set)) => set.iter().cloned().collect(),
            Some(Value::Sorted(sorted)) => sorted.keys().cloned().collect(),
            Some(Value::Text(_) | Value::Hash(_) | Value::Log(_)) => return Err(Expected::Error),
        };
        elements.sort();
        Ok(elements)
    }

    /// The arguments from the number of keys on; the last is a count.
    fn pop_many(&mut self, words: &[String]) -> Checked<Expected> {
        let count: usize = words[0].parse().expect("a number of keys");
        let (keys, rest) = words[1..].split_at(count);
        let popped = self.pop_first(keys, is_left(&rest[0]), rest[2].parse().expect("a count"))?;
        Ok(popped.map_or(Expected::Nothing, |(key, elements)| Expected::Popped(key, elements)))
    }

    fn on_members(&mut self, words: &[String]) -> Option<Checked<Expected>> {
        let (name, rest) = (words[0].as_str(), &words[1..]);
        let int = |number: usize| Expected::Int(number as i64);
        Some(match name {
            "SADD" => self.set(&rest[0]).map(|mut set| {
                let added = rest[1..].iter().filter(|member| set.insert((*member).clone())).count();
                if added > 0 {
                    self.store(&rest[0], Value::Set(set));
                }
                int(added)
            }),
            "SREM" => self.set(&rest[0]).map(|mut set| {
                let removed = rest[1..].iter().filter(|member| set.remove(*member)).count();
                if removed > 0 {
                    self.store(&rest[0], Value::Set(set));
                }
                int(removed)
            }),
            "SMEMBERS" => self.set(&rest[0]).map(|set| Expected::Names(set.into_iter().collect())),
            "SMOVE" => self.move_member(rest),
            "SINTER" | "SUNION" | "SDIFF" => {
                self.combined(name, rest).map(|set| Expected::Names(set.into_iter().collect()))
            }
            "SINTERCARD" => self.combined("SINTER", &rest[1..]).map(|set| int(set.len())),
            "SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE" => {
                let name = name.strip_suffix("STORE").expect("as the arm says");
                self.combined(name, &rest[1..]).map(|set| {
                    let len = set.len();
                    self.store(&rest[0], Value::Set(set));
                    int(len)
                })
            }
            _ => return self.on_scores_and_fields(words),
        })
    }

    fn on_scores_and_fields(&mut self, words: &[String]) -> Option<Checked<Expected>> {
        let (name, rest) = (words[0].as_str(), &words[1..]);
        let int = |number: usize| Expected::Int(number as i64);
        Some(match name {
            "ZADD" => self.add_scored(&rest[0], &rest[2], rest[1].parse().expect("a score")),
            "ZREM" => self.sorted(&rest[0]).map(|mut sorted| {
                let removed = sorted.remove(&rest[1]).is_some();
                if removed {
                    self.store(&rest[0], Value::Sorted(sorted));
                }
                int(removed.into())
            }),
            "BZPOPMIN" | "BZPOPMAX" => self.pop_extreme(&rest[..rest.len() - 1], name == "BZPOPMIN"),
            "ZUNIONSTORE" | "ZINTERSTORE" | "ZDIFFSTORE" => {
                let name = name.strip_suffix("STORE").expect("as the arm says");
                self.combined_scores(name, &rest[1..]).map(|found| self.store_sorted(&rest[0], found))
            }
            "ZUNION" | "ZINTER" | "ZDIFF" => {
                self.combined_scores(name, rest).map(|found| Expected::texts(in_order(found)))
            }
            "ZINTERCARD" => self.combined_scores("ZINTER", rest).map(|found| int(found.len())),
            "ZRANGESTORE" => self.sorted(&rest[1]).map(|sorted| {
                let mut members: Vec<(i64, String)> =
                    sorted.into_iter().map(|(member, score)| (score, member)).collect();
                members.sort();
                members.truncate(2);
                let kept = members.into_iter().map(|(score, member)| (member, score)).collect();
                self.store_sorted(&rest[0], kept)
            }),
            "ZREMRANGEBYRANK" | "ZREMRANGEBYSCORE" => self.sorted(&rest[0]).map(|sorted| {
                let len = sorted.len();
                let (range, count) = (len.saturating_sub(3)..len.saturating_sub(1), len);
                let stays = |nth: usize, score: i64| match name {
                    "ZREMRANGEBYRANK" => !range.contains(&nth),
                    _ => !(1..=2).contains(&score),
                };
                let mut members: Vec<(i64, String)> =
                    sorted.into_iter().map(|(member, score)| (score, member)).collect();
                members.sort();
                let kept: BTreeMap<String, i64> = members
                    .into_iter()
                    .enumerate()
                    .filter(|(nth, (score, _))| stays(*nth, *score))
                    .map(|(_, (score, member))| (member, score))
                    .collect();
                let removed = count - kept.len();
                if removed > 0 {
                    self.store_sorted(&rest[0], kept);
                }
                int(removed)
            }),
            "ZRANGE" => self.sorted(&rest[0]).map(|sorted| Expected::texts(in_order(sorted))),
            "HSET" => self.hash(&rest[0]).map(|mut hash| {
                let new = hash.insert(rest[1].clone(), rest[2].clone()).is_none();
                self.store(&rest[0], Value::Hash(hash));
                int(new.into())
            }),
            "HDEL" => self.hash(&rest[0]).map(|mut hash| {
                let removed = hash.remove(&rest[1]).is_some();
                if removed {
                    self.store(&rest[0], Value::Hash(hash));
                }
                int(removed.into())
            }),
            "HGET" => self.hash(&rest[0]).map(|hash| Expected::Text(hash.get(&rest[1]).cloned())),
            "HKEYS" => self.hash(&rest[0]).map(|hash| Expected::Names(hash.keys().cloned().collect())),
            "HLEN" => self.hash(&rest[0]).map(|hash| int(hash.len())),
            _ => return self.on_measured(words),
        })
    }

    pub(super) fn add_scored(&mut self, key: &str, member: &str, score: i64) -> Checked<Expected> {
        let mut sorted = self.sorted(key)?;
        let before = sorted.insert(member.to_owned(), score);
        if before != Some(score) {
            self.store(key, Value::Sorted(sorted));
        }
        Ok(Expected::Int(before.is_none().into()))
    }

    /// A sorted set, or a set, whose members count 1 each.
    fn scored(&self, key: &str) -> Checked<BTreeMap<String, i64>> {
        match self.keys.get(key) {
            Some(Value::Set(set)) => Ok(set.iter().map(|member| (member.clone(), 1)).collect()),
            _ => self.sorted(key),
        }
    }

    /// The words from the number of sources on. A member's score is the greatest of those that it has.
    fn combined_scores(&self, name: &str, words: &[String]) -> Checked<BTreeMap<String, i64>> {
        let count: usize = words[0].parse().expect("a number of keys");
        let sets: Vec<_> = words[1..=count].iter().map(|key| self.scored(key)).collect::<Checked<_>>()?;
        let (first, rest) = sets.split_first().expect("the workload names keys");
        let mut found = first.clone();
        for set in rest {
            match name {
                "ZUNION" => set.iter().for_each(|(member, score)| {
                    found.entry(member.clone()).or_insert(*score);
                }),
                "ZINTER" => found.retain(|member, _| set.contains_key(member)),
                _ => found.retain(|member, _| !set.contains_key(member)),
            }
            for (member, score) in &mut found {
                *score = set.get(member).map_or(*score, |other| *other.max(score));
            }
        }
        Ok(found)
    }

    pub(super) fn store_sorted(&mut self, key: &str, sorted: BTreeMap<String, i64>) -> Expected {
        let len = sorted.len();
        self.store(key, Value::Sorted(sorted));
        Expected::Int(len as i64)
    }

    fn pop_extreme(&mut self, keys: &[String], lowest: bool) -> Checked<Expected> {
        for key in keys {
            let mut sorted = self.sorted(key)?;
            let members = sorted.iter().map(|(member, score)| (*score, member.clone()));
            let Some((score, member)) = (if lowest { members.min() } else { members.max() }) else {
                continue;
            };
            sorted.remove(&member);
            self.store(key, Value::Sorted(sorted));
            return Ok(Expected::texts([key.clone(), member, score.to_string()]));
        }
        Ok(Expected::Nothing)
    }

    fn move_member(&mut self, words: &[String]) -> Checked<Expected> {
        let (from, to, member) = (&words[0], &words[1], &words[2]);
        if !self.keys.contains_key(from) {
            return Ok(Expected::Int(0));
        }
        let (mut source, mut destination) = (self.set(from)?, self.set(to)?);
        if from == to {
            return Ok(Expected::Int(source.contains(member).into()));
        }
        if !source.remove(member) {
            return Ok(Expected::Int(0));
        }
        self.store(from, Value::Set(source));
        if destination.insert(member.clone()) {
            self.store(to, Value::Set(destination));
        }
        Ok(Expected::Int(1))
    }
}
