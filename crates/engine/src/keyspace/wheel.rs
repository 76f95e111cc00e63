//! A hierarchical timing wheel of hints: which keys have to be looked at, and when.
//!
//! A hint is four opaque bytes that name one or more keys; deadlines stay with the keys. When a bucket's time comes its
//! hints are handed out, and the owner looks the keys up: it removes those that have expired and hints the others anew.
//! So nothing moves inside the wheel, and a hint that is handed out early, twice or for a key long gone costs a look,
//! nothing else. What never happens is that a key's deadline passes without a hint for it.
//!
//! ```text
//! level   tick     256 ticks   a bucket is handed out
//!     0   8 ms     2 s         at the first tick at or behind the deadline
//!     1   1 s      4 min       one tick before the one that the deadline is in: by then its hints, however many,
//!     2   131 s    9 h         have been spread over the level below in small steps
//!     3   4.7 h    50 days     the same; what lies beyond is looked at after 50 days
//!
//! mark    bits 0..5 generation, 5..13 bucket, 13..15 level, 15 zero
//! ```
//!
//! A mark says which bucket the hint of a key lies in, so that a later deadline needs no second hint. A bucket enters
//! another generation when its hints are taken away to be handed out: marks of the old one stand for nothing any more.
//! The structure is that of Varghese and Lauck, "Hashed and hierarchical timing wheels" (1987), without the cascades.

mod level;

use super::Millis;
use level::{BUCKETS, Hints, Level};

const LEVELS: usize = 4;
/// Milliseconds in a tick of level 0, as a power of two.
const TICK_BITS: usize = 3;
/// Ticks of a level in one of the next, as a power of two. That is half of `BUCKETS`, so that what is handed out a tick
/// before its time fits into the level below.
const LEVEL_BITS: usize = 7;

/// Hints by the time at which they are to be handed out.
#[derive(Debug, Default)]
pub(crate) struct Wheel {
    levels: [Level; LEVELS],
    /// The rest of the bucket that `drain_some` is at.
    swept: Hints,
    /// When that bucket would have been handed out.
    swept_due: Millis,
    /// The bucket, counted over all levels, that `drain_some` goes on with.
    sweep_next: usize,
    len: usize,
}

