//! Which connections of one shard listen to what.

use super::Name;
use crate::session::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// The connections that listen to one name.
pub(super) type Listeners = BTreeSet<SessionId>;

/// Names with the connections that listen to them; none is without.
#[derive(Debug, Default)]
pub(super) struct Audience {
    pub(super) names: BTreeMap<Name, Listeners>,
}

impl Audience {
    pub(super) fn add(&mut self, name: &[u8], session: SessionId) {
        match self.names.get_mut(name) {
            Some(listeners) => listeners.insert(session),
            None => self.names.insert(name.into(), BTreeSet::from([session])).is_none(),
        };
    }

    pub(super) fn remove(&mut self, name: &[u8], session: SessionId) {
        let Some(listeners) = self.names.get_mut(name) else { return };
        listeners.remove(&session);
        if listeners.is_empty() {
            self.names.remove(name);
        }
    }
}
