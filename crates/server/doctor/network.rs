//! Sockets: whether the server may listen where it is told to, and whether connections get through to it.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;

use corelane_runtime::listen::{self, Accept, ListenError, check_reuse_port};

use super::{Patient, Verdict};

/// The state of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";

pub(super) fn reuseport(patient: &Patient) -> Verdict {
    if patient.options.accept == Accept::Single {
        return Verdict::ok("not needed with --accept single");
    }
    match check_reuse_port() {
        Ok(()) => Verdict::ok("each shard can listen for itself"),
        Err(error) => Verdict::warn(format!(
            "the system refuses SO_REUSEPORT ({error}), so the first shard accepts for all: give --accept single, or run without \
             the socket accelerator or filter that refuses it"
        )),
    }
}

/// Binds as the server would, and lets go.
pub(super) fn listen(patient: &Patient) -> Verdict {
    match listen::listen(&patient.options.listen(), patient.shards()) {
        Ok(listeners) => {
            let mut places: Vec<String> = listeners.addresses.iter().map(ToString::to_string).collect();
            places.extend(listeners.unix_file.iter().map(|file| file.path().display().to_string()));
            Verdict::ok(format!("{} can be had", places.join(" ")))
        }
        Err(ListenError::Busy(address)) => {
            let error = ListenError::Busy(address).to_string();
            Verdict::fail(match owner(patient, address.port()) {
                Some(owner) => error.replace("another process", &owner),
                None => error,
            })
        }
        Err(error) => Verdict::fail(error),
    }
}

/// The same for metrics.
pub(super) fn metrics(patient: &Patient) -> Verdict {
    match crate::metrics::listen(&patient.options.config) {
        Ok(listeners) if listeners.is_empty() => Verdict::ok("none are served without --metrics-port"),
        Ok(listeners) => {
            let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
            let places: Vec<String> = addresses.map(|address| address.to_string()).collect();
            Verdict::ok(format!("{} can be had", places.join(" ")))
        }
        Err(error) => Verdict::fail(format!("{error:#}")),
    }
}

/// Name and number of a process that listens on that port; `None` if there is none, or it is another user's.
///
/// A line of /proc/net/tcp has the address and port in hexadecimal second, the state fourth and the socket's inode tenth.
fn owner(patient: &Patient, port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| patient.files.text(path).unwrap_or_default());
    let suffix = format!(":{port:04X}");
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_it = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == LISTENING;
            is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
        })
        .collect();
    let processes = patient.files.names("/proc");
    let pids = processes.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    for pid in pids {
        let directory = format!("/proc/{pid}/fd");
        let holds = patient.files.names(&directory).iter().any(|fd| {
            let target = patient.files.link(&format!("{directory}/{fd}"));
            target.is_some_and(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
        });
        if holds {
            let name = patient.files.text(&format!("/proc/{pid}/comm")).unwrap_or_default();
            return Some(format!("{name} (process {pid})"));
        }
    }
    None
}

/// Who may use the server, and who may read its password.
pub(super) fn access(patient: &Patient) -> Verdict {
    let config = &patient.options.config;
    let local = |address: &String| {
        let address = address.trim_start_matches('-');
        address == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let exposed = patient.options.port != 0 && !patient.options.bind.iter().all(local);
    if !config.value("requirepass").is_empty() {
        return match &config.file {
            Some(path) if is_readable_by_all(path) => Verdict::warn(format!(
                "every user of this machine may read {path}, and with it a password: run chmod o-r {path}"
            )),
            Some(_) => Verdict::ok("clients have to give a password"),
            None => Verdict::warn(
                "the password stands on the command line, where every user of this machine may read it: move requirepass into a \
                 configuration file",
            ),
        };
    }
    match (exposed, config.is_on("protected-mode")) {
        (false, _) => Verdict::ok("only this machine is served"),
        (true, true) => Verdict::warn(
            "there is no password, so clients of other machines are refused: set requirepass in a configuration file, or \
             protected-mode no",
        ),
        (true, false) => Verdict::warn(
            "whoever reaches the port may do anything: set requirepass in a configuration file, unless a firewall or the network \
             keeps strangers out",
        ),
    }
}

fn is_readable_by_all(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

/// The kernel cuts the queue of connections that wait to be accepted to `somaxconn`, without a word.
pub(super) fn backlog(patient: &Patient) -> Verdict {
    let wanted = i64::from(patient.options.tcp_backlog);
    match patient.files.number("/proc/sys/net/core/somaxconn") {
        Some(limit) if limit < wanted => Verdict::warn(format!(
            "net.core.somaxconn is {limit}, so --tcp-backlog {wanted} has no effect beyond that: run sysctl -w \
             net.core.somaxconn={wanted}"
        )),
        Some(limit) => Verdict::ok(format!("net.core.somaxconn is {limit}, and --tcp-backlog {wanted}")),
        None => Verdict::ok("net.core.somaxconn cannot be seen"),
    }
}

/// Counted since the machine was booted and for all its programs, so it may be another's.
pub(super) fn overflows(patient: &Patient) -> Verdict {
    match counter(&patient.files.text("/proc/net/netstat").unwrap_or_default(), "ListenOverflows") {
        Some(0) => Verdict::ok("no connection has been lost to a full queue since boot"),
        Some(count) => Verdict::warn(format!(
            "{count} connections have been lost since boot because a program's queue was full: if it is the server's (ss -lnt shows \
             queues), raise --tcp-backlog and net.core.somaxconn"
        )),
        None => Verdict::ok("the counters of the network cannot be seen"),
    }
}

/// /proc/net/netstat has pairs of lines, `TcpExt: NAME NAME` and `TcpExt: VALUE VALUE`.
fn counter(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let idx = lines.next()?.split_whitespace().position(|field| field == name)?;
    lines.next()?.split_whitespace().nth(idx)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use corelane_runtime::options::ServerOptions;

    use super::*;
    use crate::doctor::Level::{Fail, Ok as Fine, Warn};
    use crate::doctor::testing::check;

    #[test]
    fn the_queue_is_as_long_as_the_kernel_allows() {
        let file = "proc/sys/net/core/somaxconn";
        check("backlog-long", backlog, &[(file, "4096\n")], Fine, "is 4096");
        check("backlog-short", backlog, &[(file, "128\n")], Warn, "sysctl -w net.core.somaxconn=511");
    }

    #[test]
    fn overflows_are_read_by_name() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 7 9\nIpExt: InNoRoutes\nIpExt: 0\n";
        check("overflows", overflows, &[("proc/net/netstat", text)], Warn, "7 connections");
        check(
            "no-overflows",
            overflows,
            &[("proc/net/netstat", &text.replace(" 7 ", " 0 "))],
            Fine,
            "no connection",
        );
        check("no-netstat", overflows, &[], Fine, "cannot be seen");
    }

    #[test]
    fn a_busy_port_names_who_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let options =
            || ServerOptions { bind: vec!["127.0.0.1".to_owned()], port, ..ServerOptions::default() };
        let busy = listen(&Patient::here(options()));
        assert_eq!(busy.level, Fail);
        assert!(busy.text.contains(&format!("(process {}): stop that one", std::process::id())), "{busy:?}");
        drop(listener);
        assert_eq!(listen(&Patient::here(options())), Verdict::ok(format!("127.0.0.1:{port} can be had")));
    }
}