impl Wheel {
    /// How many hints there are, including those of keys that are gone or have another hint.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of hints and buckets, without what allocations have to spare.
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<u32>() + self.levels.iter().map(Level::bytes).sum::<usize>()
    }

    /// Whether there is nothing to hand out, ever.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sees to it that the key which `reference` names is looked at in time for its deadline `at`. `mark` is the one it
    /// has: `NO_HINT`, or the last answer, also if its deadline has changed since. Returns the mark to keep.
    pub(crate) fn hint(&mut self, reference: u32, at: Millis, mark: u16, now: Millis) -> u16 {
        if self.len == 0 {
            self.turn(now);
        }
        let (level, tick) = self.place(at);
        if self.due_of(mark).is_some_and(|due| due <= start_of(level, tick)) {
            return mark;
        }
        self.len += 1;
        let generation = self.levels[level].push(tick, reference);
        pack(level, (tick % BUCKETS) as u8, generation)
    }

    /// Appends up to `budget` hints whose time has come; true if there are more. The owner must have hinted all their keys
    /// anew before it calls again. Hints of finer levels come first, but a quarter of the budget is for the others.
    pub(crate) fn advance(&mut self, now: Millis, budget: usize, due: &mut Vec<u32>) -> bool {
        if self.len == 0 {
            return false;
        }
        self.turn(now);
        let end = due.len() + budget;
        if self.swept_due <= now {
            self.swept.drain(due, budget);
        }
        for level in &mut self.levels {
            let left = end - due.len();
            level.drain_due(due, left - left / 4);
        }
        for level in &mut self.levels {
            level.drain_due(due, end - due.len());
        }
        self.len -= budget - (end - due.len());
        self.next_deadline(now) == Some(now)
    }

    /// When `advance` has something to hand out next, but not before `now`.
    pub(crate) fn next_deadline(&self, now: Millis) -> Option<Millis> {
        if self.levels.iter().any(|level| !level.due.is_empty()) {
            return Some(now);
        }
        let in_rings = self.levels.iter().enumerate().filter_map(|(idx, level)| {
            let (first, _) = level.ticks();
            level.next_occupied(first).map(|tick| start_of(idx, tick))
        });
        let swept = (!self.swept.is_empty()).then_some(self.swept_due);
        in_rings.chain(swept).min().map(|start| start.max(now))
    }

    /// Appends up to `budget` hints whose time has not come. The owner must hint all their keys anew before it calls
    /// again; hints that no key needs are gone thereby. Calls in a row go round the whole wheel.
    pub(crate) fn drain_some(&mut self, budget: usize, out: &mut Vec<u32>) {
        if self.swept.is_empty() {
            self.sweep_next_bucket();
        }
        self.len -= self.swept.drain(out, budget);
    }

    /// Frees about `budget` hints without handing them out; true while more are left. For a wheel whose keys are gone.
    pub(crate) fn free_some(&mut self, budget: &mut usize) -> bool {
        while *budget != 0 && self.len != 0 {
            for level in &mut self.levels {
                level.turn_to(u64::MAX - BUCKETS);
            }
            let due = self.levels.iter_mut().map(|level| &mut level.due).find(|due| !due.is_empty());
            let hints = due.map_or(&mut self.swept, |due| due.last_mut().expect("it is not empty"));
            let freed = hints.free_block();
            assert!(freed != 0, "every hint is due or swept");
            for level in &mut self.levels {
                level.due.pop_if(|hints| hints.is_empty());
            }
            self.len -= freed;
            *budget = budget.saturating_sub(freed);
        }
        self.len != 0
    }

    fn turn(&mut self, now: Millis) {
        for (idx, level) in self.levels.iter_mut().enumerate() {
            level.turn_to(now >> tick_bits(idx));
        }
    }

    /// Level and tick for a deadline, never later than the deadline's tick of level 0.
    ///
    /// What a ring is too short for lies two ticks ahead or more on the next level, if both have been turned to the same
    /// time. If they have not, because many hints are due on this one, its last bucket serves: that is early.
    fn place(&self, at: Millis) -> (usize, u64) {
        let (first, last) = self.levels[0].ticks();
        let tick = at.div_ceil(1 << TICK_BITS);
        let (mut found, mut fits) = ((0, tick.clamp(first, last)), tick <= last);
        for (idx, level) in self.levels.iter().enumerate().skip(1) {
            let (first, last) = level.ticks();
            let tick = (at >> tick_bits(idx)).saturating_sub(1);
            if fits || tick < first {
                break;
            }
            (found, fits) = ((idx, tick.min(last)), tick <= last);
        }
        found
    }

    /// When the hint that a mark stands for will be handed out; `None` if it stands for none.
    fn due_of(&self, mark: u16) -> Option<Millis> {
        let level = usize::from(mark >> 13);
        let tick = self.levels.get(level)?.tick_of((mark >> 5) as u8, (mark & 31) as u8)?;
        Some(start_of(level, tick))
    }

    /// Takes the hints of the next occupied bucket to be swept.
    fn sweep_next_bucket(&mut self) {
        let count = LEVELS * BUCKETS as usize;
        for step in 0..count {
            let bucket = (self.sweep_next + step) % count;
            let (idx, level) = (bucket / BUCKETS as usize, &mut self.levels[bucket / BUCKETS as usize]);
            let (first, _) = level.ticks();
            let tick = first + (bucket as u64).wrapping_sub(first) % BUCKETS;
            if level.next_occupied(tick) == Some(tick) {
                self.swept = level.take(tick);
                self.swept_due = start_of(idx, tick);
                self.sweep_next = (bucket + 1) % count;
                return;
            }
        }
    }
}

/// Milliseconds in a tick of a level, as a power of two.
const fn tick_bits(level: usize) -> usize {
    TICK_BITS + LEVEL_BITS * level
}

/// When a tick of a level begins.
const fn start_of(level: usize, tick: u64) -> Millis {
    tick << tick_bits(level)
}

const fn pack(level: usize, bucket: u8, generation: u8) -> u16 {
    (level as u16) << 13 | (bucket as u16) << 5 | generation as u16
}

#[cfg(test)]
mod tests {
    use super::super::entry::NO_HINT;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TICK_MS: u64 = 1 << TICK_BITS;
    const DAY_MS: u64 = 86_400_000;

