//! The kernel, its limits and its memory.

use corelane_runtime::preflight::{
    check_io_uring, check_kernel, kernel_release, raise_descriptors, raise_memlock,
};

use super::{Patient, Verdict};

pub(super) fn kernel(_: &Patient) -> Verdict {
    let release = kernel_release();
    match check_kernel(&release) {
        Ok(()) => Verdict::ok(format!("{release}, and 6.1 is needed")),
        Err(error) => Verdict::fail(error),
    }
}

pub(super) fn io_uring(_: &Patient) -> Verdict {
    match check_io_uring() {
        Ok(()) => Verdict::ok("it may be used and has all operations"),
        Err(error) => Verdict::fail(error),
    }
}

pub(super) fn memlock(_: &Patient) -> Verdict {
    match raise_memlock() {
        Ok(u64::MAX) => Verdict::ok("unlimited"),
        Ok(bytes) => Verdict::ok(format!("{} KiB may be locked, and 512 are needed", bytes >> 10)),
        Err(error) => Verdict::fail(error),
    }
}

pub(super) fn descriptors(patient: &Patient) -> Verdict {
    let maxclients = patient.options.maxclients;
    match raise_descriptors(patient.shards(), maxclients) {
        Ok(found) => found.warning(maxclients).map_or_else(
            || Verdict::ok(format!("{} may be open, enough for {maxclients} clients", found.limit)),
            Verdict::warn,
        ),
        Err(error) => Verdict::fail(error),
    }
}

/// The server never forks, so the strict mode hurts only by counting what the allocator reserves and does not use.
pub(super) fn overcommit(patient: &Patient) -> Verdict {
    match patient.files.number("/proc/sys/vm/overcommit_memory") {
        Some(2) => Verdict::warn(
            "vm.overcommit_memory is 2, which counts memory that is reserved and not used: run sysctl -w \
             vm.overcommit_memory=0, or the allocator may run out of memory early",
        ),
        Some(mode) => Verdict::ok(format!("vm.overcommit_memory is {mode}")),
        None => Verdict::ok("vm.overcommit_memory cannot be seen"),
    }
}

/// The server switches them off for itself: the first touch of one clears 2 MiB in the middle of a turn.
pub(super) fn huge_pages(patient: &Patient) -> Verdict {
    let text = patient.files.text("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mode, _)| mode);
    match mode {
        Some("always") => {
            Verdict::ok("transparent huge pages are on for all, and the server switches them off for itself")
        }
        Some(mode) => Verdict::ok(format!("transparent huge pages: {mode}")),
        None => Verdict::ok("this kernel has no transparent huge pages"),
    }
}

/// The clock is read once a turn: 20 to 50 ns without a system call, microseconds from a device.
pub(super) fn clock(patient: &Patient) -> Verdict {
    const FAST: [&str; 5] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen"];
    match patient.files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Some(source) if FAST.contains(&source.as_str()) => Verdict::ok(source),
        Some(source) => Verdict::warn(format!(
            "the clock source {source} is slow to read: boot with tsc=reliable if this processor's time-stamp counter is \
             stable, or see in the kernel's log why tsc was not taken"
        )),
        None => Verdict::ok("the clock source cannot be seen"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level::{Ok as Fine, Warn};
    use crate::doctor::testing::check;

    #[test]
    fn overcommit_by_mode() {
        let file = "proc/sys/vm/overcommit_memory";
        check("overcommit-0", overcommit, &[(file, "0\n")], Fine, "is 0");
        check("overcommit-2", overcommit, &[(file, "2\n")], Warn, "sysctl -w vm.overcommit_memory=0");
        check("overcommit-x", overcommit, &[], Fine, "cannot be seen");
    }

    #[test]
    fn huge_pages_by_mode() {
        let file = "sys/kernel/mm/transparent_hugepage/enabled";
        check("thp-always", huge_pages, &[(file, "[always] madvise never\n")], Fine, "off for itself");
        check("thp-madvise", huge_pages, &[(file, "always [madvise] never\n")], Fine, ": madvise");
        check("thp-none", huge_pages, &[], Fine, "no transparent huge pages");
    }

    #[test]
    fn clocks_by_source() {
        let file = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        check("clock-tsc", clock, &[(file, "tsc\n")], Fine, "tsc");
        check("clock-hpet", clock, &[(file, "hpet\n")], Warn, "hpet is slow to read");
    }
}
