//! Histories of random clients are strictly serializable, and the checker notices when they are not.

use corelane_engine::{Faults, Flags, Merge, Plan, Scope, all_commands};
use corelane_sim::{Options, Profile, Violation, Workload, run_and_check};
use std::collections::BTreeSet;

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

/// A SORT in many small pieces was under way, or its shard had no turn for long, and a claim stood behind it.
#[test]
fn a_claim_that_takes_its_time_is_no_violation() {
    for seed in [501_888, 1_796_004_304] {
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

/// Canaries: with the protocol broken on purpose, some seed must show a history that no Redis could produce.
#[track_caller]
fn is_noticed(profile: Profile, faults: Faults) {
    let noticed =
        (0..SEEDS).map(|seed| Options { faults, ..Options::of_profile(seed, profile) }).any(|options| {
            use Violation::{KeptWaiting, Unexplained};
            matches!(run_and_check(&options), Err(Unexplained { .. } | KeptWaiting { .. }))
        });
    assert!(noticed, "none of {SEEDS} seeds showed {faults:?}");
}

#[test]
fn a_broken_protocol_is_noticed() {
    is_noticed(Profile::Strings, Faults { release_early: true, ..Faults::default() });
    is_noticed(Profile::Collections, Faults { release_early: true, ..Faults::default() });
}

/// Transactions that run although what their clients watch has changed.
#[test]
fn ignored_watches_are_noticed() {
    is_noticed(Profile::Strings, Faults { ignore_watches: true, ..Faults::default() });
}

/// Elements taken for clients that have got one elsewhere, or are gone.
#[test]
fn claims_granted_blindly_are_noticed() {
    is_noticed(Profile::Waiting, Faults { grants_blindly: true, ..Faults::default() });
}

#[test]
fn a_wrong_order_of_those_who_wait_is_noticed() {
    is_noticed(Profile::Queues, Faults { serves_last: true, ..Faults::default() });
}

#[test]
fn somebody_kept_waiting_is_noticed() {
    is_noticed(Profile::Waiting, Faults { misses_new: true, ..Faults::default() });
}

/// Collections that change while they are read in pieces.
#[test]
fn reads_without_intents_are_noticed() {
    is_noticed(Profile::Collections, Faults { reads_unguarded: true, ..Faults::default() });
}

/// Whatever way a command on keys can take is in the workload, of every family.
#[test]
fn the_workload_has_every_plan() {
    let names: BTreeSet<String> = Workload::names().map(|name| name.to_lowercase()).collect();
    let shape = |command: &corelane_engine::Command| {
        let plan = match command.plan {
            Plan::OneShard(_) => "one shard".to_owned(),
            Plan::EachShard { merge: Merge::AllOk, .. } => "each shard, all OK".to_owned(),
            Plan::EachShard { merge: Merge::Sum, .. } => "each shard, sum".to_owned(),
            Plan::EachShard { merge: Merge::InKeyOrder, .. } => "each shard, in key order".to_owned(),
            Plan::EachShard { merge: Merge::With(_), .. } => "each shard, merged".to_owned(),
            Plan::Staged { .. } => "staged".to_owned(),
            Plan::Exec => "exec".to_owned(),
            // Looking at the keys of one shard after the other promises nothing of a moment.
            Plan::Session(_) | Plan::Container | Plan::Routed { .. } => return None,
        };
        let on_data = matches!(command.scope, Scope::Keys | Scope::Whole | Scope::Watch);
        let waits = command.flags.has(Flags::BLOCKING);
        on_data.then_some((plan, command.scope, command.flags.has(Flags::WRITE), waits))
    };
    let in_workload = |command: &&corelane_engine::Command| names.contains(command.name);
    let covered: Vec<_> = all_commands().filter(in_workload).filter_map(shape).collect();
    let missing: Vec<String> = all_commands()
        .filter(|command| shape(command).is_some_and(|shape| !covered.contains(&shape)))
        .map(|command| format!("{}: {:?}", command.name, shape(command)))
        .collect();
    assert!(missing.is_empty(), "not in the workload:\n{}", missing.join("\n"));
    let groups = [
        "string",
        "generic",
        "list",
        "set",
        "sorted-set",
        "hash",
        "bitmap",
        "hyperloglog",
        "geo",
        "transactions",
    ];
    for group in groups {
        let of_group = all_commands().filter(in_workload).filter(|command| command.group == group).count();
        assert!(of_group > 0, "no command of group {group} is in the workload");
    }
}
