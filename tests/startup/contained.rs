//! The server in a real container, made by runc or crun: with the seccomp profile of docs/deploy, with the default one, without single
//! calls. A machine that lets nobody make containers, as many sandboxes, passes over this, and says so.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::PATIENCE_MS;
use crate::common::server::{self, Server};

/// Docker's default profile as a Go module, whose checksum Go's database vouches for.
const DOCKER_PROFILE: &str = "github.com/moby/profiles/seccomp@v0.2.3";
/// Where Podman's package puts its own.
const PODMAN_PROFILE: &str = "/usr/share/containers/seccomp.json";
/// Where the program is in the container.
const PROGRAM: &str = "/corelane";
const RING_CALLS: [&str; 3] = ["io_uring_setup", "io_uring_enter", "io_uring_register"];
const REMEDY: &str = "io_uring_setup, io_uring_enter and io_uring_register";

/// Programs that make containers of OCI bundles, with their flags. crun refuses where version 2 of cgroups stands beside version 1.
const RUNTIMES: [&[&str]; 2] = [&["runc"], &["crun", "--cgroup-manager=disabled"]];

/// One of [`RUNTIMES`].
type Runtime = &'static [&'static str];

/// A container with its files; gone when dropped, with all that runs in it.
struct Container {
    runtime: Runtime,
    dir: PathBuf,
    id: String,
}

