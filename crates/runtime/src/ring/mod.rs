//! A shard's own io_uring for sockets: typed submissions, completions, waits. It knows nothing of connections.
//!
//! The ring belongs to the thread that made it (`SINGLE_ISSUER`), and the kernel completes receives only while that
//! thread is inside [`Ring::submit`] or [`Ring::wait`] (`DEFER_TASKRUN`): no interrupt disturbs a running command, and
//! one call into the kernel per turn both submits and reaps.

mod buffers;
mod token;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

pub(crate) use buffers::{BUFFER_LEN, Buffers, PoolSize};
pub(crate) use token::{Op, Token};

/// Submissions that fit between two calls into the kernel; a longer turn calls it more often.
const SUBMISSIONS_MAX: u32 = 1024;
/// Completions that fit before the kernel has to allocate memory for them.
const COMPLETIONS_MAX: u32 = 8192;
/// What [`Ring::tick`] waits for: a millisecond.
static TICK: types::Timespec = types::Timespec::new().nsec(1_000_000);
/// A send that does not wait for room. With MSG_WAITALL, less than all of it is a failure, and failures complete.
const AT_ONCE: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT;
/// `io_uring_enter`: run deferred work and look for completions.
const ENTER_GETEVENTS: u32 = 1;

/// One completion, copied out of the ring.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Completion {
    /// What was submitted.
    pub(crate) token: Token,
    /// Bytes, a descriptor, or a negated errno.
    pub(crate) result: i32,
    flags: u32,
}

impl Completion {
    /// Whether the same submission will complete again.
    #[inline]
    pub(crate) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// The provided buffer that holds the bytes.
    #[inline]
    pub(crate) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

/// The ring. Dropping it closes it; see [`Ring::in_flight`] for what must have ended before.
pub(crate) struct Ring {
    inner: IoUring,
    /// Entries that the kernel would not take for lack of room for their completions. In order; never dropped.
    stalled: VecDeque<squeue::Entry>,
    in_flight: usize,
    submitted: u64,
}

impl Ring {
    /// Makes the ring for the calling thread, which must be the only one to use it.
    pub(crate) fn new() -> io::Result<Self> {
        let inner = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS_MAX)
            .build(SUBMISSIONS_MAX)?;
        Ok(Self { inner, stalled: VecDeque::new(), in_flight: 0, submitted: 0 })
    }

    /// Registers the receive buffers.
    pub(crate) fn register_buffers(&self, size: PoolSize) -> io::Result<Buffers> {
        // SAFETY: `Net` and `Outbound` declare the ring before the buffers, so the ring is closed first; and they cancel all
        // first.
        unsafe { Buffers::register(&self.inner, size) }
    }

    /// Has the kernel write to `eventfd` for each completion while [`Ring::notify`] is on; it starts switched off.
    pub(crate) fn register_eventfd(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        self.inner.completion().disable_eventfd();
        self.inner.submitter().register_eventfd(eventfd.as_raw_fd())
    }

    /// Switches the writes to the eventfd on or off.
    pub(crate) fn notify(&mut self, on: bool) {
        let completions = self.inner.completion();
        if on { completions.enable_eventfd() } else { completions.disable_eventfd() }
    }

    /// Submissions whose last completion has not been reaped: memory lent to them must stay until this is 0. Sends at once
    /// are over as soon as they have been submitted, and do not count.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Entries queued since the start.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Accepts connections until it fails or is cancelled.
    pub(crate) fn accept_multi(&mut self, fd: RawFd, token: Token) {
        let entry = opcode::AcceptMulti::new(types::Fd(fd)).flags(libc::SOCK_CLOEXEC).build();
        self.queue(entry, token);
    }

