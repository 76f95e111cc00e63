//! Connections that this process opens: many of them over one ring, for a thread that loads a server.
//!
//! The ring is the servers' (`crate::ring`): multishot receives into provided buffers, sends that complete only when they
//! fail, one call into the kernel for many of both. What is sent and what the replies mean is the business of a [`Traffic`].

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{IntoRawFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use corelane_engine::SessionId;
use io_uring::types::Timespec;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::ring::{Buffers, Completion, Op, PoolSize, Ring, Token};

/// Completions handled between two calls into the kernel: what they send is not kept waiting longer than this.
const BATCH_MAX: usize = 16;
/// Completions that were handled are forgotten when they are so many, or all.
const HANDLED_MAX: usize = 4096;
/// Receive buffers: one for each connection with bytes that have not been read.
const BUFFERS: PoolSize = PoolSize { min: 256, max: 8192 };
/// The longest wait of [`Wait::Long`], so that others can end the load.
static TICK: Timespec = Timespec::new().nsec(50_000_000);
/// How long the end waits until the kernel has let go of all memory.
const RELEASE_MAX: Duration = Duration::from_secs(2);

/// Where connections lead.
#[derive(Clone, Debug)]
pub struct Peer(SockAddr);

impl Peer {
    /// To an address and port.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        Self(address.into())
    }

    /// To a Unix socket.
    ///
    /// # Errors
    /// The path is too long.
    pub fn unix(path: &Path) -> io::Result<Self> {
        SockAddr::unix(path).map(Self)
    }

    /// Whether ports are used up by connections to it.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.0.domain() != Domain::UNIX
    }

    fn socket(&self) -> io::Result<Socket> {
        let socket = Socket::new(self.0.domain(), Type::STREAM, None)?;
        if self.is_tcp() {
            socket.set_tcp_nodelay(true)?;
        }
        Ok(socket)
    }
}

/// What a connection is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing new.
    Wait,
    /// Send what [`Traffic::fill`] will write.
    Send,
    /// Close, and connect anew.
    Reopen,
    /// The same, with the next tick: in 50 milliseconds at most.
    ReopenLater,
    /// Close.
    Close,
}

/// How a connection ended.
#[derive(Debug)]
pub enum Lost {
    /// It could not be opened.
    NotOpened(io::Error),
    /// The peer has closed it.
    Closed,
    /// It broke.
    Broken(io::Error),
}

/// What flows over the connections. They are named by numbers, counted from 0 in the order of [`Outbound::open`].
pub trait Traffic {
    /// A batch of calls begins: a time to read the clock.
    fn batch(&mut self);
    /// A connection is there.
    fn opened(&mut self, idx: usize) -> Next;
    /// Bytes have come.
    fn received(&mut self, idx: usize, bytes: &[u8]) -> Next;
    /// Writes what is to be sent to the start of `out`, which holds what was written for this connection last. Returns its length,
    /// 0 for nothing.
    fn fill(&mut self, idx: usize, out: &mut Vec<u8>) -> usize;
    /// A connection has come to its end, unasked.
    fn lost(&mut self, idx: usize, how: Lost) -> Next;
}

/// How long [`Outbound::turn`] may wait for something to happen.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most so long; costs a timer each time.
    For(Duration),
    /// At most 50 milliseconds.
    Long,
}

/// What has become of a connection's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// All sent.
    Idle,
    /// Sent as soon as the submissions of this epoch are settled, unless a completion says otherwise.
    AtOnce(u64),
    /// A completion will come.
    Waiting,
}

struct Connection {
    /// -1: none.
    fd: RawFd,
    generation: u32,
    out: Vec<u8>,
    /// Bytes of `out` to be sent, and sent.
    len: usize,
    sent: usize,
    output: Output,
    /// To be filled once `out` is free.
    more: bool,
    later: bool,
}

