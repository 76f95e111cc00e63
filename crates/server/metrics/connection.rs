//! One connection of somebody who scrapes: bytes in, bytes out, and how long it may take with either.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use super::http::{Parsed, REQUEST_BYTES_MAX, Request, Response, parse};

/// A request has to be there within this time, from the connection's start or the request's first byte.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// A response has to be taken within this time.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(10);
/// Between two requests.
const IDLE_TIME_MAX: Duration = Duration::from_secs(75);
/// After a refusal, what the client still sends is read and thrown away for so long: closing at once could cost it the
/// response.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);
/// A request that is not there after this time may cost its client the place, if somebody waits for one: those who mean
/// it send theirs at once.
const GRACE: Duration = Duration::from_millis(100);
/// Requests that are answered before others get their turn.
const REQUESTS_PER_TURN: usize = 4;

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A request is awaited; no byte of it is there.
    Idle,
    Reading,
    Writing,
    /// All has been said.
    Leaving,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    stage: Stage,
    /// When the stage began.
    since: Instant,
    deadline: Instant,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    keep_alive: bool,
}

/// What has become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It waits for the socket.
    Waits,
    /// It has more to do, without the socket having to become ready.
    GoesOn,
    /// It is over.
    Over,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, now: Instant) -> Self {
        Self {
            stream,
            stage: Stage::Reading,
            since: now,
            deadline: now + REQUEST_TIME_MAX,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            keep_alive: false,
        }
    }

    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// When it is to be closed unless it gets on.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How much it would cost to close it for somebody else's sake, the least first; `None` if it is being served.
    pub(super) fn cost(&self, now: Instant) -> Option<(bool, Instant)> {
        match self.stage {
            Stage::Idle => Some((false, self.since)),
            Stage::Reading if now - self.since >= GRACE => Some((true, self.since)),
            Stage::Reading | Stage::Writing | Stage::Leaving => None,
        }
    }

    fn enter(&mut self, stage: Stage, time_max: Duration, now: Instant) {
        (self.stage, self.since, self.deadline) = (stage, now, now + time_max);
    }

    /// Does what can be done without waiting.
    pub(super) fn advance(&mut self, answer: &mut dyn FnMut(&Request) -> Response, now: Instant) -> Outcome {
        self.try_advance(answer, now).unwrap_or(Outcome::Over)
    }

    /// # Errors
    /// The client is gone, or the socket failed.
    fn try_advance(
        &mut self,
        answer: &mut dyn FnMut(&Request) -> Response,
        now: Instant,
    ) -> io::Result<Outcome> {
        for _ in 0..REQUESTS_PER_TURN {
            let goes_on = match self.stage {
                Stage::Idle | Stage::Reading => self.read(answer, now)?,
                Stage::Writing => self.write(now)?,
                Stage::Leaving => return self.leave(),
            };
            if !goes_on {
                return Ok(Outcome::Waits);
            }
        }
        Ok(Outcome::GoesOn)
    }

    /// Reads until there is a request, and answers it. False if more bytes have to come.
    fn read(&mut self, answer: &mut dyn FnMut(&Request) -> Response, now: Instant) -> io::Result<bool> {
        loop {
            match parse(&self.input) {
                Parsed::Partial => {}
                Parsed::Request(request, len) => {
                    self.input.drain(..len);
                    self.keep_alive = request.keep_alive;
                    let response = answer(&request);
                    self.respond(response.bytes(request.head_only, request.keep_alive), now);
                    return Ok(true);
                }
                Parsed::Refused(status) => {
                    self.keep_alive = false;
                    self.input = Vec::new();
                    self.respond(Response::refusal(status).bytes(false, false), now);
                    return Ok(true);
                }
            }
            let mut piece = [0; 4096];
            let room = piece.len().min(REQUEST_BYTES_MAX - self.input.len());
            match self.stream.read(&mut piece[..room]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.input.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.stage == Stage::Idle {
                self.enter(Stage::Reading, REQUEST_TIME_MAX, now);
            }
        }
    }

    fn respond(&mut self, output: Vec<u8>, now: Instant) {
        (self.output, self.written) = (output, 0);
        self.enter(Stage::Writing, RESPONSE_TIME_MAX, now);
    }

    /// Writes what is left of the response. False if the client has to take some of it first.
    fn write(&mut self, now: Instant) -> io::Result<bool> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.output = Vec::new();
        if self.keep_alive {
            self.enter(Stage::Idle, IDLE_TIME_MAX, now);
        } else {
            self.stream.shutdown(Shutdown::Write)?;
            self.enter(Stage::Leaving, FAREWELL_TIME_MAX, now);
        }
        Ok(true)
    }

    /// Reads and forgets, a bounded piece at a time.
    fn leave(&mut self) -> io::Result<Outcome> {
        let mut piece = [0; 4096];
        for _ in 0..REQUESTS_PER_TURN {
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(Outcome::Over),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Outcome::Waits),
                Err(error) => return Err(error),
            }
        }
        Ok(Outcome::GoesOn)
    }
}
