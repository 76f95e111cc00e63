//! Which shards have how many subscribers of what: what PUBLISH counts, and where it sends to.

use super::Name;
use crate::slot::ShardId;
use std::collections::BTreeMap;

/// Names with subscribers, in order: patterns are tried in that order.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Each shard's number of subscribers, which is never zero.
    names: BTreeMap<Name, Vec<(ShardId, u32)>>,
}

impl Registry {
    /// Names with subscribers.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The names with each shard's number of subscribers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[(ShardId, u32)])> {
        self.names.iter().map(|(name, shares)| (&name[..], &shares[..]))
    }

    /// Each shard's number of subscribers; no entry for none.
    pub(crate) fn shares(&self, name: &[u8]) -> &[(ShardId, u32)] {
        self.names.get(name).map_or(&[], |shares| shares)
    }

    /// How many subscribe to a name.
    pub(crate) fn count(&self, name: &[u8]) -> i64 {
        self.shares(name).iter().map(|(_, count)| i64::from(*count)).sum()
    }

    /// One more subscriber on a shard.
    pub(super) fn join(&mut self, name: &[u8], shard: ShardId) {
        if !self.names.contains_key(name) {
            self.names.insert(name.into(), Vec::new());
        }
        let Some(shares) = self.names.get_mut(name) else { return };
        match shares.iter_mut().find(|(of, _)| *of == shard) {
            Some((_, count)) => *count += 1,
            None => shares.push((shard, 1)),
        }
    }

    /// One less.
    pub(super) fn leave(&mut self, name: &[u8], shard: ShardId) {
        let Some(shares) = self.names.get_mut(name) else { return };
        if let Some(idx) = shares.iter().position(|(of, _)| *of == shard) {
            shares[idx].1 -= 1;
            if shares[idx].1 == 0 {
                shares.swap_remove(idx);
            }
        }
        if shares.is_empty() {
            self.names.remove(name);
        }
    }

    /// None on that shard any longer.
    pub(super) fn forget(&mut self, shard: ShardId) {
        self.names.retain(|_, shares| {
            shares.retain(|(of, _)| *of != shard);
            !shares.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_live_as_long_as_their_subscribers() {
        let mut registry = Registry::default();
        let (a, b) = (ShardId(0), ShardId(1));
        registry.join(b"x", a);
        registry.join(b"x", b);
        registry.join(b"x", b);
        registry.join(b"y", b);
        assert_eq!((registry.len(), registry.count(b"x"), registry.count(b"z")), (2, 3, 0));
        registry.leave(b"x", a);
        registry.leave(b"x", b);
        registry.leave(b"z", b);
        assert_eq!(registry.shares(b"x"), [(b, 1)]);
        registry.leave(b"x", b);
        assert_eq!(registry.len(), 1);
        registry.forget(b);
        assert_eq!(registry.len(), 0);
    }
}