/// The connections of one thread. Fields in this order: the ring is closed before the memory that is lent to it is freed.
pub struct Outbound {
    ring: Ring,
    buffers: Buffers,
    connections: Vec<Connection>,
    /// Output of connections that were closed while it was being sent.
    graves: Vec<Vec<u8>>,
    peer: Box<Peer>,
    completions: Vec<Completion>,
    /// Handled up to here.
    next: usize,
    /// Sends at once queued now belong to this epoch; those of the last settled one are over.
    epoch: u64,
    settled: u64,
    starved: VecDeque<usize>,
    /// Connections that want to send before it is known that what they sent last has left.
    hasty: Vec<usize>,
    ticking: bool,
    /// Some connection waits to be opened with the next tick.
    any_later: bool,
}

impl Outbound {
    /// Makes the ring for the calling thread, which must be the only one to use it.
    ///
    /// # Errors
    /// The system's: [`crate::preflight::check_io_uring`] says why in words.
    pub fn new(peer: Peer) -> io::Result<Self> {
        let ring = Ring::new()?;
        let buffers = ring.register_buffers(BUFFERS)?;
        Ok(Self {
            ring,
            buffers,
            connections: Vec::new(),
            graves: Vec::new(),
            peer: Box::new(peer),
            completions: Vec::new(),
            next: 0,
            epoch: 1,
            settled: 0,
            starved: VecDeque::new(),
            hasty: Vec::new(),
            ticking: false,
            any_later: false,
        })
    }

    /// Begins to open one more connection.
    ///
    /// # Errors
    /// There is no socket to be had: mostly, too many descriptors are open.
    pub fn open(&mut self) -> io::Result<()> {
        let idx = self.connections.len();
        self.connections.push(Connection {
            fd: -1,
            generation: 0,
            out: Vec::new(),
            len: 0,
            sent: 0,
            output: Output::Idle,
            more: false,
            later: false,
        });
        self.connect(idx)
    }

    fn connect(&mut self, idx: usize) -> io::Result<()> {
        let fd = self.peer.socket()?.into_raw_fd();
        let connection = &mut self.connections[idx];
        connection.fd = fd;
        let token = token(Op::Connect, idx, connection.generation);
        // SAFETY: the address is in a box of its own, which stays until everything in flight has ended.
        unsafe { self.ring.connect(fd, self.peer.0.as_ptr().cast(), self.peer.0.len(), token) };
        Ok(())
    }

    /// Calls into the kernel, waits at most as long as `wait` says if there is nothing to do, and handles up to 16 of the events
    /// that have come.
    ///
    /// # Errors
    /// The ring does not work.
    pub fn turn(&mut self, traffic: &mut impl Traffic, wait: Wait) -> io::Result<()> {
        let rests = self.hasty.is_empty() && self.starved.is_empty();
        let idle = self.next == self.completions.len() && rests && !self.ring.is_ready();
        match wait {
            Wait::For(time) if idle && !time.is_zero() => self.ring.wait_for(time)?,
            Wait::Long if idle => {
                if !self.ticking {
                    self.ticking = true;
                    self.ring.tick_after(&TICK);
                }
                self.ring.wait()?;
            }
            _ if self.ring.needs_submit() => self.ring.submit()?,
            _ => {}
        }
        self.reap();
        traffic.batch();
        for idx in std::mem::take(&mut self.hasty) {
            self.send(idx, traffic);
        }
        let end = self.completions.len().min(self.next + BATCH_MAX);
        while self.next < end {
            let completion = self.completions[self.next];
            self.next += 1;
            self.handle(completion, traffic);
        }
        // There may never be a turn that leaves none.
        if self.next == self.completions.len() || self.next >= HANDLED_MAX {
            self.completions.drain(..self.next);
            self.next = 0;
        }
        if !self.starved.is_empty() {
            self.feed_starved();
        }
        Ok(())
    }

