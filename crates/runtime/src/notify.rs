//! Tells the service manager how far this process is: the datagrams of sd_notify(3), for `Type=notify`.
//!
//! A manager that wants them names its socket in `NOTIFY_SOCKET`; without one nothing is sent.

use std::env;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The way to the service manager. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<Arc<(UnixDatagram, SocketAddr)>>,
    stopping: Arc<AtomicBool>,
}

impl ServiceManager {
    /// The one that started this process, if it wants to know.
    pub(crate) fn of_this_process() -> Self {
        env::var_os("NOTIFY_SOCKET").map_or_else(Self::default, |name| Self::at(&name))
    }

    /// `name` is a path, or starts with `@` for the abstract namespace. What cannot be reached is not told.
    fn at(name: &OsStr) -> Self {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
            _ => SocketAddr::from_pathname(name),
        };
        let socket = UnixDatagram::unbound().and_then(|socket| Ok(Arc::new((socket, address?))));
        Self { socket: socket.ok(), stopping: Arc::default() }
    }

    /// What INFO calls it: whoever wants the datagrams speaks systemd's language.
    pub(crate) fn name(&self) -> &'static str {
        if self.socket.is_some() { "systemd" } else { "no" }
    }

    /// The server accepts connections.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// The server has been told to stop. Only the first call is passed on.
    pub(crate) fn stopping(&self) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.send("STOPPING=1\nSTATUS=stopping: no new connections, the last replies are on their way\n");
        }
    }

    fn send(&self, state: &str) {
        if let Some((socket, address)) = self.socket.as_deref() {
            // A manager that does not listen gets nothing; the server runs without it.
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_is_told_by_path_and_by_abstract_name() {
        let path = env::temp_dir().join(format!("corelane-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let name = format!("@corelane-notify-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        let sockets = [
            (path.as_os_str().to_owned(), UnixDatagram::bind(&path).unwrap()),
            (name.into(), UnixDatagram::bind_addr(&abstract_address).unwrap()),
        ];
        for (name, socket) in sockets {
            let manager = ServiceManager::at(&name);
            manager.ready("2 shards");
            assert_eq!(received(&socket), "READY=1\nSTATUS=2 shards\n");
            manager.clone().stopping();
            manager.stopping();
            assert!(received(&socket).starts_with("STOPPING=1\nSTATUS="));
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut [0; 8]).is_err(), "once only");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        ServiceManager::default().ready("x");
        ServiceManager::at(OsStr::new("/no/such/socket")).stopping();
    }
}
