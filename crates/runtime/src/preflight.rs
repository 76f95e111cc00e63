//! What must be right before any executor is made: the kernel, io_uring, memory that may be locked, descriptors.
//!
//! glommio panics or exits deep inside when one of these is missing; here each is tried first, and each failure is one
//! sentence that says what to do. Limits that can be raised are raised.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;

use io_uring::{IoUring, Probe, opcode};
use thiserror::Error;

/// Oldest kernel whose io_uring has all we use (`DEFER_TASKRUN` came last).
const KERNEL_MIN: (u32, u32) = (6, 1);
/// glommio refuses to start an executor below this soft limit, whatever the kernel charges for.
const MEMLOCK_MIN_BYTES: u64 = 512 << 10;
/// Fewer clients than this make no server (Redis has the same floor for its own reasons).
const CLIENTS_MIN: u32 = 32;
/// Descriptors of the process that belong to no client or shard: standard streams, log files, loaders.
const PROCESS_DESCRIPTORS: u64 = 32;
/// Descriptors of one shard: 4 rings, their and the mesh's events, helper threads' pipes, listeners.
const SHARD_DESCRIPTORS: u64 = 24;
/// The same without an executor: a ring, three events, listeners.
const GUEST_SHARD_DESCRIPTORS: u64 = 8;

/// Why this machine cannot run the server.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PreflightError {
    /// Too old.
    #[error(
        "the kernel is {found} and corelane needs 6.1 or newer: boot a newer one (for a container, on its host)"
    )]
    Kernel {
        /// What `uname` says.
        found: String,
    },
    /// `io_uring_setup` does not exist, or a container runtime pretends so.
    #[error(
        "io_uring is missing: use a kernel built with CONFIG_IO_URING or, in a container, a seccomp profile that allows \
         io_uring_setup, io_uring_enter and io_uring_register (docker run --security-opt seccomp=unconfined)"
    )]
    NoIoUring,
    /// A seccomp profile or another security module forbids it.
    #[error(
        "io_uring is forbidden for this process: allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp \
         profile of the container (docker run --security-opt seccomp=unconfined) or in the policy of its security module"
    )]
    IoUringForbidden,
    /// The administrator switched it off.
    #[error(
        "io_uring is switched off by kernel.io_uring_disabled={value}: run sysctl -w kernel.io_uring_disabled=0, or with 1 \
         add this user to the group of kernel.io_uring_group"
    )]
    IoUringDisabled {
        /// 1: for users without privileges, 2: for everybody.
        value: u8,
    },
    /// It exists but lacks something.
    #[error("the io_uring of this kernel has no {feature}: boot kernel 6.1 or newer")]
    Feature {
        /// What is missing.
        feature: &'static str,
    },
    /// Locked memory.
    #[error(
        "only {limit_kib} KiB of memory may be locked and corelane needs 512: raise the limit (ulimit -l unlimited, \
         docker run --ulimit memlock=-1, or LimitMEMLOCK=infinity in the systemd unit)"
    )]
    Memlock {
        /// The hard limit.
        limit_kib: u64,
    },
    /// Not even a few clients would fit.
    #[error(
        "only {limit} file descriptors may be open and {needed} are needed for {CLIENTS_MIN} clients: raise the limit \
         (ulimit -n 10240, docker run --ulimit nofile=10240, or LimitNOFILE=10240 in the systemd unit)"
    )]
    Descriptors {
        /// The hard limit.
        limit: u64,
        /// For this number of shards.
        needed: u64,
    },
    /// The same for a program that owns its limits.
    #[error(
        "only {limit} file descriptors may be open and {needed} are needed for {shards} shards and {connections} connections: \
         raise the limit (ulimit -n, docker run --ulimit nofile=, or LimitNOFILE= in the systemd unit), or ask for fewer"
    )]
    GuestDescriptors {
        /// The soft limit.
        limit: u64,
        /// How many it would take.
        needed: u64,
        /// For so many shards,
        shards: usize,
        /// and so many connections.
        connections: u32,
    },
    /// Anything else that `io_uring_setup` says.
    #[error(
        "io_uring cannot be set up ({0}): see whether this machine is out of memory or of kernel resources"
    )]
    IoUring(String),
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub struct Preflight {
    /// As asked for, or fewer when there are not enough descriptors.
    pub maxclients: u32,
    /// Sentences for the log.
    pub warnings: Vec<String>,
}

