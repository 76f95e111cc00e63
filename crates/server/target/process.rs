//! Where a process listens, as /proc tells.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The state of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";
/// The flags of a listening socket in /proc/net/unix.
const ACCEPTS: &str = "00010000";

/// A place where a process listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Where a process listens, as it is reached from this machine: TCP first, each place once.
///
/// # Errors
/// No such process, no right to look at it, or it does not listen.
pub(crate) fn places_of(pid: u32) -> Result<Vec<Place>> {
    let dir = format!("/proc/{pid}/fd");
    let inodes: BTreeSet<String> = fs::read_dir(&dir)
        .with_context(|| format!("cannot look at the descriptors of process {pid}"))?
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let mut places = Vec::new();
    let tcp = ["tcp", "tcp6"].map(table);
    let sockets = tcp.iter().flat_map(|table| tcp_places(table, &inodes)).map(Place::Tcp);
    for place in sockets.chain(unix_places(&table("unix"), &inodes).map(Place::Unix)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    ensure!(!places.is_empty(), "process {pid} listens nowhere");
    Ok(places)
}

/// The listening sockets of a table that are among these.
fn tcp_places(table: &str, inodes: &BTreeSet<String>) -> impl Iterator<Item = SocketAddr> {
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let (address, port) = local.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (*state == LISTENING && inodes.contains(*inode))
            .then_some(SocketAddr::new(reachable(address_of(address)?), port))
    })
}

/// An address in the table's form: words of 32 bits as they lie in memory.
fn address_of(hex: &str) -> Option<IpAddr> {
    let words: Vec<u8> = hex
        .as_bytes()
        .chunks(8)
        .map(|word| {
            u32::from_str_radix(std::str::from_utf8(word).ok().filter(|word| word.len() == 8)?, 16).ok()
        })
        .collect::<Option<Vec<u32>>>()?
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    <[u8; 4]>::try_from(&words[..])
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(&words[..]).map(IpAddr::from))
        .ok()
}

/// Who listens on all addresses is reached at this machine's own.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        bound => bound,
    }
}

/// The paths of the listening sockets of a table that are among these.
fn unix_places(table: &str, inodes: &BTreeSet<String>) -> impl Iterator<Item = PathBuf> {
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (flags, inode, path) = (fields.get(3)?, fields.get(6)?, fields.get(7)?);
        // Those without a file begin with an @.
        (*flags == ACCEPTS && inodes.contains(*inode) && path.starts_with('/')).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0\n\
        1: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0\n\
        2: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0\n\
        3: 00000000:0051 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1 0\n";
    const UNIX: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 21 /run/a.sock\n\
        0000000000000000: 00000003 00000000 00000000 0001 03 22 /run/a.sock\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 23 @hidden\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 24 /run/b.sock\n";

    fn inodes(numbers: &[&str]) -> BTreeSet<String> {
        numbers.iter().map(|number| (*number).to_owned()).collect()
    }

    #[test]
    fn listening_sockets_are_found_among_others() {
        let found = |numbers: &[&str]| -> Vec<String> {
            tcp_places(TCP, &inodes(numbers)).map(|place| place.to_string()).collect()
        };
        assert_eq!(found(&["11", "13", "14"]), ["127.0.0.1:6379", "127.0.0.1:81"]);
        assert!(found(&[]).is_empty());
        let unix: Vec<PathBuf> = unix_places(UNIX, &inodes(&["21", "22", "23"])).collect();
        assert_eq!(unix, [PathBuf::from("/run/a.sock")]);
    }

    #[test]
    fn addresses_are_read_in_both_families() {
        assert_eq!(address_of("0100007F"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(address_of("00000000000000000000000001000000"), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(address_of("0100"), None);
        assert_eq!(reachable(Ipv6Addr::UNSPECIFIED.into()), IpAddr::from(Ipv6Addr::LOCALHOST));
    }
}
