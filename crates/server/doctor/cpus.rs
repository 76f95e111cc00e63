//! Where the shards would run, and who else would run there.

use std::collections::BTreeMap;

use corelane_runtime::topology::{CpuQuota, cores, parse_list, ranges};

use super::{Patient, Verdict};

/// An interrupt that came in fewer times since the machine was booted disturbs nobody.
const INTERRUPTS_MIN: u64 = 10_000;
/// Interrupts that are named; the others are counted.
const NAMED_MAX: usize = 4;

pub(super) fn placement(patient: &Patient) -> Verdict {
    let (machine, layout) = match (&patient.machine, &patient.layout) {
        (Ok(machine), Ok(layout)) => (machine, layout),
        (Err(error), _) | (_, Err(error)) => return Verdict::fail(error),
    };
    let bound = patient.bound();
    let shards = layout.cpus.len();
    let on = if bound.is_empty() { "any cpu".to_owned() } else { format!("cpu {}", ranges(&bound)) };
    let text = format!(
        "{shards} shard{} on {on}; this process may use cpu {}",
        if shards == 1 { "" } else { "s" },
        ranges(&machine.allowed)
    );
    let shared: Vec<String> = cores(&machine.files, &bound)
        .iter()
        .filter(|core| core.len() > 1)
        .map(|core| ranges(core).replace(',', " and "))
        .collect();
    if shards > machine.allowed.len() {
        return Verdict::warn(format!(
            "{text}, which is fewer than shards: give --shards {}",
            machine.allowed.len()
        ));
    }
    if let Some(first) = shared.first() {
        return Verdict::warn(format!(
            "{text}; cpu {first} are threads of one core, where each shard is slower: give --placement physical without --cpus \
             and --shards unless all threads are meant to be used"
        ));
    }
    Verdict::ok(text)
}

pub(super) fn quota(patient: &Patient) -> Verdict {
    let (Ok(machine), Ok(layout)) = (&patient.machine, &patient.layout) else {
        return Verdict::ok("see placement");
    };
    let Some(quota) = machine.quota else {
        return Verdict::ok("the cgroup has no CPU quota");
    };
    if let Some(warning) = &layout.warning {
        return Verdict::warn(warning);
    }
    if whole(quota) {
        return Verdict::ok(format!("the cgroup's quota is {quota} CPUs"));
    }
    Verdict::warn(format!(
        "the cgroup's quota is {quota} CPUs, and {} shards can use more than that for a while, upon which the kernel stops them: make \
         it a whole number",
        patient.shards()
    ))
}

fn whole(quota: CpuQuota) -> bool {
    quota.millicpus.is_multiple_of(1000)
}

pub(super) fn governor(patient: &Patient) -> Verdict {
    let cpus = disturbed_cpus(patient);
    let mut by_governor: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for cpu in cpus {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        if let Some(governor) = patient.files.text(&file) {
            by_governor.entry(governor).or_default().push(cpu);
        }
    }
    let slow = by_governor.iter().find(|(governor, _)| *governor != "performance");
    match slow {
        Some((governor, cpus)) => Verdict::warn(format!(
            "cpu {} changes its clock rate with the load (governor {governor}), which short requests do not raise: run cpupower \
             frequency-set -g performance",
            ranges(cpus)
        )),
        None if by_governor.is_empty() => Verdict::ok("no governor can be seen, as on most virtual machines"),
        None => Verdict::ok("performance"),
    }
}

/// The CPUs on which shards run: those they are bound to, or all.
fn disturbed_cpus(patient: &Patient) -> Vec<usize> {
    let bound = patient.bound();
    if bound.is_empty() {
        return patient.machine.iter().flat_map(|machine| machine.allowed.iter().copied()).collect();
    }
    bound
}

pub(super) fn interrupts(patient: &Patient) -> Verdict {
    let bound = patient.bound();
    if bound.is_empty() {
        return Verdict::ok("shards that are not bound give way to interrupts");
    }
    let online = patient.files.text("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = parse_list(&online).unwrap_or_default();
    if online.iter().all(|cpu| bound.contains(cpu)) {
        return Verdict::ok("the shards have all CPUs, so interrupts come in where they run");
    }
    let busy = busy_interrupts(patient);
    let on_shards: Vec<&(u64, String, Vec<usize>)> =
        busy.iter().filter(|(_, _, cpus)| cpus.iter().any(|cpu| bound.contains(cpu))).collect();
    let Some((number, ..)) = on_shards.first() else {
        return Verdict::ok("none of those that are frequent comes in where a shard runs");
    };
    let free: Vec<usize> = online.into_iter().filter(|cpu| !bound.contains(cpu)).collect();
    let free = ranges(&free);
    let names: Vec<String> =
        on_shards.iter().take(NAMED_MAX).map(|(number, name, _)| format!("{name} ({number})")).collect();
    let more = on_shards.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let balancer = if has_process(patient, "irqbalance") {
        ", and keep irqbalance from moving them back (IRQBALANCE_BANNED_CPULIST)"
    } else {
        ""
    };
    Verdict::warn(format!(
        "interrupts of {}{more} come in on CPUs of shards: move each to cpu {free} (echo {free} > /proc/irq/{number}/smp_affinity_list)\
         {balancer}",
        names.join(", ")
    ))
}

/// Number, name and CPUs of each device's interrupt that is frequent.
///
/// A line of /proc/interrupts is `36: 12 657611 PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0`: a count per online CPU comes first.
fn busy_interrupts(patient: &Patient) -> Vec<(u64, String, Vec<usize>)> {
    let text = patient.files.text("/proc/interrupts").unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse::<u64>().ok()?;
        let total: u64 = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok()).sum();
        let file = |name: &str| patient.files.text(&format!("/proc/irq/{number}/{name}"));
        let cpus = file("effective_affinity_list")
            .filter(|list| !list.is_empty())
            .or_else(|| file("smp_affinity_list"))
            .and_then(|list| parse_list(&list).ok())?;
        let name = rest.split_whitespace().last()?.to_owned();
        (total >= INTERRUPTS_MIN).then_some((number, name, cpus))
    });
    rows.collect()
}

