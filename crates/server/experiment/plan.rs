//! Which loads and cases of an experiment are to be run, and how each run is told about.

use anyhow::{Result, bail};

use super::Common;
use super::load::{Generator, Load, Outcome};
use super::recording::Case;
use super::server::Running;

/// Leaves of the loads and cases what `--only` names; everything of either of which it names nothing.
///
/// # Errors
/// It names something that there is not.
pub(super) fn choose(only: &[String], loads: &mut Vec<Load>, cases: &mut Vec<Case>) -> Result<()> {
    let same = |one: &str, other: &str| one.eq_ignore_ascii_case(other);
    for name in only {
        if !loads.iter().any(|load| same(&load.name, name))
            && !cases.iter().any(|case| same(&case.name, name))
        {
            let loads = loads.iter().map(|load| load.name.as_str());
            let known: Vec<&str> = loads.chain(cases.iter().map(|case| case.name.as_str())).collect();
            bail!("there is no {name} here; there are {}", known.join(", "));
        }
    }
    let named = |name: &str| only.iter().any(|one| same(one, name));
    if loads.iter().any(|load| named(&load.name)) {
        loads.retain(|load| named(&load.name));
    }
    if cases.iter().any(|case| named(&case.name)) {
        cases.retain(|case| named(&case.name));
    }
    Ok(())
}

/// Whatever loads the servers of an experiment.
pub(super) struct Bench<'a> {
    generator: Generator,
    quiet: bool,
    runs: u32,
    common: &'a Common,
}

impl<'a> Bench<'a> {
    /// One on these CPUs, or on all.
    pub(super) fn new(common: &'a Common, cpus: Option<Vec<usize>>) -> Self {
        let generator = Generator { program: common.client.clone(), host: common.host.clone(), cpus };
        Self { generator, quiet: common.quiet, runs: common.repeat, common }
    }

    /// From the first run to the last.
    pub(super) fn runs(&self) -> impl Iterator<Item = usize> + use<> {
        1..=self.runs as usize
    }

    /// Loads servers at the same time, and says so.
    ///
    /// # Errors
    /// Those of [`Generator::run`].
    pub(super) fn load(
        &self,
        servers: &mut [&mut Running],
        load: &Load,
        case: &str,
        run: usize,
    ) -> Result<Vec<Outcome>> {
        let outcomes = self.generator.run(servers, load)?;
        if !self.quiet {
            let rates: Vec<String> = outcomes
                .iter()
                .map(|outcome| super::figures::grouped(outcome.test.requests_per_second))
                .collect();
            eprintln!(
                "run {run} of {}: {}, {case}: {} requests/s",
                self.runs,
                load.name,
                rates.join(" and ")
            );
        }
        Ok(outcomes)
    }

    /// The loads with the options of the command line: scaled ones come so from [`Load::new`].
    pub(super) fn threaded(&self, loads: Vec<Load>) -> Vec<Load> {
        loads.into_iter().map(|load| load.threaded(self.common.threads)).collect()
    }
}