    /// Keys with deadlines, as the owner of a wheel keeps them. Two keys share each reference.
    #[derive(Default)]
    struct Owner {
        wheel: Wheel,
        now: Millis,
        keys: BTreeMap<u32, (Millis, u16)>,
        /// References handed out in all.
        looks: usize,
    }

    impl Owner {
        fn at(now: Millis) -> Self {
            Self { now, ..Self::default() }
        }

        fn set(&mut self, key: u32, at: Millis) {
            let old = self.keys.get(&key).map_or(NO_HINT, |(_, mark)| *mark);
            let mark = self.wheel.hint(key / 2, at, old, self.now);
            self.keys.insert(key, (at, mark));
        }

        fn settle(&mut self, references: &[u32]) {
            self.looks += references.len();
            for key in references.iter().flat_map(|reference| [reference * 2, reference * 2 + 1]) {
                match self.keys.get(&key) {
                    Some((at, _)) if *at <= self.now => drop(self.keys.remove(&key)),
                    Some((at, _)) => self.set(key, *at),
                    None => {}
                }
            }
        }

        fn advance(&mut self, budget: usize) -> bool {
            let mut due = vec![7];
            let len = self.wheel.len();
            let more = self.wheel.advance(self.now, budget, &mut due);
            assert!(due.len() <= budget + 1 && due[0] == 7, "within budget, and appended");
            assert_eq!(self.wheel.len(), len - (due.len() - 1));
            self.settle(&due[1..]);
            more
        }

        fn sweep(&mut self, budget: usize) {
            let mut swept = Vec::new();
            self.wheel.drain_some(budget, &mut swept);
            assert!(swept.len() <= budget);
            self.settle(&swept);
        }

        /// The first tick at or behind the deadline that ends first.
        fn first_end(&self) -> Option<Millis> {
            self.keys.values().map(|(at, _)| at.next_multiple_of(TICK_MS)).min()
        }

        /// Goes from deadline to deadline until nothing is left; returns how often it had to be called.
        fn run_out(&mut self) -> usize {
            let mut calls = 0;
            while let Some(next) = self.wheel.next_deadline(self.now) {
                assert!(self.first_end().is_none_or(|end| next <= end.max(self.now)));
                self.now = next;
                self.advance(100);
                calls += 1;
            }
            assert!(self.wheel.is_empty() && self.keys.is_empty());
            calls
        }
    }

    #[test]
    fn a_key_vanishes_at_the_first_tick_behind_its_deadline() {
        for ttl in [1, 8, 9, 2047, 2048, 2049, 5000, 300_000, 3_600_000, 11 * DAY_MS, 400 * DAY_MS] {
            for now in [0, 3, 1_700_000_000_123] {
                let mut owner = Owner::at(now);
                owner.set(1, now + ttl);
                let looks = owner.run_out();
                assert_eq!(owner.now, (now + ttl).next_multiple_of(TICK_MS), "in {ttl} ms from {now} on");
                assert!(looks <= LEVELS + (ttl / (49 * DAY_MS)) as usize, "{looks} looks in {ttl} ms");
            }
        }
    }

    #[test]
    fn a_deadline_that_moves_away_leaves_no_hints_behind() {
        let mut owner = Owner::at(1000);
        for step in 0..100_000 {
            owner.now += step % 3;
            owner.set(4, owner.now + 60_000 + step % 1000);
            owner.advance(10);
            assert!(owner.wheel.len() <= 3, "{} hints", owner.wheel.len());
        }
        owner.run_out();
    }

    #[test]
    fn stale_hints_are_swept_while_one_that_is_needed_stays() {
        let mut owner = Owner::at(1000);
        for step in 0..50_000 {
            // As PERSIST does: the mark is lost, the hint is not.
            owner.keys.remove(&4);
            owner.set(4, owner.now + 10_000_000 + step % 5);
            while owner.wheel.len() > 100 {
                owner.sweep(50);
            }
        }
        owner.run_out();
        assert_eq!(owner.now, 10_001_004_u64.next_multiple_of(TICK_MS));
    }

