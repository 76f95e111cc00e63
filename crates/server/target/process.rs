//! Where a process listens, as /proc tells.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

/// The state of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";

/// An address at which a process listens for TCP, on this machine.
///
/// # Errors
/// No such process, no right to look at it, or it does not listen.
pub(crate) fn address_of(pid: u32) -> Result<String> {
    let dir = format!("/proc/{pid}/fd");
    let inodes: BTreeSet<String> = fs::read_dir(&dir)
        .with_context(|| format!("cannot look at the descriptors of process {pid}"))?
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        if let Some(port) = listening_port(&text, &inodes) {
            let host = if table == "tcp" { "127.0.0.1" } else { "[::1]" };
            return Ok(format!("{host}:{port}"));
        }
    }
    bail!("process {pid} listens on no TCP port; give --unixsocket")
}

/// The port of the first listening socket of a table that is one of these.
fn listening_port(table: &str, inodes: &BTreeSet<String>) -> Option<u16> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        if *state != LISTENING || !inodes.contains(*inode) {
            return None;
        }
        u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found_among_others() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0\n\
            1: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0\n\
            2: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0\n";
        let ours: BTreeSet<String> = ["11", "13"].map(str::to_owned).into();
        assert_eq!(listening_port(table, &ours), Some(6379));
        assert_eq!(listening_port(table, &BTreeSet::new()), None);
    }
}
