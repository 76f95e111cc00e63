//! One ring of a timing wheel: 256 buckets of hints, by ticks of any length.
//!
//! Knows ticks, not milliseconds. A bitmap tells which buckets are occupied, so that a jump over any number of ticks
//! costs a few words to look at and one step for each bucket that it finds.

/// Buckets of a ring.
pub(super) const BUCKETS: u64 = 256;
/// Generations of a bucket; they count round. A mark of one is forgotten before four newer ones can have come: hints of a
/// bucket are in the ring, twice due (the ring does not turn before these are gone), and swept.
const GENERATIONS: u8 = 32;
/// Hints in one allocation of a large bucket, so that nothing large is ever copied, moved or freed at once.
const BLOCK_LEN: usize = 1024;

/// A ring of buckets, each for one tick of those that lie next behind `turned`.
#[derive(Debug, Default)]
pub(super) struct Level {
    /// Buckets of ticks up to this one have been emptied into `due`.
    turned: u64,
    occupied: [u64; BUCKETS as usize / 64],
    /// Empty until the first hint comes.
    buckets: Box<[Bucket]>,
    /// Hints whose tick has come, the earliest at the end.
    pub(super) due: Vec<Hints>,
}

#[derive(Debug, Default)]
struct Bucket {
    hints: Hints,
    generation: u8,
}

impl Level {
    /// Bytes of the ring without its hints.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// The first and the last tick that there is a bucket for.
    pub(super) fn ticks(&self) -> (u64, u64) {
        (self.turned + 1, self.turned + BUCKETS)
    }

    /// Puts a hint in the bucket of a tick that there is one for; returns the bucket's generation.
    pub(super) fn push(&mut self, tick: u64, reference: u32) -> u8 {
        debug_assert!((self.ticks().0..=self.ticks().1).contains(&tick), "no bucket for tick {tick}");
        if self.buckets.is_empty() {
            self.buckets = std::iter::repeat_with(Bucket::default).take(BUCKETS as usize).collect();
        }
        let idx = tick % BUCKETS;
        self.occupied[(idx / 64) as usize] |= 1 << (idx % 64);
        let bucket = &mut self.buckets[idx as usize];
        bucket.hints.push(reference);
        bucket.generation
    }

    /// The tick of a bucket in which hints of this generation lie now.
    pub(super) fn tick_of(&self, bucket: u8, generation: u8) -> Option<u64> {
        let idx = u64::from(bucket);
        let occupied = self.occupied[(idx / 64) as usize] >> (idx % 64) & 1 == 1;
        let (first, _) = self.ticks();
        (occupied && self.buckets[usize::from(bucket)].generation == generation)
            .then(|| first + (idx.wrapping_sub(first) % BUCKETS))
    }

    /// The first occupied tick from `from` on, which must not lie before those that there are buckets for.
    pub(super) fn next_occupied(&self, from: u64) -> Option<u64> {
        let (_, last) = self.ticks();
        let mut tick = from;
        while tick <= last {
            let idx = tick % BUCKETS;
            let word = self.occupied[(idx / 64) as usize] >> (idx % 64);
            if word != 0 {
                let found = tick + u64::from(word.trailing_zeros());
                return (found <= last).then_some(found);
            }
            tick += 64 - idx % 64;
        }
        None
    }

    /// Makes all hints up to a tick due, unless others still are: then it must be asked again.
    pub(super) fn turn_to(&mut self, tick: u64) {
        if !self.due.is_empty() || tick <= self.turned {
            return;
        }
        let mut from = self.turned + 1;
        while let Some(found) = self.next_occupied(from).filter(|found| *found <= tick) {
            let hints = self.take(found);
            self.due.push(hints);
            from = found + 1;
        }
        self.due.reverse();
        self.turned = tick;
    }

    /// Takes the hints of a tick away; marks of them stand for nothing from now on.
    pub(super) fn take(&mut self, tick: u64) -> Hints {
        let idx = tick % BUCKETS;
        self.occupied[(idx / 64) as usize] &= !(1 << (idx % 64));
        let bucket = &mut self.buckets[idx as usize];
        bucket.generation = (bucket.generation + 1) % GENERATIONS;
        std::mem::take(&mut bucket.hints)
    }

    /// Appends up to `budget` due hints.
    pub(super) fn drain_due(&mut self, out: &mut Vec<u32>, mut budget: usize) {
        while budget != 0
            && let Some(hints) = self.due.last_mut()
        {
            budget -= hints.drain(out, budget);
            if hints.is_empty() {
                self.due.pop();
            }
        }
    }
}

/// A bag of hints, four bytes each.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// Empty only if all are.
    open: Vec<u32>,
    /// Blocks of `BLOCK_LEN`.
    full: Vec<Vec<u32>>,
}

impl Hints {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn push(&mut self, reference: u32) {
        if self.open.len() == BLOCK_LEN {
            self.full.push(std::mem::replace(&mut self.open, Vec::with_capacity(BLOCK_LEN)));
        }
        self.open.push(reference);
    }

    /// Moves up to `budget` hints to `out`; returns how many.
    pub(super) fn drain(&mut self, out: &mut Vec<u32>, budget: usize) -> usize {
        let mut left = budget;
        while left != 0 && !self.open.is_empty() {
            let kept = self.open.len().saturating_sub(left);
            left -= self.open.len() - kept;
            out.extend(self.open.drain(kept..));
            if self.open.is_empty() {
                self.open = self.full.pop().unwrap_or_default();
            }
        }
        budget - left
    }

    /// Frees one block; returns how many hints were in it.
    pub(super) fn free_block(&mut self) -> usize {
        std::mem::replace(&mut self.open, self.full.pop().unwrap_or_default()).len()
    }
}