fn has_process(patient: &Patient, name: &str) -> bool {
    let processes = patient.files.names("/proc");
    let mut numbers = processes.iter().filter(|entry| entry.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.any(|pid| patient.files.text(&format!("/proc/{pid}/comm")).is_some_and(|comm| comm == name))
}

#[cfg(test)]
mod tests {
    use corelane_runtime::options::ServerOptions;

    use super::*;
    use crate::doctor::Level::{Ok as Fine, Warn};
    use crate::doctor::testing::{Made, check};

    const SIBLINGS: [(&str, &str); 2] = [
        ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n"),
        ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n"),
    ];

    #[test]
    fn threads_of_one_core_and_too_many_shards_are_pointed_out() {
        check("placed", placement, &[], Fine, "2 shards on cpu 0-1; this process may use cpu 0-1");
        let made = Made::new("threads", &SIBLINGS);
        let with = |shards, cpus: Option<&str>| {
            let options = ServerOptions { shards, cpus: cpus.map(str::to_owned), ..ServerOptions::default() };
            placement(&made.patient(2, options))
        };
        assert_eq!(with(None, None), Verdict::ok("1 shard on cpu 0; this process may use cpu 0-1"));
        let threads = with(Some(2), None);
        assert!(
            threads.level == Warn && threads.text.contains("cpu 0-1 are threads of one core"),
            "{threads:?}"
        );
        let many = with(Some(3), None);
        assert!(many.level == Warn && many.text.contains("give --shards 2"), "{many:?}");
        let unknown = with(None, Some("7"));
        assert!(unknown.text.contains("--cpus names cpu 7"), "{unknown:?}");
    }

    #[test]
    fn quotas() {
        let with = |max| {
            [
                ("proc/self/cgroup", "0::/\n"),
                ("proc/self/mountinfo", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n"),
                ("cg/cpu.max", max),
            ]
        };
        check("quota-none", quota, &with("max 100000\n"), Fine, "no CPU quota");
        check("quota-whole", quota, &with("100000 100000\n"), Fine, "quota is 1 CPUs");
        check("quota-part", quota, &with("150000 100000\n"), Warn, "make it a whole number");
        let made = Made::new("quota-less", &with("100000 100000\n"));
        let options = ServerOptions { shards: Some(2), ..ServerOptions::default() };
        let verdict = quota(&made.patient(2, options));
        assert!(verdict.level == Warn && verdict.text.contains("give --shards 1"), "{verdict:?}");
    }

    #[test]
    fn governors() {
        let file = |cpu: usize| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        let (first, second) = (file(0), file(1));
        let with = |governor| [(first.as_str(), "performance\n"), (second.as_str(), governor)];
        check("governor-fast", governor, &with("performance\n"), Fine, "performance");
        check("governor-slow", governor, &with("schedutil\n"), Warn, "cpu 1 changes its clock rate");
        check("governor-none", governor, &[], Fine, "no governor can be seen");
    }

    #[test]
    fn interrupts_on_shards() {
        let with = |online, affinity| {
            [
                ("sys/devices/system/cpu/online", online),
                (
                    "proc/interrupts",
                    "           CPU0       CPU1\n 35:          0          1 PCI-MSIX 0-edge idle\n \
                     36:       9000       9000 PCI-MSIX 1-edge eth0-rx\nLOC: 5926882 5853865 Local timer interrupts\n",
                ),
                ("proc/irq/35/smp_affinity_list", "0\n"),
                ("proc/irq/36/smp_affinity_list", affinity),
                ("proc/77/comm", "irqbalance\n"),
            ]
        };
        check("irq-all", interrupts, &with("0-1\n", "0\n"), Fine, "the shards have all CPUs");
        check("irq-away", interrupts, &with("0-2\n", "2\n"), Fine, "none of those");
        let moved = "interrupts of eth0-rx (36) come in on CPUs of shards: move each to cpu 2 (echo 2 > \
            /proc/irq/36/smp_affinity_list), and keep irqbalance";
        check("irq-here", interrupts, &with("0-2\n", "1\n"), Warn, moved);
        let made = Made::new("irq-float", &with("0-2\n", "1\n"));
        let options = ServerOptions { shards: Some(9), ..ServerOptions::default() };
        assert!(interrupts(&made.patient(2, options)).text.contains("not bound"));
    }
}
