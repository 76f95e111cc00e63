//! Tests of the preflight: the texts, and what errors are mapped to. Real refusals are provoked in the repository's
//! `tests/startup`.

use super::*;

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
fn a_guest_has_what_was_asked_for_or_an_error() {
    assert_eq!(guests_connections(16, 2, 0..=0), Ok(0), "nothing is kept for clients without listeners");
    assert_eq!(guests_connections(1040, 2, 32..=10_000), Ok(1024));
    assert_eq!(guests_connections(u64::MAX, 2, 32..=10_000), Ok(10_000));
    for (limit, connections) in [(15, 0..=0), (47, 32..=10_000), (20_000, 4_000_000..=4_000_000)] {
        let error = guests_connections(limit, 2, connections.clone()).unwrap_err();
        let text = error.to_string();
        let asked = format!(
            "{} are needed for 2 shards and {} connections",
            connections.start() + 16,
            connections.start()
        );
        assert!(
            text.starts_with(&format!("only {limit} file descriptors may be open and {asked}: raise")),
            "{text}"
        );
    }
}