    /// Has a connection send what the traffic writes for it.
    pub fn send(&mut self, idx: usize, traffic: &mut impl Traffic) {
        let connection = &mut self.connections[idx];
        match connection.output {
            _ if connection.fd < 0 => return,
            Output::AtOnce(epoch) if epoch > self.settled => return self.hasty.push(idx),
            Output::Waiting => {
                connection.more = true;
                return;
            }
            Output::Idle | Output::AtOnce(_) => connection.more = false,
        }
        let len = traffic.fill(idx, &mut connection.out);
        assert!(len <= connection.out.len(), "what is to be sent has been written");
        (connection.len, connection.sent) = (len, 0);
        if len == 0 {
            connection.output = Output::Idle;
            return;
        }
        connection.output = Output::AtOnce(self.epoch);
        let token = token(Op::SendAtOnce, idx, connection.generation);
        let (fd, start) = (connection.fd, connection.out.as_ptr());
        // SAFETY: `out` is not touched before the epoch is settled: `fill` above is the only one to change it, and a
        // connection that is closed leaves it in place or in a grave.
        unsafe { self.ring.send_at_once(fd, start, len as u32, token) };
    }

    /// Fetches completions. Sends that have failed are dealt with before anyone may take their output for sent.
    fn reap(&mut self) {
        let settled = self.ring.is_settled();
        let old = self.completions.len();
        self.ring.reap(&mut self.completions, usize::MAX);
        for at in old..self.completions.len() {
            let completion = self.completions[at];
            if completion.token.op() == Op::SendAtOnce {
                self.finish_send(completion);
            }
        }
        if settled {
            self.settled = self.epoch;
            self.epoch += 1;
        }
    }

    /// A send at once has sent less than all: the rest waits for room.
    fn finish_send(&mut self, completion: Completion) {
        let Some(idx) = self.find(completion.token) else { return };
        let connection = &mut self.connections[idx];
        connection.sent += usize::try_from(completion.result).unwrap_or(0);
        connection.output = Output::Waiting;
        // A connection that broke breaks this send, too, and its completion says so.
        self.send_rest(idx);
    }

    fn send_rest(&mut self, idx: usize) {
        let connection = &mut self.connections[idx];
        let rest = &connection.out[connection.sent..connection.len];
        let (start, len) = (rest.as_ptr(), rest.len() as u32);
        let token = token(Op::Send, idx, connection.generation);
        // SAFETY: `out` is not touched while the output is `Waiting`, which ends with the completion.
        unsafe { self.ring.send(connection.fd, start, len, token) };
    }

    /// The connection that a token was made for, unless it has been closed since.
    fn find(&self, token: Token) -> Option<usize> {
        let idx = token.idx() as usize;
        let connection = self.connections.get(idx)?;
        (connection.fd >= 0 && self::token(token.op(), idx, connection.generation) == token).then_some(idx)
    }

    fn handle(&mut self, completion: Completion, traffic: &mut impl Traffic) {
        match completion.token.op() {
            Op::Connect => self.on_connect(completion, traffic),
            Op::Recv => self.on_recv(completion, traffic),
            Op::Send => self.on_send(completion, traffic),
            Op::Tick => {
                self.ticking = false;
                self.open_later(traffic);
            }
            _ => {}
        }
    }

    fn on_connect(&mut self, completion: Completion, traffic: &mut impl Traffic) {
        let Some(idx) = self.find(completion.token) else { return };
        if completion.result < 0 {
            return self.lose(idx, Lost::NotOpened(error(completion.result)), traffic);
        }
        self.receive(idx);
        let next = traffic.opened(idx);
        self.follow(idx, next, traffic);
    }

    fn on_recv(&mut self, completion: Completion, traffic: &mut impl Traffic) {
        let Some(idx) = self.find(completion.token) else {
            if let Some(buffer) = completion.buffer() {
                self.buffers.give_back(buffer);
            }
            return;
        };
        match (completion.result, completion.buffer()) {
            (len @ 1.., Some(buffer)) => {
                // SAFETY: this completion handed out the buffer with `len` bytes, and it is given back below, once.
                let bytes = unsafe { self.buffers.filled(buffer, len as usize) };
                let next = traffic.received(idx, bytes);
                self.buffers.give_back(buffer);
                if !completion.more() {
                    self.receive(idx);
                }
                self.follow(idx, next, traffic);
            }
            (0, _) => self.lose(idx, Lost::Closed, traffic),
            (result, _) if result == -libc::ENOBUFS => self.starved.push_back(idx),
            (result, _) if matches!(-result, libc::EINTR | libc::EAGAIN) => self.receive(idx),
            (result, _) => self.lose(idx, Lost::Broken(error(result)), traffic),
        }
    }