impl Container {
    fn new(runtime: Runtime) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("corelane-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = server::scratch_dir(&id);
        fs::create_dir_all(dir.join("rootfs")).expect("a directory");
        Self { runtime, dir, id }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.runtime[0]);
        command.args(&self.runtime[1..]).arg("--root").arg(self.dir.join("state")).args(words);
        command
    }

    /// The command that runs `words` in here, restricted by `seccomp`.
    fn run(&self, seccomp: Option<&Value>, words: &[&str]) -> Command {
        let config = bundle(seccomp, words).to_string();
        fs::write(self.dir.join("config.json"), config).expect("a file");
        let mut command = self.command(&["run", "--bundle"]);
        command.arg(&self.dir).arg(&self.id);
        command
    }

    /// The exit code of `words` in here, and all that they write.
    fn output(&self, seccomp: Option<&Value>, words: &[&str]) -> (Option<i32>, String) {
        let output = self.run(seccomp, words).output().expect("the runtime runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It fails where the container has ended, and is gone with that.
        let _ = self.command(&["delete", "--force", &self.id]).output();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What an OCI runtime is told: as in docs/deploy/kubernetes.yaml, no capabilities, no new privileges, nothing to write to. The
/// user is root of a user namespace of its own, so that any user may run this; the network is the host's.
fn bundle(seccomp: Option<&Value>, words: &[&str]) -> Value {
    let process = fs::metadata("/proc/self").expect("/proc");
    let bind = |source: &str, destination: &str| json!({"type": "bind", "source": source, "destination": destination, "options": ["rbind", "ro"]});
    let mut mounts = vec![
        json!({"type": "proc", "source": "proc", "destination": "/proc"}),
        json!({"type": "tmpfs", "source": "tmpfs", "destination": "/dev", "options": ["nosuid", "mode=755"]}),
        bind("/sys", "/sys"),
        bind(env!("CARGO_BIN_EXE_corelane"), PROGRAM),
    ];
    mounts.extend(
        ["/usr", "/lib", "/lib64"]
            .into_iter()
            .filter(|dir| Path::new(dir).exists())
            .map(|dir| bind(dir, dir)),
    );
    let namespaces: Vec<Value> =
        ["user", "pid", "ipc", "uts", "mount"].into_iter().map(|kind| json!({"type": kind})).collect();
    let mapping = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
    let mut linux = json!({"namespaces": namespaces, "uidMappings": mapping(process.uid()), "gidMappings": mapping(process.gid())});
    if let Some(profile) = seccomp {
        linux["seccomp"] = profile.clone();
    }
    json!({
        "ociVersion": "1.0.0",
        "root": {"path": "rootfs", "readonly": true},
        "process": {
            "user": {"uid": 0, "gid": 0}, "cwd": "/", "env": ["PATH=/usr/bin"], "args": words, "noNewPrivileges": true,
            "capabilities": {"bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": []},
        },
        "mounts": mounts,
        "linux": linux,
    })
}

/// What makes containers here. Where a runtime is there and is refused, that is the machine's choice and no failure.
fn runtime() -> Option<Runtime> {
    if server::stand_in() || !server::installed("jq", "--version") {
        return None;
    }
    let mut reasons = Vec::new();
    for runtime in RUNTIMES {
        if Command::new(runtime[0]).arg("--version").output().is_err() {
            continue;
        }
        let (code, text) = Container::new(runtime).output(None, &[PROGRAM, "--version"]);
        if code == Some(0) && text.starts_with("corelane ") {
            return Some(runtime);
        }
        reasons.push(format!("{}: {}", runtime[0], text.trim()));
    }
    if reasons.is_empty() {
        server::skip("neither runc nor crun found");
    } else {
        eprintln!("SKIPPED: this machine lets nobody make a container: {}", reasons.join("; "));
    }
    None
}

/// The default profiles that can be had here, as they come.
fn default_profiles() -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    let module =
        Command::new("go").args(["mod", "download", "-json", DOCKER_PROFILE]).current_dir("/").output();
    let module = module.ok().and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
    match module.as_ref().and_then(|module| module["Dir"].as_str()) {
        Some(dir) => found.push(("docker", Path::new(dir).join("default.json"))),
        None => server::skip(&format!("Docker's profile not found (go mod download {DOCKER_PROFILE})")),
    }
    found.extend(Some(("podman", PathBuf::from(PODMAN_PROFILE))).filter(|(_, path)| path.exists()));
    found
}

/// The profile made of a default one in the form that OCI runtimes read.
fn made_of(default: &Path) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/deploy/seccomp-profile");
    let input = fs::File::open(default).expect("a default profile");
    let output = Command::new(script).arg("kubernetes").stdin(input).output().expect("the script runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The profile without some calls.
fn without(mut profile: Value, calls: &[&str]) -> Value {
    for rule in profile["syscalls"].as_array_mut().expect("rules") {
        let names = rule["names"].as_array_mut().expect("names");
        names.retain(|name| !calls.iter().any(|call| name == call));
    }
    profile["syscalls"].as_array_mut().expect("rules").retain(|rule| rule["names"] != json!([]));
    profile
}

#[test]
fn with_the_profile_of_docs_deploy_the_server_serves_in_a_container() {
    let Some(runtime) = runtime() else { return };
    for (name, default) in default_profiles() {
        let profile = made_of(&default);
        let container = Container::new(runtime);
        let mut server = Server::start(&format!("corelane in a container as of {name}"), |port, _| {
            let port = port.to_string();
            container.run(Some(&profile), &[PROGRAM, "--port", &port, "--shards", "2", "--bind", "127.0.0.1"])
        });
        let mut client = server.client();
        client.check("SET key value", "+OK\r\n");
        client.check("GET key", "$5\r\nvalue\r\n");
        assert_eq!(crate::server_info(&mut client)["multiplexing_api"], "io_uring");
        assert_eq!(crate::server_info(&mut client)["process_id"], "1");
        let status = container.command(&["kill", &container.id, "TERM"]).status();
        assert!(status.expect("the runtime runs").success());
        assert_eq!(
            server.await_exit(PATIENCE_MS).and_then(|status| status.code()),
            Some(0),
            "{}",
            server.log()
        );
    }
}

#[test]
fn with_a_default_profile_the_server_says_in_a_container_what_to_allow() {
    let Some(runtime) = runtime() else { return };
    for (name, default) in default_profiles() {
        let port = server::free_port().to_string();
        for call in [&RING_CALLS[..], &RING_CALLS[..1], &RING_CALLS[1..2], &RING_CALLS[2..]] {
            let profile = without(made_of(&default), call);
            let container = Container::new(runtime);
            let (code, text) = container.output(Some(&profile), &[PROGRAM, "--port", &port]);
            assert_eq!(code, Some(1), "{name}, {call:?}: {text}");
            let sentence = text.lines().last().unwrap_or_default();
            assert!(sentence.starts_with("corelane: io_uring is ") && sentence.contains(REMEDY), "{text}");
            let (code, text) = container.output(Some(&profile), &[PROGRAM, "doctor", "--port", &port]);
            assert_eq!(code, Some(1), "{name}, {call:?}: {text}");
            assert!(text.contains("\nfail  io-uring ") && text.contains(REMEDY), "{name}, {call:?}: {text}");
        }
    }
}