/// Checks everything and raises the limits of the process.
///
/// # Errors
/// The first thing that makes a server impossible.
pub fn preflight(shards: usize, maxclients: u32) -> Result<Preflight, PreflightError> {
    check_kernel(&kernel_release())?;
    let descriptors = raise_descriptors(shards, maxclients)?;
    raise_memlock()?;
    check_io_uring()?;
    Ok(Preflight {
        maxclients: descriptors.clients,
        warnings: descriptors.warning(maxclients).into_iter().collect(),
    })
}

/// How many descriptors may be open, and for how many clients that is enough.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Descriptors {
    /// Clients that fit, at most as many as asked for.
    pub clients: u32,
    /// The limit, which has been raised as far as it could be and had to be.
    pub limit: u64,
}

impl Descriptors {
    /// A sentence for the log, if there are fewer than `maxclients`.
    #[must_use]
    pub fn warning(self, maxclients: u32) -> Option<String> {
        let Self { clients, limit } = self;
        (clients < maxclients).then(|| {
            format!(
                "maxclients is {clients} instead of {maxclients}, since only {limit} file descriptors may be open: raise the \
                 limit (ulimit -n, docker run --ulimit nofile=, or LimitNOFILE= in the systemd unit)"
            )
        })
    }
}

/// Raises the limit of descriptors for that many clients and shards.
///
/// # Errors
/// Not even a few clients would fit.
pub fn raise_descriptors(shards: usize, maxclients: u32) -> Result<Descriptors, PreflightError> {
    let reserved = descriptors_needed(shards);
    let (limit, hard) = raise(libc::RLIMIT_NOFILE, reserved + u64::from(maxclients));
    let clients = clients_that_fit(limit, hard, reserved, maxclients)?;
    Ok(Descriptors { clients, limit: if clients < maxclients { hard.max(limit) } else { limit } })
}

/// The most clients that may ever be allowed; raises the limit of descriptors as far as it goes.
#[must_use]
pub fn most_clients(shards: usize) -> u32 {
    let (_, hard) = limit_of(libc::RLIMIT_NOFILE);
    let (soft, _) = raise(libc::RLIMIT_NOFILE, hard);
    u32::try_from(soft.saturating_sub(descriptors_needed(shards))).unwrap_or(u32::MAX)
}

/// Raises the limit of locked memory to what an executor asks for; returns it in bytes.
///
/// # Errors
/// It cannot be raised as far.
pub fn raise_memlock() -> Result<u64, PreflightError> {
    let (limit, _) = raise(libc::RLIMIT_MEMLOCK, MEMLOCK_MIN_BYTES);
    if limit < MEMLOCK_MIN_BYTES {
        return Err(PreflightError::Memlock { limit_kib: limit >> 10 });
    }
    Ok(limit)
}

/// Checks what shards without executors need, and changes nothing: for a program that owns its limits. Returns how many of
/// `connections` fit.
///
/// # Errors
/// The first thing that makes shards impossible, or that many connections.
pub fn check_guest(shards: usize, connections: RangeInclusive<u32>) -> Result<u32, PreflightError> {
    check_kernel(&kernel_release())?;
    let (limit, _) = limit_of(libc::RLIMIT_NOFILE);
    let fitting = guests_connections(limit, shards, connections)?;
    check_io_uring()?;
    Ok(fitting)
}

fn guests_connections(
    limit: u64,
    shards: usize,
    connections: RangeInclusive<u32>,
) -> Result<u32, PreflightError> {
    let (least, most) = connections.into_inner();
    let reserved = GUEST_SHARD_DESCRIPTORS * shards as u64;
    let needed = reserved + u64::from(least);
    if limit < needed {
        return Err(PreflightError::GuestDescriptors { limit, needed, shards, connections: least });
    }
    Ok((limit - reserved).min(u64::from(most)) as u32)
}

