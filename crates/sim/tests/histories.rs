//! Histories of random clients are strictly serializable, and the checker notices when they are not.

use corelane_engine::Faults;
use corelane_sim::{Options, Violation, run_and_check};

/// Seeds of the ordinary test run; `.ci/long` runs thousands with the binary.
const SEEDS: u64 = 400;

#[test]
fn every_history_has_a_serial_order() {
    for seed in 0..SEEDS {
        if let Err(violation) = run_and_check(&Options::from_seed(seed)) {
            panic!("{violation}");
        }
    }
}

#[test]
fn a_run_is_the_same_every_time() {
    let text = |seed| {
        let history = run_and_check(&Options::from_seed(seed)).expect("explained");
        history.records.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for seed in [3, 17] {
        assert_eq!(text(seed), text(seed));
    }
}

/// The same for transactions that run although what their clients watch has changed.
#[test]
fn ignored_watches_are_noticed() {
    let noticed = (0..SEEDS)
        .map(|seed| Options {
            faults: Faults { ignore_watches: true, ..Faults::default() },
            ..Options::from_seed(seed)
        })
        .filter(|options| matches!(run_and_check(options), Err(Violation::Unexplained { .. })))
        .count();
    assert!(noticed > 0, "none of {SEEDS} seeds showed the fault");
}

/// The canary: with intents let go too early, some seed must show a history that no Redis could produce.
#[test]
fn a_broken_protocol_is_noticed() {
    let noticed = (0..SEEDS)
        .map(|seed| Options {
            faults: Faults { release_early: true, ..Faults::default() },
            ..Options::from_seed(seed)
        })
        .filter(|options| matches!(run_and_check(options), Err(Violation::Unexplained { .. })))
        .count();
    assert!(noticed > 0, "none of {SEEDS} seeds showed the fault");
}
