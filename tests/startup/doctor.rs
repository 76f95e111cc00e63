//! `corelane doctor` as a program: its lines, its exit codes, and that it agrees with the server.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::server;
use crate::restrict;

/// The doctor for a server with these directives; `change` may take something from it.
fn doctor(words: &[&str], change: impl Fn(&mut Command)) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.arg("doctor").args(words);
    change(&mut command);
    let output = command.output().expect("the doctor runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// The line of a check: its level and what it says.
fn line<'a>(text: &'a str, check: &str) -> (&'a str, &'a str) {
    let found = text.lines().find_map(|line| {
        let (level, rest) = line.split_once(' ')?;
        Some((level, rest.trim_start().strip_prefix(check)?.trim_start()))
    });
    found.unwrap_or_else(|| panic!("no line of {check} in\n{text}"))
}

#[test]
fn a_machine_that_runs_the_server_has_no_failure() {
    let port = server::free_port().to_string();
    let (code, text) = doctor(&["--port", &port, "--bind", "127.0.0.1"], |_| {});
    assert_eq!(code, Some(0), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("corelane can run here: ")), "{text}");
    assert_eq!(line(&text, "listen"), ("ok", format!("127.0.0.1:{port} can be had").as_str()));
    for check in ["kernel", "io-uring", "memlock", "placement", "quota", "governor", "interrupts", "backlog"]
    {
        assert_ne!(line(&text, check).0, "fail", "{text}");
    }
}

#[test]
fn what_keeps_the_server_from_starting_fails_with_its_sentence() {
    let port = server::free_port().to_string();
    let forbid =
        |command: &mut Command| restrict::refuse(command, libc::SYS_io_uring_setup, None, libc::EPERM);
    let lock = |command: &mut Command| restrict::limit(command, libc::RLIMIT_MEMLOCK, 0, 64 << 10);
    let few = |command: &mut Command| restrict::limit(command, libc::RLIMIT_NOFILE, 20, 20);
    let nothing = |_: &mut Command| {};
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let busy = listener.local_addr().expect("an address").port().to_string();
    let holder = format!("(process {}): stop that one", std::process::id());
    type Change<'a> = &'a dyn Fn(&mut Command);
    let table: [(&str, &[&str], Change<'_>, &str); 7] = [
        (
            "io-uring",
            &["--port", &port],
            &forbid,
            "allow io_uring_setup, io_uring_enter and io_uring_register",
        ),
        ("memlock", &["--port", &port], &lock, "only 64 KiB of memory may be locked"),
        ("descriptors", &["--port", &port], &few, "only 20 file descriptors may be open"),
        ("placement", &["--port", &port, "--cpus", "9999"], &nothing, "--cpus names cpu 9999"),
        (
            "listen",
            &["--port", &port, "--bind", "192.0.2.1"],
            &nothing,
            "this machine has no address 192.0.2.1",
        ),
        ("listen", &["--port", &busy, "--bind", "127.0.0.1"], &nothing, &holder),
        ("metrics", &["--port", &port, "--metrics-port", &busy], &nothing, "choose another --metrics-port"),
    ];
    for (check, words, change, sentence) in table {
        let (code, text) = doctor(words, change);
        assert_eq!(code, Some(1), "{text}");
        let (level, what) = line(&text, check);
        assert!(level == "fail" && what.contains(sentence), "{text}");
        assert!(text.contains("corelane cannot run here: 1 failure"), "{text}");
    }
}

#[test]
fn what_makes_the_server_worse_is_a_warning() {
    let port = server::free_port().to_string();
    let option = Some((2, libc::SO_REUSEPORT as u32));
    let (code, text) =
        doctor(&["--port", &port, "--shards", "2", "--tcp-backlog", "2147483647"], |command| {
            restrict::refuse(command, libc::SYS_setsockopt, option, libc::ENOPROTOOPT);
            restrict::limit(command, libc::RLIMIT_NOFILE, 64, 300);
        });
    assert_eq!(code, Some(0), "{text}");
    for (check, part) in [
        ("reuseport", "--accept single"),
        ("backlog", "net.core.somaxconn"),
        ("descriptors", "maxclients is 220"),
    ] {
        let (level, what) = line(&text, check);
        assert!(level == "warn" && what.contains(part), "{text}");
    }
    let (_, text) = doctor(&["--port", &port, "--accept", "single"], |_| {});
    assert_eq!(line(&text, "reuseport"), ("ok", "not needed with --accept single"));
}

#[test]
fn json_help_and_usage_errors() {
    let all = Command::new(env!("CARGO_BIN_EXE_corelane")).arg("--help").output().expect("corelane runs");
    let all = String::from_utf8_lossy(&all.stdout);
    for tool in ["bench", "stat", "top", "latency", "experiment", "doctor"] {
        assert!(all.contains(&format!("  corelane {tool} ")), "{all}");
        let help = Command::new(env!("CARGO_BIN_EXE_corelane")).args([tool, "--help"]).output();
        let help = help.expect("corelane runs");
        assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains(tool), "{help:?}");
    }
    let port = server::free_port().to_string();
    let (code, text) = doctor(&["--json", "--port", &port, "--cpus", "9999"], |_| {});
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("{\"can_run\":false,\"checks\":["), "{text}");
    assert!(
        text.contains("{\"name\":\"placement\",\"level\":\"fail\",\"text\":\"--cpus names cpu 9999"),
        "{text}"
    );
    let (code, text) = doctor(&["--help"], |_| {});
    assert!(code == Some(0) && text.contains("Usage: corelane doctor [--json]"), "{text}");
    let (code, text) = doctor(&["--no-such-flag", "1"], |_| {});
    assert!(code == Some(2) && text.contains("--no-such-flag"), "{text}");
}

