//! Which shard serves a new connection: the kernel's hash over SO_REUSEPORT listeners spreads few connections unevenly,
//! so a shard with clearly more than the least loaded one hands new ones over.

/// A shard may have this fraction (one in 8) more connections than the least loaded shard before it hands over: far
/// below the 1.2 × mean that is promised, and enough slack that short connections are mostly served where they came in.
const SLACK_SHIFT: u32 = 3;

/// The shard that should take over a connection which `me` accepted and which is in no count yet; `None`: keep it.
///
/// With `least` connections on the least loaded shard, the busiest ends with at most `least + least / 8 + 1`. Ties go to
/// the next shard after `me`, so that several givers do not pile onto one taker.
#[must_use]
pub fn choose(me: usize, counts: &[u32]) -> Option<usize> {
    let others = (1..counts.len()).map(|step| (me + step) % counts.len());
    let least = others.min_by_key(|&shard| counts[shard])?;
    let allowed = counts[least] + (counts[least] >> SLACK_SHIFT);
    (counts[me] > allowed).then_some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts `connections` at shards picked by `arrive` and returns the final counts.
    fn settle(shards: usize, connections: usize, mut arrive: impl FnMut(usize) -> usize) -> Vec<u32> {
        let mut counts = vec![0; shards];
        for i in 0..connections {
            let at = arrive(i);
            let to = choose(at, &counts).unwrap_or(at);
            counts[to] += 1;
        }
        counts
    }

    fn busiest_over_mean(counts: &[u32]) -> f64 {
        let busiest = f64::from(*counts.iter().max().unwrap());
        busiest * counts.len() as f64 / f64::from(counts.iter().sum::<u32>())
    }

    #[test]
    fn fifty_connections_end_within_a_fifth_of_the_mean() {
        for shards in [1, 2, 3, 4, 5, 10] {
            let mut x = 1u64;
            let patterns: [&mut dyn FnMut(usize) -> usize; 3] =
                [&mut |_| 0, &mut |i| i % shards, &mut |_| {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (x >> 33) as usize % shards
                }];
            for arrive in patterns {
                let counts = settle(shards, 50, arrive);
                assert_eq!(counts.iter().sum::<u32>(), 50);
                assert!(busiest_over_mean(&counts) <= 1.2, "{shards} shards: {counts:?}");
            }
        }
    }

    #[test]
    fn many_connections_stay_balanced_too() {
        for shards in [2, 7, 64] {
            let counts = settle(shards, 9_000, |_| shards - 1);
            assert!(busiest_over_mean(&counts) <= 1.2, "{counts:?}");
        }
    }

    #[test]
    fn keeps_what_is_not_clearly_too_much() {
        let table: [(usize, &[u32], Option<usize>); 8] = [
            (0, &[0], None),
            (0, &[9], None),
            (0, &[0, 0], None),
            (0, &[1, 0], Some(1)),
            (1, &[8, 9], None),
            (0, &[9, 8], None),
            (0, &[10, 8], Some(1)),
            (1, &[0, 1, 0], Some(2)),
        ];
        for (me, counts, expected) in table {
            assert_eq!(choose(me, counts), expected, "{me} {counts:?}");
        }
    }
}
