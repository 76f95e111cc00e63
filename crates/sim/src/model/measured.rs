//! Places and HyperLogLogs of the model.

use super::collections::Checked;
use super::reply::Expected;
use super::{Model, Value};
use crate::workload::PLACES;
use std::collections::{BTreeMap, BTreeSet};

/// A HyperLogLog. The workload has few elements, all in different registers, so that it counts them exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Log {
    elements: BTreeSet<String>,
    /// Its count has not been noted in it since it was changed; noting it is a change, too.
    is_stale: bool,
}

impl Model {
    pub(super) fn on_measured(&mut self, words: &[String]) -> Option<Checked<Expected>> {
        let (name, rest) = (words[0].as_str(), &words[1..]);
        Some(match name {
            "GEOADD" => {
                let place = PLACES.iter().find(|place| place.lon == rest[1]).expect("one of the workload's");
                self.add_scored(&rest[0], &rest[3], place.score)
            }
            "GEOSEARCH" => {
                self.within(&rest[0], &rest[1..]).map(|found| Expected::Names(found.into_keys().collect()))
            }
            "GEOSEARCHSTORE" => {
                self.within(&rest[1], &rest[2..]).map(|found| self.store_sorted(&rest[0], found))
            }
            "PFADD" => self.count_in(&rest[0], &rest[1..]),
            "PFCOUNT" => self.counted(rest),
            "PFMERGE" => self.merge(&rest[0], rest),
            _ => return None,
        })
    }

    /// Members at places that a search finds, which ends in a radius and its unit.
    fn within(&self, key: &str, search: &[String]) -> Checked<BTreeMap<String, i64>> {
        let radius_km: i64 = search[search.len() - 2].parse().expect("a radius");
        let is_within =
            |score: i64| PLACES.iter().any(|place| place.score == score && place.distance_km <= radius_km);
        Ok(self.sorted(key)?.into_iter().filter(|(_, score)| is_within(*score)).collect())
    }

    fn log(&self, key: &str) -> Checked<Option<Log>> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Value::Log(log)) => Ok(Some(log.clone())),
            Some(_) => Err(Expected::Error),
        }
    }

    fn count_in(&mut self, key: &str, elements: &[String]) -> Checked<Expected> {
        let there = self.log(key)?;
        let is_new = there.is_none();
        let mut log = there.unwrap_or_default();
        let added = elements.iter().filter(|element| log.elements.insert((*element).clone())).count();
        if added > 0 || is_new {
            log.is_stale |= added > 0;
            self.put(key, Value::Log(log));
        }
        Ok(Expected::Int((added > 0 || is_new).into()))
    }

    fn counted(&mut self, keys: &[String]) -> Checked<Expected> {
        let logs: Vec<Option<Log>> = keys.iter().map(|key| self.log(key)).collect::<Checked<_>>()?;
        if let ([key], [Some(log)]) = (keys, &logs[..])
            && log.is_stale
        {
            self.put(key, Value::Log(Log { is_stale: false, ..log.clone() }));
        }
        let all: BTreeSet<String> = logs.into_iter().flatten().flat_map(|log| log.elements).collect();
        Ok(Expected::Int(all.len() as i64))
    }

    /// The destination is among the keys.
    fn merge(&mut self, destination: &str, keys: &[String]) -> Checked<Expected> {
        let logs: Vec<Option<Log>> = keys.iter().map(|key| self.log(key)).collect::<Checked<_>>()?;
        let elements = logs.into_iter().flatten().flat_map(|log| log.elements).collect();
        self.put(destination, Value::Log(Log { elements, is_stale: true }));
        Ok(Expected::Ok)
    }
}