    #[test]
    fn a_bucket_of_many_hints_is_taken_apart_in_steps_while_others_come_in_time() {
        let mut owner = Owner::at(0);
        for key in 1..=20_000 {
            owner.set(key * 2, 3_600_000);
        }
        // All lie in the bucket that is handed out from here on.
        owner.now = 26 << tick_bits(2);
        owner.set(1, owner.now + 100);
        for step in 0..200 {
            assert!(owner.advance(100), "step {step}");
            assert_eq!(owner.keys.contains_key(&1), owner.now < (26 << tick_bits(2)) + 100, "step {step}");
            owner.now += TICK_MS;
        }
        assert_eq!((owner.wheel.len(), owner.keys.len()), (20_000, 20_000));
        owner.run_out();
        assert!((60_000..61_000).contains(&owner.looks), "{} looks, three for each key", owner.looks);
    }

    #[test]
    fn a_full_level_leaves_a_quarter_to_coarser_ones_and_hands_out_what_was_due_first() {
        let mut owner = Owner::at(1000);
        owner.set(0, 1_000_000);
        for key in 1..=100 {
            owner.set(key * 2, 1000 + u64::from(key) * TICK_MS);
        }
        owner.now = 999_000;
        let mut due = Vec::new();
        assert!(owner.wheel.advance(owner.now, 8, &mut due));
        assert_eq!(due, [1, 2, 3, 4, 5, 6, 0, 7]);
    }

    #[test]
    fn a_clock_that_jumps_over_years_costs_no_more_than_the_hints() {
        let mut owner = Owner::at(5);
        for key in 0..1000 {
            owner.set(key * 2, 6 + u64::from(key) * DAY_MS);
        }
        owner.now = 50 * 365 * DAY_MS;
        let mut calls = 0;
        while owner.advance(100) {
            calls += 1;
        }
        assert!(calls <= 40, "{calls} calls");
        assert!(owner.keys.is_empty() && owner.wheel.is_empty());
        assert_eq!(owner.wheel.next_deadline(owner.now), None);
    }

    #[test]
    fn a_wheel_is_freed_in_steps() {
        let mut owner = Owner::at(5);
        for key in 0..20_000 {
            owner.set(key * 2, 6 + u64::from(key % 7) * 100_000_000);
        }
        owner.sweep(10);
        owner.now += 50;
        owner.advance(10);
        let (mut steps, mut more) = (0, true);
        while more {
            let (len, mut budget) = (owner.wheel.len(), 1000);
            more = owner.wheel.free_some(&mut budget);
            assert!(len - owner.wheel.len() < 3000, "steps are bounded");
            assert_eq!(more, !owner.wheel.is_empty());
            steps += 1;
        }
        assert!((10..=21).contains(&steps), "{steps} steps");
    }

    #[derive(Clone, Debug)]
    enum Op {
        Set(u32, Millis),
        Persist(u32),
        Sweep(usize),
        Advance(Millis, usize),
    }

    /// Any number of milliseconds up to 30 years, all orders of magnitude alike.
    fn span() -> impl Strategy<Value = Millis> {
        (0..40u32, any::<u64>()).prop_map(|(bits, random)| 1 + random % (1 << bits))
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..40u32, span()).prop_map(|(key, ttl)| Op::Set(key, ttl)),
            1 => (0..40u32).prop_map(Op::Persist),
            1 => (0..8usize).prop_map(Op::Sweep),
            5 => (span(), 0..12usize).prop_map(|(elapsed, budget)| Op::Advance(elapsed, budget)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_key_is_lost_or_late(start in span(), ops in prop::collection::vec(op(), 1..300)) {
            let mut owner = Owner::at(start);
            for op in ops {
                match op {
                    Op::Set(key, ttl) => owner.set(key, owner.now + ttl),
                    Op::Persist(key) => drop(owner.keys.remove(&key)),
                    Op::Sweep(budget) => owner.sweep(budget),
                    Op::Advance(elapsed, budget) => {
                        owner.now += elapsed;
                        if !owner.advance(budget) {
                            prop_assert!(owner.first_end().is_none_or(|end| end > owner.now), "late");
                        }
                    }
                }
                let next = owner.wheel.next_deadline(owner.now);
                prop_assert_eq!(next.is_none(), owner.wheel.is_empty());
                if let Some(end) = owner.first_end() {
                    prop_assert!(next.is_some_and(|next| next <= end.max(owner.now)), "{:?} for {}", next, end);
                }
            }
            owner.run_out();
        }
    }
}