    /// Completes each time that `fd` is written, until it fails or is cancelled.
    pub(crate) fn poll_multi(&mut self, fd: RawFd, token: Token) {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).multi(true).build();
        self.queue(entry, token);
    }

    /// Completes once, when the peer of a socket has ended or reset it, whatever is unread.
    pub(crate) fn poll_hangup(&mut self, fd: RawFd, token: Token) {
        self.queue(opcode::PollAdd::new(types::Fd(fd), libc::POLLRDHUP as u32).build(), token);
    }

    /// Completes once, [`TICK`] from when it is submitted.
    pub(crate) fn tick(&mut self) {
        self.tick_after(&TICK);
    }

    /// Completes once, so long after it is submitted.
    pub(crate) fn tick_after(&mut self, time: &'static types::Timespec) {
        self.queue(opcode::Timeout::new(&raw const *time).build(), Token::TICK);
    }

    /// Connects a socket.
    ///
    /// # Safety
    /// `address` must be valid for reads of `len` bytes until the completion has been reaped.
    pub(crate) unsafe fn connect(
        &mut self,
        fd: RawFd,
        address: *const libc::sockaddr,
        len: libc::socklen_t,
        token: Token,
    ) {
        self.queue(opcode::Connect::new(types::Fd(fd), address, len).build(), token);
    }

    /// Receives into provided buffers until it fails, finds none, or is cancelled.
    pub(crate) fn recv_multi(&mut self, fd: RawFd, token: Token) {
        self.queue(opcode::RecvMulti::new(types::Fd(fd), buffers::GROUP).build(), token);
    }

    /// Receives into one provided buffer.
    pub(crate) fn recv_once(&mut self, fd: RawFd, token: Token) {
        let entry = opcode::Recv::new(types::Fd(fd), std::ptr::null_mut(), BUFFER_LEN as u32)
            .buf_group(buffers::GROUP)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT);
        self.queue(entry, token);
    }

    /// Receives exactly `len` bytes, fewer only at the end of the stream or on an error.
    ///
    /// # Safety
    /// `start` must be valid for writes of `len` bytes until the completion has been reaped.
    pub(crate) unsafe fn recv_into(&mut self, fd: RawFd, start: *mut u8, len: u32, token: Token) {
        let entry = opcode::Recv::new(types::Fd(fd), start, len).flags(libc::MSG_WAITALL).build();
        self.queue(entry, token);
    }

    /// Sends all of `len` bytes, fewer only on an error.
    ///
    /// # Safety
    /// `start` must be valid for reads of `len` bytes, which do not change, until the completion has been reaped.
    #[inline]
    pub(crate) unsafe fn send(&mut self, fd: RawFd, start: *const u8, len: u32, token: Token) {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        self.queue(opcode::Send::new(types::Fd(fd), start, len).flags(flags).build(), token);
    }

    /// Sends all of `len` bytes at once, without waiting for room, and says nothing if that succeeds: it has when
    /// [`Ring::is_settled`] and no completion with this token has come. Otherwise the completion tells what was sent.
    ///
    /// # Safety
    /// `start` must be valid for reads of `len` bytes, which do not change, until the ring is settled.
    #[inline]
    pub(crate) unsafe fn send_at_once(&mut self, fd: RawFd, start: *const u8, len: u32, token: Token) {
        let entry = opcode::Send::new(types::Fd(fd), start, len).flags(AT_ONCE).build();
        self.queue(entry.flags(squeue::Flags::SKIP_SUCCESS), token);
    }

    /// [`Ring::send_at_once`] for what the header's vectors name.
    ///
    /// # Safety
    /// Header, vectors and the bytes they name must be valid and unchanged until the ring is settled.
    pub(crate) unsafe fn send_msg_at_once(&mut self, fd: RawFd, header: *const libc::msghdr, token: Token) {
        let entry = opcode::SendMsg::new(types::Fd(fd), header).flags(AT_ONCE as u32).build();
        self.queue(entry.flags(squeue::Flags::SKIP_SUCCESS), token);
    }

    /// Sends what the header's vectors name, less only on an error.
    ///
    /// # Safety
    /// Header, vectors and the bytes they name must be valid and unchanged until the completion has been reaped.
    pub(crate) unsafe fn send_msg(&mut self, fd: RawFd, header: *const libc::msghdr, token: Token) {
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
        self.queue(opcode::SendMsg::new(types::Fd(fd), header).flags(flags).build(), token);
    }

    /// Cancels one submission; what it has completed already stays in the completion queue, in front.
    pub(crate) fn cancel(&mut self, token: Token) {
        self.queue(opcode::AsyncCancel::new(token.to_user_data()).build(), Token::IGNORED);
    }

    /// Cancels everything submitted for a descriptor.
    pub(crate) fn cancel_fd(&mut self, fd: RawFd) {
        let which = types::CancelBuilder::fd(types::Fd(fd)).all();
        self.queue(opcode::AsyncCancel2::new(which).build(), Token::IGNORED);
    }

    /// Cancels everything.
    pub(crate) fn cancel_all(&mut self) {
        let which = types::CancelBuilder::any().all();
        self.queue(opcode::AsyncCancel2::new(which).build(), Token::IGNORED);
    }

    /// Closes a descriptor after everything queued for it so far has been started.
    pub(crate) fn close(&mut self, fd: RawFd) {
        self.queue(opcode::Close::new(types::Fd(fd)).build(), Token::IGNORED);
    }

    /// Hands all queued entries to the kernel and runs deferred work, without waiting.
    #[inline]
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.refill();
        let pending = self.inner.submission().len() as u32;
        let submitter = self.inner.submitter();
        // SAFETY: no argument is passed along, and the queued entries obey the contracts of the functions above.
        let entered = unsafe { submitter.enter::<libc::sigset_t>(pending, 0, ENTER_GETEVENTS, None) };
        tolerate(entered)
    }

    /// Hands all queued entries to the kernel and waits for a completion, however long that takes: in a virtual machine a
    /// time-out costs 4.5 µs each time, because the timer is set and cancelled. A [`Ring::tick`] bounds the wait for less.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        self.refill();
        tolerate(self.inner.submit_and_wait(1))
    }

    /// The same, but at most `timeout`.
    pub(crate) fn wait_for(&mut self, timeout: Duration) -> io::Result<()> {
        self.refill();
        let timeout = types::Timespec::from(timeout);
        let args = types::SubmitArgs::new().timespec(&timeout);
        tolerate(self.inner.submitter().submit_with_args(1, &args))
    }

    /// Whether [`Ring::submit`] would do anything: entries wait, or work is deferred, or completions that found no room.
    #[inline]
    pub(crate) fn needs_submit(&mut self) -> bool {
        let submission = self.inner.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow() || !self.stalled.is_empty()
    }

    /// Whether there is something to reap, or work whose completion [`Ring::submit`] would bring.
    #[inline]
    pub(crate) fn is_ready(&mut self) -> bool {
        !self.inner.completion().is_empty() || self.inner.submission().taskrun()
    }

    /// Whether entries wait to be submitted.
    #[inline]
    pub(crate) fn has_queued(&mut self) -> bool {
        !self.stalled.is_empty() || !self.inner.submission().is_empty()
    }

    /// Whether the kernel has taken all entries, and all completions that it has made so far can be reaped.
    #[inline]
    pub(crate) fn is_settled(&mut self) -> bool {
        let submission = self.inner.submission();
        submission.is_empty() && !submission.cq_overflow() && self.stalled.is_empty()
    }

    /// Moves up to `max` completions to the end of `into`.
    #[inline]
    pub(crate) fn reap(&mut self, into: &mut Vec<Completion>, max: usize) {
        for entry in self.inner.completion().take(max) {
            let (token, flags) = (Token::from_user_data(entry.user_data()), entry.flags());
            into.push(Completion { token, result: entry.result(), flags });
            self.in_flight -= usize::from(!cqueue::more(flags) && token.op() != Op::SendAtOnce);
        }
    }

    #[inline]
    fn queue(&mut self, entry: squeue::Entry, token: Token) {
        let entry = entry.user_data(token.to_user_data());
        self.in_flight += usize::from(token.op() != Op::SendAtOnce);
        self.submitted += 1;
        if !self.stalled.is_empty() || !self.try_push(&entry) {
            self.queue_slowly(entry);
        }
    }

    #[inline]
    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: each caller above promises that what its entry points to stays valid until it completes.
        unsafe { self.inner.submission().push(entry) }.is_ok()
    }

    /// The submission queue is full: empties it, or keeps the entry until the kernel can take it.
    #[cold]
    fn queue_slowly(&mut self, entry: squeue::Entry) {
        self.stalled.push_back(entry);
        // An error leaves the queue as it is; the next submit of the turn reports it if it persists.
        let _ = self.inner.submit();
        self.refill();
    }

    #[inline]
    fn refill(&mut self) {
        while let Some(entry) = self.stalled.pop_front() {
            if !self.try_push(&entry) {
                self.stalled.push_front(entry);
                return;
            }
        }
    }
}

/// What may befall a call into the ring in normal operation: a signal, the time-out, or a full completion queue.
#[inline]
fn tolerate(entered: io::Result<usize>) -> io::Result<()> {
    match entered {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}