    fn on_send(&mut self, completion: Completion, traffic: &mut impl Traffic) {
        let Some(idx) = self.find(completion.token) else { return };
        let connection = &mut self.connections[idx];
        match completion.result {
            result if matches!(-result, libc::EINTR | libc::EAGAIN) => {}
            result if result < 0 => {
                connection.output = Output::Idle;
                return self.lose(idx, Lost::Broken(error(result)), traffic);
            }
            result => connection.sent += result as usize,
        }
        if connection.sent < connection.len {
            return self.send_rest(idx);
        }
        connection.output = Output::Idle;
        if connection.more {
            self.send(idx, traffic);
        }
    }

    fn receive(&mut self, idx: usize) {
        let connection = &self.connections[idx];
        self.ring.recv_multi(connection.fd, token(Op::Recv, idx, connection.generation));
    }

    /// More buffers, and another try for those that have found none for the longest time: for as many as one turn gives buffers back.
    fn feed_starved(&mut self) {
        self.buffers.grow();
        for _ in 0..BATCH_MAX {
            let Some(idx) = self.starved.pop_front() else { return };
            if self.connections[idx].fd >= 0 {
                self.receive(idx);
            }
        }
    }

    fn follow(&mut self, idx: usize, next: Next, traffic: &mut impl Traffic) {
        match next {
            Next::Wait => {}
            Next::Send => self.send(idx, traffic),
            Next::Close => self.close(idx),
            Next::Reopen => {
                self.close(idx);
                if let Err(error) = self.connect(idx) {
                    self.lose(idx, Lost::NotOpened(error), traffic);
                }
            }
            Next::ReopenLater => {
                self.close(idx);
                self.connections[idx].later = true;
                self.any_later = true;
            }
        }
    }

    /// Tells of the end of a connection. One that fails again at once is opened later instead, or this would never end.
    fn lose(&mut self, idx: usize, how: Lost, traffic: &mut impl Traffic) {
        self.close(idx);
        let next = match traffic.lost(idx, how) {
            Next::Reopen => Next::ReopenLater,
            next => next,
        };
        self.follow(idx, next, traffic);
    }

    fn open_later(&mut self, traffic: &mut impl Traffic) {
        if !std::mem::take(&mut self.any_later) {
            return;
        }
        for idx in 0..self.connections.len() {
            if std::mem::take(&mut self.connections[idx].later)
                && let Err(error) = self.connect(idx)
            {
                self.lose(idx, Lost::NotOpened(error), traffic);
            }
        }
    }

    fn close(&mut self, idx: usize) {
        let connection = &mut self.connections[idx];
        if connection.fd < 0 {
            return;
        }
        if connection.output == Output::Waiting {
            self.graves.push(std::mem::take(&mut connection.out));
            connection.output = Output::Idle;
        }
        connection.more = false;
        connection.generation = connection.generation.wrapping_add(1);
        let fd = std::mem::replace(&mut connection.fd, -1);
        self.ring.cancel_fd(fd);
        self.ring.close(fd);
    }

    /// Closes everything and waits until the kernel has let go of all memory; false if that took too long.
    fn release(&mut self) -> bool {
        for idx in 0..self.connections.len() {
            self.close(idx);
        }
        self.ring.cancel_all();
        let began = Instant::now();
        while self.ring.in_flight() > 0 || !self.ring.is_settled() {
            if began.elapsed() > RELEASE_MAX || self.ring.wait_for(Duration::from_millis(1)).is_err() {
                return false;
            }
            self.completions.clear();
            self.ring.reap(&mut self.completions, usize::MAX);
        }
        true
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        if !self.release() {
            // The kernel may still read this memory: it stays until the process ends.
            std::mem::forget(std::mem::take(&mut self.connections));
            std::mem::forget(std::mem::take(&mut self.graves));
        }
    }
}

fn token(op: Op, idx: usize, generation: u32) -> Token {
    Token::session(op, SessionId { idx: idx as u32, generation })
}

fn error(result: i32) -> io::Error {
    io::Error::from_raw_os_error(-result)
}

#[cfg(test)]
mod tests;
