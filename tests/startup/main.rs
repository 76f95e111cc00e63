//! How the server starts: on which CPUs, with which limits, what it tells the service manager; and how it does not start,
//! each failure provoked and its sentence read.

#[path = "../common/mod.rs"]
mod common;

mod contained;
mod doctor;
mod failures;
mod placing;
mod restrict;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use common::client::Client;
use common::server::{self, Server};

/// A server must have started or ended by then, in milliseconds, however busy the machine is.
const PATIENCE_MS: u64 = 30_000;

/// INFO's fields of the section `server`.
fn server_info(client: &mut Client) -> BTreeMap<String, String> {
    let info = client.run("INFO server").text();
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn maxclients(server: &Server) -> String {
    server.client().run("CONFIG GET maxclients").items()[1].text()
}

#[test]
fn soft_limits_are_raised() {
    if server::stand_in() {
        return;
    }
    let server = Server::ours_changed(1, |command| {
        restrict::limit(command, libc::RLIMIT_NOFILE, 64, 12_000);
        restrict::limit(command, libc::RLIMIT_MEMLOCK, 0, 512 << 10);
    });
    assert_eq!(maxclients(&server), "10000");
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("limits");
    let soft = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).expect("the limit");
        line[name.len()..].split_whitespace().next().and_then(|word| word.parse::<u64>().ok())
    };
    assert!(soft("Max open files") > Some(10_000), "{limits}");
    assert_eq!(soft("Max locked memory"), Some(512 << 10), "{limits}");
    assert!(!server.log().contains("WARN"), "{}", server.log());
}

#[test]
fn maxclients_follows_a_low_limit_of_descriptors_with_a_warning() {
    if server::stand_in() {
        return;
    }
    // 56 for one shard and the process, as in preflight.rs.
    let server =
        Server::ours_changed(1, |command| restrict::limit(command, libc::RLIMIT_NOFILE, 64, 56 + 100));
    assert_eq!(maxclients(&server), "100");
    let warning = "maxclients is 100 instead of 10000, since only 156 file descriptors may be open: raise the limit \
        (ulimit -n, docker run --ulimit nofile=, or LimitNOFILE= in the systemd unit)";
    assert!(server.log().contains(warning), "{}", server.log());
}

#[test]
fn without_so_reuseport_the_first_shard_accepts_for_all() {
    const SHARDS: usize = 3;
    if server::stand_in() {
        return;
    }
    let option = Some((2, libc::SO_REUSEPORT as u32));
    let server = Server::ours_changed(SHARDS, |command| {
        restrict::refuse(command, libc::SYS_setsockopt, option, libc::ENOPROTOOPT);
    });
    let warning =
        "the system refuses SO_REUSEPORT (Protocol not available (os error 92)), so the first shard accepts";
    assert!(server.log().contains(warning), "{}", server.log());
    let mut clients: Vec<Client> = (0..30).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
    assert_eq!(server_info(&mut clients[0])["accept"], "single");
    let list = clients[0].run("CLIENT LIST").text();
    for shard in 0..SHARDS {
        let count = list.matches(&format!(" shard={shard}")).count();
        assert!((8..=12).contains(&count), "{count} of 30 on shard {shard}:\n{list}");
    }
}

#[test]
fn the_service_manager_is_told_of_start_and_stop() {
    if server::stand_in() {
        return;
    }
    for end in ["TERM", "INT"] {
        let dir = server::scratch_dir(&format!("notify-{end}"));
        let path = dir.join("notify.sock");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        manager.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS))).expect("a time-out");
        let received = || {
            let mut buffer = [0; 1024];
            let len = manager.recv(&mut buffer).expect("a word from the server");
            String::from_utf8_lossy(&buffer[..len]).into_owned()
        };
        let mut server = Server::ours_changed(2, |command| {
            command.env("NOTIFY_SOCKET", &path);
        });
        let ready = received();
        assert!(ready.starts_with("READY=1\nSTATUS=2 shards "), "{ready}");
        assert!(ready.contains(&format!("127.0.0.1:{}\n", server.port)), "{ready}");
        server.signal(end);
        assert!(received().starts_with("STOPPING=1\n"));
        assert_eq!(server.await_exit(PATIENCE_MS).and_then(|status| status.code()), Some(0), "{end}");
        fs::remove_dir_all(dir).expect("the directory made above");
    }
}
