//! Digests of the data, as DEBUG DIGEST tells them: Valkey's algorithm, so that equal data gives equal digests in both.
//!
//! A key's digest mixes key, type, value and whether it has a deadline, in this order; a database's is the exclusive or of
//! its keys' hashed digests, which depends neither on their order nor on the shard they are on.

use crate::keyspace::{Entry, Keyspace, Millis, ScanPosition, ValueRef};
use crate::slot::{SLOTS, Slot};
use crate::values::{HashRef, SortedSetRef};
use corelane_resp::{DOUBLE_LEN_MAX, grisu_text};
use sha1_smol::Sha1;

/// A SHA-1 hash, or zeros.
pub(crate) type Digest = [u8; 20];

/// Valkey's numbers of the types, big-endian.
const STRING: [u8; 4] = [0; 4];
const SORTED_SET: [u8; 4] = [0, 0, 0, 3];
const HASH: [u8; 4] = [0, 0, 0, 4];
const LIST: [u8; 4] = [0, 0, 0, 1];
const SET: [u8; 4] = [0, 0, 0, 2];

fn sha1(bytes: &[u8]) -> Digest {
    Sha1::from(bytes).digest().bytes()
}

/// `digest` with the hash of `bytes` added so that the order of such additions does not matter.
fn xored(mut digest: Digest, bytes: &[u8]) -> Digest {
    for (byte, other) in digest.iter_mut().zip(sha1(bytes)) {
        *byte ^= other;
    }
    digest
}

/// The same where the order does matter.
fn mixed(digest: Digest, bytes: &[u8]) -> Digest {
    sha1(&xored(digest, bytes))
}

/// `digest` with what a key holds mixed in.
pub(crate) fn value_digest(digest: Digest, entry: &Entry, now: Millis) -> Digest {
    let digest = match entry.value() {
        ValueRef::Hash(hash) => hash_digest(mixed(digest, &HASH), hash, now),
        ValueRef::List(list) => {
            list.iter().fold(mixed(digest, &LIST), |digest, element| mixed(digest, &element.text()))
        }
        ValueRef::Set(set) => {
            let mut digest = mixed(digest, &SET);
            set.for_each(|member| digest = xored(digest, &member.text()));
            digest
        }
        ValueRef::SortedSet(set) => sorted_set_digest(mixed(digest, &SORTED_SET), set),
        _ => mixed(mixed(digest, &STRING), entry.string().unwrap_or_default()),
    };
    if entry.expiry().is_some() { xored(digest, b"!!expire!!") } else { digest }
}

fn hash_digest(mut digest: Digest, hash: HashRef<'_>, now: Millis) -> Digest {
    hash.for_each(|field, value| {
        if hash.deadline(&field.text()).is_some_and(|at| at <= now) {
            return;
        }
        let one = mixed(mixed(Digest::default(), &field.text()), &value.text());
        digest = xored(digest, &one);
    });
    digest
}

fn sorted_set_digest(mut digest: Digest, set: SortedSetRef<'_>) -> Digest {
    set.visit(0, set.len(), false, &mut |member, score| {
        let one = mixed(mixed(Digest::default(), member), grisu_text(score, &mut [0; DOUBLE_LEN_MAX]));
        digest = xored(digest, &one);
    });
    digest
}

/// One shard's share of the digest of all data, made in steps.
#[derive(Clone, Debug)]
pub struct DatasetDigest {
    /// By database: the keys' digests together, and how many there were.
    dbs: Vec<(Digest, u64)>,
    /// Where the next step begins.
    db: usize,
    position: ScanPosition,
}

impl DatasetDigest {
    pub(crate) fn new(databases: usize) -> Self {
        Self { dbs: vec![(Digest::default(), 0); databases], db: 0, position: ScanPosition::START }
    }

    /// Looks at up to about `budget` keys; true while more are left.
    pub(crate) fn step(&mut self, keyspace: &Keyspace, budget: usize, now: Millis) -> bool {
        let Some((digest, keys)) = self.dbs.get_mut(self.db) else { return false };
        let next = keyspace.walk(self.db, self.position, Slot(SLOTS), budget, now, &mut |entry| {
            let one = value_digest(mixed(Digest::default(), entry.key()), entry, now);
            *digest = xored(*digest, &one);
            *keys += 1;
        });
        self.db += usize::from(next.is_none());
        self.position = next.unwrap_or(ScanPosition::START);
        self.db < self.dbs.len()
    }

    /// The digest of all data, of all shards' shares.
    pub(crate) fn merged<'a>(shares: impl Iterator<Item = &'a Self>) -> Digest {
        let mut dbs: Vec<(Digest, u64)> = Vec::new();
        for share in shares {
            dbs.resize(share.dbs.len(), (Digest::default(), 0));
            for ((digest, keys), (other, more)) in dbs.iter_mut().zip(&share.dbs) {
                digest.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
                *keys += more;
            }
        }
        let present = dbs.iter().enumerate().filter(|(_, (_, keys))| *keys > 0);
        present.fold(Digest::default(), |digest, (db, (of_keys, _))| {
            let mut digest = mixed(digest, &(db as u32).to_be_bytes());
            digest.iter_mut().zip(of_keys).for_each(|(byte, other)| *byte ^= other);
            digest
        })
    }
}
