//! Tests of the preflight: the texts, what errors are mapped to, and real refusals, provoked by a seccomp filter on one
//! thread and by limits in a child process.

use std::process::Command;

use super::*;

/// Set in the child process; names what it should do.
const CHILD: &str = "CORELANE_PREFLIGHT_CHILD";

#[test]
fn this_machine_passes() {
    let found = preflight(1, 100).unwrap();
    assert_eq!(found, Preflight { maxclients: 100, warnings: Vec::new() });
}

#[test]
fn kernels_before_6_1_are_refused() {
    for release in ["6.1.0-13-amd64", "6.18.44", "7.0.0-rc1", "10.0", "", "unknown"] {
        assert_eq!(check_kernel(release), Ok(()), "{release}");
    }
    for release in ["5.15.0-91-generic", "6.0.19", "4.18.0", "3.10"] {
        let expected = format!(
            "the kernel is {release} and corelane needs 6.1 or newer: boot a newer one (for a container, on its host)"
        );
        assert_eq!(check_kernel(release).unwrap_err().to_string(), expected);
    }
}

#[test]
fn every_refusal_names_its_remedy() {
    let table = [
        (libc::ENOSYS, 0, "CONFIG_IO_URING"),
        (libc::EPERM, 0, "seccomp=unconfined"),
        (libc::EACCES, 0, "seccomp profile"),
        (libc::EPERM, 2, "kernel.io_uring_disabled=2: run sysctl -w kernel.io_uring_disabled=0"),
        (libc::EPERM, 1, "kernel.io_uring_group"),
        (libc::ENOMEM, 0, "--ulimit memlock=-1, or LimitMEMLOCK=infinity"),
        (libc::EINVAL, 0, "boot kernel 6.1 or newer"),
        (libc::EMFILE, 0, "ulimit -n"),
        (libc::EFAULT, 0, "io_uring cannot be set up (Bad address"),
    ];
    for (errno, disabled, remedy) in table {
        let text = setup_error(&io::Error::from_raw_os_error(errno), disabled).to_string();
        assert!(text.contains(remedy), "{errno}: {text}");
        assert!(!text.contains('\n') && !text.contains("  ") && !text.ends_with('.'), "one sentence: {text}");
    }
}

#[test]
fn clients_are_as_many_as_descriptors_allow() {
    let reserved = descriptors_needed(2);
    let fit = |limit, maxclients| clients_that_fit(limit, limit, reserved, maxclients);
    assert_eq!(fit(reserved + 10_000, 10_000), Ok(10_000));
    assert_eq!(fit(reserved + 9_999, 10_000), Ok(9_999));
    assert_eq!(fit(reserved + 32, 10_000), Ok(32));
    assert_eq!(
        fit(reserved + 31, 10_000),
        Err(PreflightError::Descriptors { limit: reserved + 31, needed: reserved + 32 })
    );
    assert_eq!(fit(reserved + 5, 5), Ok(5), "who asks for few gets few");
    assert_eq!(fit(u64::MAX, u32::MAX), Ok(u32::MAX));
}

#[test]
fn a_seccomp_profile_is_told_apart_from_a_missing_io_uring() {
    for (errno, expected) in [
        (libc::EPERM, PreflightError::IoUringForbidden),
        (libc::ENOSYS, PreflightError::NoIoUring),
        (libc::ENOMEM, PreflightError::Memlock { limit_kib: limit_of(libc::RLIMIT_MEMLOCK).0 >> 10 }),
    ] {
        // A filter binds the thread that installs it, for good: so a thread of its own.
        let refused = std::thread::spawn(move || {
            refuse_io_uring(errno);
            check_io_uring()
        });
        if disabled_sysctl() == 0 {
            assert_eq!(refused.join().unwrap(), Err(expected), "errno {errno}");
        }
    }
}

/// Makes `io_uring_setup` fail with `errno` on the calling thread, as a container's seccomp profile does.
fn refuse_io_uring(errno: i32) {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ERRNO: u32 = 0x0005_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, ERRNO | errno as u32),
        step(RETURN, 0, 0, ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: integers only; it takes from this thread the right to gain privileges.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: `program` and the steps it points to live through the call, which copies them.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(result, 0);
}

/// Runs this very test again in a child process with that errand, and returns what it printed after `outcome: `.
fn in_child(test: &str, errand: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("preflight::tests::{test}"), "--nocapture", "--test-threads=1"])
        .env(CHILD, errand)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let outcome =
        text.lines().find_map(|line| line.split_once("outcome: ")).map(|(_, outcome)| outcome.to_owned());
    outcome.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// In the child: lowers both limits, gives up the right to raise them again, and reports.
fn report(nofile: u64, memlock_kib: u64, maxclients: u32) {
    assert!(set_limit(libc::RLIMIT_NOFILE, nofile.min(64), nofile));
    assert!(set_limit(libc::RLIMIT_MEMLOCK, 0, memlock_kib << 10));
    // SAFETY: integers only. Root becomes nobody; for another user it fails, and there is nothing to give up.
    unsafe { libc::setresuid(65534, 65534, 65534) };
    let outcome = match preflight(1, maxclients) {
        Ok(found) => format!(
            "{} {} soft {}",
            found.maxclients,
            found.warnings.join("; "),
            limit_of(libc::RLIMIT_NOFILE).0
        ),
        Err(error) => error.to_string(),
    };
    println!("\noutcome: {outcome}");
}

#[test]
fn limits_are_raised_or_refused_with_a_remedy() {
    let reserved = descriptors_needed(1);
    let cases: [(u64, u64, String); 4] = [
        (reserved + 10_000, 512, format!("10000  soft {}", reserved + 10_000)),
        (
            reserved + 100,
            512,
            format!(
                "100 maxclients is 100 instead of 10000, since only {0} file descriptors may be open: raise the limit \
                 (ulimit -n, docker run --ulimit nofile=, or LimitNOFILE= in the systemd unit) soft {0}",
                reserved + 100
            ),
        ),
        (
            reserved + 31,
            512,
            PreflightError::Descriptors { limit: reserved + 31, needed: reserved + 32 }.to_string(),
        ),
        (reserved + 10_000, 64, PreflightError::Memlock { limit_kib: 64 }.to_string()),
    ];
    if let Ok(errand) = std::env::var(CHILD) {
        let (nofile, memlock_kib, _) = cases[errand.parse::<usize>().unwrap()];
        return report(nofile, memlock_kib, 10_000);
    }
    for (errand, (_, _, expected)) in cases.iter().enumerate() {
        let outcome = in_child("limits_are_raised_or_refused_with_a_remedy", &errand.to_string());
        assert_eq!(&outcome, expected);
    }
}