#[test]
fn who_may_use_the_server_is_told() {
    let port = server::free_port().to_string();
    let dir = server::scratch_dir("access");
    let file = dir.join("access.conf").display().to_string();
    std::fs::write(&file, "requirepass secret\n").expect("a file");
    let mut found = Vec::new();
    for (mode, words) in [
        (0o600, &["--bind", "127.0.0.1", "-::1"][..]),
        (0o600, &["--bind", "*"]),
        (0o600, &["--bind", "*", "--protected-mode", "no"]),
        (0o600, &["--requirepass", "secret"]),
        (0o600, &[&file, "--bind", "*"]),
        (0o644, &[&file]),
    ] {
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("our file");
        let (_, text) = doctor(&[words, &["--port", &port]].concat(), |_| {});
        assert!(!text.contains("secret"), "{text}");
        let (level, what) = line(&text, "access");
        found.push((level.to_owned(), what.split([' ', ':']).take(4).collect::<Vec<_>>().join(" ")));
    }
    let found: Vec<(&str, &str)> =
        found.iter().map(|(level, what)| (level.as_str(), what.as_str())).collect();
    let expected = [
        ("ok", "only this machine is"),
        ("warn", "there is no password,"),
        ("warn", "whoever reaches the port"),
        ("warn", "the password stands on"),
        ("ok", "clients have to give"),
        ("warn", "every user of this"),
    ];
    assert_eq!(found, expected);
    std::fs::remove_dir_all(dir).expect("the directory made above");
}

/// The seccomp profile of docs/deploy allows io_uring, and for Kubernetes leaves out what needs capabilities.
#[test]
fn a_seccomp_profile_is_made_of_the_default_one() {
    const DEFAULT: &str = r#"{"defaultAction": "SCMP_ACT_ERRNO", "archMap": [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []}],
        "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}},
        {"names": ["breakpoint"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["arm64"]}},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_SYS_ADMIN"]}}]}"#;
    if !server::installed("jq", "--version") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/deploy/seccomp-profile");
    assert_ne!(script_mode(script) & 0o111, 0, "{script} can be run");
    let dir = server::scratch_dir("seccomp-profile");
    std::fs::write(dir.join("default.json"), DEFAULT).expect("a file");
    let made = |kind: &str, arch: &str| {
        let line =
            format!("'{script}' {kind} < default.json | jq -c '[.syscalls[].names[]], .architectures'");
        let output = Command::new("sh").args(["-c", &line]).env("ARCH", arch).current_dir(&dir).output();
        String::from_utf8(output.expect("sh runs").stdout).expect("JSON")
    };
    let ring = "\"io_uring_setup\",\"io_uring_enter\",\"io_uring_register\"]";
    let all = format!("[\"read\",\"bpf\",\"breakpoint\",\"clone\",{ring}\nnull\n");
    assert_eq!(made("docker", "amd64"), all);
    let amd64 = format!("[\"read\",\"clone\",{ring}\n[\"SCMP_ARCH_X86_64\",\"SCMP_ARCH_X86\"]\n");
    assert_eq!(made("kubernetes", "amd64"), amd64);
    let arm64 = format!("[\"read\",\"breakpoint\",\"clone\",{ring}\n[\"SCMP_ARCH_AARCH64\"]\n");
    assert_eq!(made("kubernetes", "arm64"), arm64);
    std::fs::remove_dir_all(dir).expect("the directory made above");
}

fn script_mode(path: &str) -> u32 {
    std::fs::metadata(path).map(|metadata| Permissions::mode(&metadata.permissions())).expect("the script")
}

/// The directives in the unit and in the container's command are ones that the server knows; systemd accepts the unit.
#[test]
fn what_docs_deploy_starts_can_be_started() {
    let file = |name: &str| {
        let path = format!("{}/docs/deploy/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).expect("a file of docs/deploy")
    };
    let unit = file("corelane.service");
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/corelane "))
        .expect("a start");
    assert!(unit.contains("\nLoadCredential=corelane.conf:/etc/corelane/corelane.conf\n"), "{unit}");
    let port = server::free_port().to_string();
    let dir = server::scratch_dir("unit");
    let socket = dir.join("corelane.sock").display().to_string();
    let config = file("corelane.conf").replace("6379", &port).replace("/run/corelane/corelane.sock", &socket);
    std::fs::write(dir.join("corelane.conf"), config).expect("a file");
    let start = start.replace("%d", &dir.display().to_string());
    let (code, text) = doctor(&start.split(' ').collect::<Vec<_>>(), |_| {});
    assert!(code == Some(0) && line(&text, "listen").1.contains(&socket), "{text}");
    let words = file("Containerfile").lines().find_map(|line| line.strip_prefix("CMD ").map(str::to_owned));
    let words = words.expect("a command").replace(['[', ']', '"', ','], " ");
    let words: Vec<&str> = words.split_ascii_whitespace().chain(["--port", &port]).collect();
    assert_eq!(doctor(&words, |_| {}).0, Some(0));
    if server::installed("systemd-analyze", "--version") {
        let path = dir.join("corelane.service");
        std::fs::write(&path, unit.replace("/usr/local/bin/corelane", env!("CARGO_BIN_EXE_corelane")))
            .expect("a file");
        let output = Command::new("systemd-analyze").arg("verify").arg(&path).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("corelane.service"), "{said}");
    }
    std::fs::remove_dir_all(dir).expect("the directory made above");
}
