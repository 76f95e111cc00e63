//! The thread that serves metrics: a bounded number of connections, none of which can hold up the others.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Registry, Token};

use super::connection::{Connection, Outcome};
use super::http::{Request, Response};

/// Connections at a time. Whoever comes when there are so many takes the place of one that is idle or slow to ask, or waits. With the listeners they
/// have to do with the descriptors that the start-up leaves to the process, 32, so that no client finds none.
const CONNECTIONS_MAX: usize = 16;
/// Addresses to listen on.
pub(super) const LISTENERS_MAX: usize = 4;
/// After a failure to accept, be it that all places are taken or that there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The sockets.
pub(super) struct Service {
    poll: Poll,
    listeners: Vec<TcpListener>,
    /// Token `LISTENERS_MAX + idx`.
    connections: Vec<Option<Connection>>,
    /// Connections that have more to do although their sockets have not become ready.
    going_on: Vec<usize>,
    /// Somebody may wait to be accepted.
    knocking: bool,
}

impl Service {
    /// # Errors
    /// The system has no descriptors left.
    pub(super) fn new(listeners: Vec<std::net::TcpListener>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut watched = Vec::new();
        for (idx, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            let mut listener = TcpListener::from_std(listener);
            poll.registry().register(&mut listener, Token(idx), Interest::READABLE)?;
            watched.push(listener);
        }
        Ok(Self { poll, listeners: watched, connections: Vec::new(), going_on: Vec::new(), knocking: true })
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// The system does not let it wait for sockets.
    pub(super) fn run(mut self, answer: &mut dyn FnMut(&Request) -> Response) -> io::Result<()> {
        let mut events = Events::with_capacity(CONNECTIONS_MAX);
        loop {
            let timeout = self.timeout(Instant::now());
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            let now = Instant::now();
            let mut ready = std::mem::take(&mut self.going_on);
            for event in &events {
                match event.token().0.checked_sub(LISTENERS_MAX) {
                    Some(idx) if !ready.contains(&idx) => ready.push(idx),
                    Some(_) => {}
                    None => self.knocking = true,
                }
            }
            for idx in ready {
                self.advance(idx, answer, now);
            }
            self.close_overdue(now);
            if self.knocking {
                self.accept(now);
            }
        }
    }

    /// Until when there is nothing to do unless a socket becomes ready.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        if !self.going_on.is_empty() {
            return Some(Duration::ZERO);
        }
        let next = self.connections.iter().flatten().map(Connection::deadline).min();
        let next = next.map(|deadline| deadline.saturating_duration_since(now));
        let retry = self.knocking.then_some(ACCEPT_PAUSE);
        [next, retry].into_iter().flatten().min()
    }

    fn is_full(&self) -> bool {
        self.connections.len() == CONNECTIONS_MAX && self.connections.iter().all(Option::is_some)
    }

    fn advance(&mut self, idx: usize, answer: &mut dyn FnMut(&Request) -> Response, now: Instant) {
        let Some(Some(connection)) = self.connections.get_mut(idx) else { return };
        match connection.advance(answer, now) {
            Outcome::Waits => {}
            Outcome::GoesOn => self.going_on.push(idx),
            Outcome::Over => self.close(idx),
        }
    }

    fn close(&mut self, idx: usize) {
        if let Some(mut connection) = self.connections[idx].take() {
            // Closing the descriptor, which follows, ends the registration in any case.
            let _ = self.poll.registry().deregister(connection.stream());
        }
        self.going_on.retain(|known| *known != idx);
    }

    fn close_overdue(&mut self, now: Instant) {
        for idx in 0..self.connections.len() {
            if self.connections[idx].as_ref().is_some_and(|connection| connection.deadline() <= now) {
                self.close(idx);
            }
        }
    }

    /// Accepts whoever waits, as long as there are places.
    fn accept(&mut self, now: Instant) {
        for listener in 0..self.listeners.len() {
            loop {
                if self.is_full() && self.cheapest(now).is_none() {
                    return;
                }
                match self.listeners[listener].accept() {
                    Ok((stream, _)) => {
                        let Some(place) = self.place(now) else { return };
                        let mut connection = Connection::new(stream, now);
                        if watch(self.poll.registry(), &mut connection, place).is_ok() {
                            self.connections[place] = Some(connection);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                    // Tried again a little later.
                    Err(_) => return,
                }
            }
        }
        self.knocking = false;
    }

    /// A free place, if need be that of the connection that it costs least to close.
    fn place(&mut self, now: Instant) -> Option<usize> {
        if let Some(free) = self.connections.iter().position(Option::is_none) {
            return Some(free);
        }
        if self.connections.len() < CONNECTIONS_MAX {
            self.connections.push(None);
            return Some(self.connections.len() - 1);
        }
        let idx = self.cheapest(now)?;
        self.close(idx);
        Some(idx)
    }

    fn cheapest(&self, now: Instant) -> Option<usize> {
        let connections = self.connections.iter().enumerate();
        let costs = connections.filter_map(|(idx, one)| Some((one.as_ref()?.cost(now)?, idx)));
        costs.min().map(|(_, idx)| idx)
    }
}

fn watch(registry: &Registry, connection: &mut Connection, place: usize) -> io::Result<()> {
    let token = Token(LISTENERS_MAX + place);
    registry.register(connection.stream(), token, Interest::READABLE | Interest::WRITABLE)
}