/// The kernel's version, as `uname -r` says it; empty where it is hidden.
#[must_use]
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// A release that cannot be read is let through: trying io_uring says more.
///
/// # Errors
/// It is too old.
pub fn check_kernel(release: &str) -> Result<(), PreflightError> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < KERNEL_MIN => {
            Err(PreflightError::Kernel { found: release.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Makes a small ring of the kind the shards use, and asks it what it can do.
///
/// # Errors
/// What is missing or forbids it.
pub fn check_io_uring() -> Result<(), PreflightError> {
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(16)
        .build(8)
        .map_err(|error| setup_error(&error, disabled_sysctl()))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| setup_error(&error, disabled_sysctl()))?;
    // The third system call: a profile may allow the other two alone.
    // SAFETY: the operation refers to no memory.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    debug_assert!(pushed.is_ok(), "a fresh ring has room");
    ring.submit().map_err(|error| setup_error(&error, disabled_sysctl()))?;
    // The multishot forms and the provided-buffer ring have no bit of their own; the kernel's version stands for them.
    let needed = [
        (opcode::AcceptMulti::CODE, "multishot accept"),
        (opcode::RecvMulti::CODE, "multishot recv"),
        (opcode::Send::CODE, "send"),
        (opcode::SendMsg::CODE, "sendmsg"),
        (opcode::AsyncCancel2::CODE, "cancellation by descriptor"),
        (opcode::PollAdd::CODE, "multishot poll"),
        (opcode::Timeout::CODE, "time-outs"),
        (opcode::ProvideBuffers::CODE, "provided buffers"),
        // Introduced after the provided-buffer ring and before `DEFER_TASKRUN`: its bit vouches for the former.
        (opcode::SendZc::CODE, "provided-buffer ring"),
    ];
    match needed.into_iter().find(|&(code, _)| !probe.is_supported(code)) {
        Some((_, feature)) => Err(PreflightError::Feature { feature }),
        None => Ok(()),
    }
}

/// `kernel.io_uring_disabled`, 0 where the kernel has no such switch.
fn disabled_sysctl() -> u8 {
    let text = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// What an error of `io_uring_setup` or `io_uring_register` means.
fn setup_error(error: &io::Error, disabled: u8) -> PreflightError {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => PreflightError::NoIoUring,
        Some(libc::EPERM | libc::EACCES) if disabled > 0 => {
            PreflightError::IoUringDisabled { value: disabled }
        }
        Some(libc::EPERM | libc::EACCES) => PreflightError::IoUringForbidden,
        Some(libc::ENOMEM) => PreflightError::Memlock { limit_kib: limit_of(libc::RLIMIT_MEMLOCK).0 >> 10 },
        Some(libc::EINVAL) => PreflightError::Feature { feature: "deferred task work (DEFER_TASKRUN)" },
        Some(libc::EMFILE | libc::ENFILE) => {
            let limit = limit_of(libc::RLIMIT_NOFILE).0;
            PreflightError::Descriptors { limit, needed: descriptors_needed(1) + u64::from(CLIENTS_MIN) }
        }
        _ => PreflightError::IoUring(error.to_string()),
    }
}

fn descriptors_needed(shards: usize) -> u64 {
    PROCESS_DESCRIPTORS + SHARD_DESCRIPTORS * shards as u64
}

/// How many of `maxclients` may connect when `limit` descriptors may be open and `reserved` are for ourselves.
fn clients_that_fit(limit: u64, hard: u64, reserved: u64, maxclients: u32) -> Result<u32, PreflightError> {
    let clients = limit.saturating_sub(reserved).min(u64::from(maxclients)) as u32;
    if clients < CLIENTS_MIN.min(maxclients) {
        let needed = reserved + u64::from(CLIENTS_MIN.min(maxclients));
        return Err(PreflightError::Descriptors { limit: limit.max(hard), needed });
    }
    Ok(clients)
}

/// The calls of libc name resources by an enum of their own on glibc and by an int elsewhere.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// Raises the soft limit to `wanted`, and the hard one where we may; returns (soft, hard) as they are then.
fn raise(resource: Resource, wanted: u64) -> (u64, u64) {
    let (soft, hard) = limit_of(resource);
    if soft >= wanted {
        return (soft, hard);
    }
    if hard < wanted && set_limit(resource, wanted, wanted) {
        return (wanted, wanted);
    }
    let reachable = wanted.min(hard);
    if set_limit(resource, reachable, hard) { (reachable, hard) } else { (soft, hard) }
}

/// Soft and hard limit; unlimited is `u64::MAX`.
fn limit_of(resource: Resource) -> (u64, u64) {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: `limit` is writable. On failure, which a valid resource excludes, it stays zero.
    unsafe { libc::getrlimit(resource, limit.as_mut_ptr()) };
    // SAFETY: all bytes are written, and any value is valid.
    let limit = unsafe { limit.assume_init() };
    (limit.rlim_cur, limit.rlim_max)
}

fn set_limit(resource: Resource, soft: u64, hard: u64) -> bool {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` is readable.
    unsafe { libc::setrlimit(resource, &raw const limit) == 0 }
}

#[cfg(test)]
mod tests;
