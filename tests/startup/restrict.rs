//! Takes something from a process before it starts: limits, the right to raise them, system calls.
//!
//! All of it happens in the child between fork and exec, where only system calls are allowed: no allocation, no lock.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The number of CAP_SYS_RESOURCE in linux/capability.h: with it, limits can be raised at will.
const CAP_SYS_RESOURCE: libc::c_ulong = 24;

/// Starts `command` with this soft and hard limit, and without the right to raise the latter, even if we are root.
pub(crate) fn limit(command: &mut Command, resource: libc::__rlimit_resource_t, soft: u64, hard: u64) {
    let lower = move || {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: integers only. It fails where we have no such right to give up.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) };
        // SAFETY: `limit` is readable.
        let result = unsafe { libc::setrlimit(resource, &raw const limit) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes two system calls and touches nothing but its own numbers.
    unsafe { command.pre_exec(lower) };
}

/// Starts `command` so that a system call fails with `errno`: every one, or those whose argument number `.0` is `.1`.
pub(crate) fn refuse(command: &mut Command, call: libc::c_long, argument: Option<(u32, u32)>, errno: i32) {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ERRNO: u32 = 0x0005_0000;
    const ALLOW: u32 = 0x7fff_0000;
    // struct seccomp_data: the number of the call at 0, its arguments from 16 on, 8 bytes each, low half first.
    let (offset, value) = argument.map_or((0, call as u32), |(idx, value)| (16 + 8 * idx, value));
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 3, call as u32),
        step(LOAD_WORD, 0, 0, offset),
        step(JUMP_IF_EQUAL, 0, 1, value),
        step(RETURN, 0, 0, ERRNO | errno as u32),
        step(RETURN, 0, 0, ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: integers only; it takes from the child the right to gain privileges.
        let private = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: `program` and the steps it points to live through the call, which copies them.
        let result =
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        if private == 0 && result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes two system calls and touches nothing but its own array.
    unsafe { command.pre_exec(install) };
}
