//! The two handles onto the mesh: [`MeshEnd`], one per shard, with its mailboxes; [`Mesh`], for the process around the
//! shards (signals, supervision), which can only stop and wake them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::balance;
use super::entrance::Entrance;
use super::event::EventFd;
use super::foreign::let_go;
use super::gate::Gate;
use super::sleep::{SleepState, Wake};
use super::spsc::{self, Consumer, Producer};
use super::sync::Padded;

/// Messages that fit into the mailbox of one ordered pair of shards. A turn sends one batch per destination, so a full
/// one means that the receiver is this many turns behind; the sender then keeps its outbox and tries again next turn.
pub const MAILBOX_SLOTS: usize = 128;

/// Set in [`Shared::news`] when all shards are to stop. The bits above it count shards that have failed.
const STOP: u32 = 1;
const ONE_FAILURE: u32 = 2;

/// What a shard shows to the others: its bell, whether it sleeps, and how many connections it serves.
#[derive(Debug)]
struct Door {
    sleep: SleepState,
    ring_event: EventFd,
    park_event: EventFd,
    connections: Padded<AtomicU32>,
    failed: AtomicBool,
}

#[derive(Debug)]
struct Shared {
    news: Padded<AtomicU32>,
    doors: Box<[Door]>,
}

impl Shared {
    fn wake(&self, shard: usize) -> bool {
        let door = &self.doors[shard];
        match door.sleep.kick() {
            Wake::None => return false,
            Wake::Ring => door.ring_event.ring(),
            Wake::Park => door.park_event.ring(),
        }
        true
    }

    /// Tells every shard something that it must not sleep over.
    fn announce(&self, change: impl FnOnce(&AtomicU32)) {
        change(&self.news.0);
        for shard in 0..self.doors.len() {
            self.wake(shard);
        }
    }
}

/// The process's handle: cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub struct Mesh {
    shared: Arc<Shared>,
}

impl Mesh {
    /// Connects `shards` shards with each other; the ends are in order, `ends[i].me() == i`.
    ///
    /// # Errors
    /// The operating system's, when it has no descriptors left for the `2 × shards` events.
    pub fn build<M: Send>(shards: usize) -> io::Result<(Self, Vec<MeshEnd<M>>)> {
        let doors = (0..shards).map(|_| {
            Ok(Door {
                sleep: SleepState::new(),
                ring_event: EventFd::new()?,
                park_event: EventFd::new()?,
                connections: Padded(AtomicU32::new(0)),
                failed: AtomicBool::new(false),
            })
        });
        let doors = doors.collect::<io::Result<Box<[Door]>>>()?;
        let shared = Arc::new(Shared { news: Padded(AtomicU32::new(0)), doors });
        let mut ends: Vec<MeshEnd<M>> = (0..shards).map(|me| MeshEnd::unconnected(me, &shared)).collect();
        for from in 0..shards {
            for to in (0..shards).filter(|&to| to != from) {
                let (producer, consumer) = spsc::channel(MAILBOX_SLOTS);
                ends[from].to[to] = Some(producer);
                ends[to].from[from] = Some(consumer);
            }
        }
        Ok((Self { shared }, ends))
    }

    /// Asks every shard to finish: each sees [`MeshEnd::stop_requested`] in its next turn, which this wakes it for.
    pub fn stop(&self) {
        self.shared.announce(|news| {
            news.fetch_or(STOP, Ordering::AcqRel);
        });
    }

    /// Gives each shard a gate with that many slots, through which other threads reach it.
    #[must_use]
    pub fn open_gates<M: Send>(&self, ends: &mut [MeshEnd<M>], slots: usize) -> Entrance<M> {
        let gates: Vec<Arc<Gate<M>>> = ends.iter().map(|_| Arc::new(Gate::new(slots))).collect();
        for (end, gate) in ends.iter_mut().zip(&gates) {
            end.gate = Some(Arc::clone(gate));
        }
        Entrance::new(gates.into(), self.clone())
    }

    /// Wakes a shard if it sleeps and nobody else is doing so.
    pub fn wake(&self, shard: usize) {
        self.shared.wake(shard);
    }

    /// Whether a shard has failed.
    #[must_use]
    pub fn has_failed(&self, shard: usize) -> bool {
        self.shared.doors[shard].failed.load(Ordering::Acquire)
    }

    /// Connections each shard serves now; exact only while no connection comes or goes.
    pub fn connections(&self) -> impl Iterator<Item = u32> + '_ {
        self.shared.doors.iter().map(|door| door.connections.0.load(Ordering::Relaxed))
    }
}

/// One shard's end: its mailboxes to and from every other shard, and its own door. Owned by the shard's thread.
#[derive(Debug)]
pub struct MeshEnd<M> {
    me: usize,
    /// What `Shared::news` was when last looked at.
    seen: u32,
    /// Shards whose failure has been told.
    failures_told: Vec<usize>,
    gate: Option<Arc<Gate<M>>>,
    to: Box<[Option<Producer<M>>]>,
    from: Box<[Option<Consumer<M>>]>,
    shared: Arc<Shared>,
}

/// Mail.
impl<M: Send> MeshEnd<M> {
    fn unconnected(me: usize, shared: &Arc<Shared>) -> Self {
        let shards = shared.doors.len();
        Self {
            me,
            seen: 0,
            failures_told: Vec::new(),
            gate: None,
            to: (0..shards).map(|_| None).collect(),
            from: (0..shards).map(|_| None).collect(),
            shared: Arc::clone(shared),
        }
    }

    /// This shard's index.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.to.len()
    }

    /// Puts a message into `to`'s mailbox without waking it: call [`Self::wake`] after the last one of the turn.
    ///
    /// # Errors
    /// The message itself, when the mailbox is full or `to` is this shard.
    #[inline]
    pub fn send(&mut self, to: usize, message: M) -> Result<(), M> {
        match &mut self.to[to] {
            Some(mailbox) => mailbox.push(message),
            None => Err(message),
        }
    }

    /// True when [`Self::send`] to that shard will succeed. Ask it before taking the outbox.
    #[inline]
    pub fn has_room(&mut self, to: usize) -> bool {
        self.to[to].as_mut().is_some_and(|mailbox| mailbox.room() > 0)
    }

    /// The oldest message from that shard.
    #[inline]
    pub fn recv(&mut self, from: usize) -> Option<M> {
        self.from[from].as_mut()?.pop()
    }

    /// The oldest message that came through the gate.
    #[inline]
    pub fn visitor(&mut self) -> Option<M> {
        self.gate.as_ref()?.pop()
    }

    /// Whether one of those who wait for an answer has left since the last call.
    #[inline]
    pub fn visitor_left(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.take_left())
    }

    /// Whether somebody waits at the gate, or has left.
    #[must_use]
    pub fn has_visitor(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| !gate.is_empty())
    }

    /// Tells those who wait for room in the gate that there is some; after [`Self::visitor`] has returned something.
    pub fn made_room(&self) {
        if let Some(gate) = &self.gate {
            gate.made_room();
        }
    }

    /// Lets no more messages in through the gate.
    pub fn close_gate(&self) {
        if let Some(gate) = &self.gate {
            gate.close();
        }
    }

    /// True when no message waits for this shard, in a mailbox or at the gate.
    #[inline]
    #[must_use]
    pub fn inbox_empty(&self) -> bool {
        self.from.iter().flatten().all(Consumer::is_empty)
            && self.gate.as_ref().is_none_or(|gate| gate.is_empty())
    }

    /// Wakes that shard if it sleeps and nobody else is doing so; true when a descriptor was written.
    #[inline]
    pub fn wake(&self, to: usize) -> bool {
        self.shared.wake(to)
    }

    /// True from [`Mesh::stop`] on; the first call that says so counts as seen, and sleeping is possible again.
    #[inline]
    pub fn stop_requested(&mut self) -> bool {
        self.seen = self.shared.news.0.load(Ordering::Acquire);
        self.seen & STOP != 0
    }

    /// A shard that has failed, each once. As of the last [`Self::stop_requested`].
    #[inline]
    pub fn next_failure(&mut self) -> Option<usize> {
        if (self.seen / ONE_FAILURE) as usize == self.failures_told.len() {
            return None;
        }
        let doors = self.shared.doors.iter().enumerate();
        let mut failed = doors.filter(|(_, door)| door.failed.load(Ordering::Acquire));
        let shard = failed.find(|(shard, _)| !self.failures_told.contains(shard))?.0;
        self.failures_told.push(shard);
        Some(shard)
    }

    /// This shard has failed: nothing more gets in, and the others are told.
    pub fn fail(&self) {
        self.door().failed.store(true, Ordering::Release);
        self.close_gate();
        self.shared.announce(|news| {
            news.fetch_add(ONE_FAILURE, Ordering::AcqRel);
        });
    }

    /// The process's handle.
    #[must_use]
    pub fn stopper(&self) -> Mesh {
        Mesh { shared: Arc::clone(&self.shared) }
    }

    /// Stops all shards, this one included, as [`Mesh::stop`] does (SHUTDOWN, a shard that cannot go on).
    pub fn stop_all(&self) {
        self.stopper().stop();
    }
}

/// Sleep.
impl<M: Send> MeshEnd<M> {
    /// Publishes that this shard waits in its ring. True: do wait, then [`Self::awake`] or [`Self::begin_park`]. False:
    /// there is mail or a stop request, and the shard counts as running.
    #[inline]
    #[must_use]
    pub fn begin_wait(&self) -> bool {
        self.door().sleep.begin_wait(|| self.pending())
    }

    /// Publishes that this shard parks in glommio; from running or straight after a wait. As [`Self::begin_wait`].
    #[inline]
    #[must_use]
    pub fn begin_park(&self) -> bool {
        self.door().sleep.begin_park(|| self.pending())
    }

    /// This shard runs again.
    #[inline]
    pub fn awake(&self) {
        self.door().sleep.awake();
    }

    /// Written by peers while this shard waits in its ring: keep a multishot poll for reading on it, and
    /// [`Self::drain_ring_event`] on each of its completions.
    #[must_use]
    pub fn ring_event(&self) -> BorrowedFd<'_> {
        self.door().ring_event.as_fd()
    }

    /// Written by peers while this shard is parked, and by the kernel when it is registered with the shard's ring:
    /// glommio waits for it. [`Self::drain_park_event`] after each park.
    #[must_use]
    pub fn park_event(&self) -> BorrowedFd<'_> {
        self.door().park_event.as_fd()
    }

    /// Resets the ring event; true when it had been written.
    pub fn drain_ring_event(&self) -> bool {
        self.door().ring_event.drain()
    }

    /// Resets the park event; true when it had been written.
    pub fn drain_park_event(&self) -> bool {
        self.door().park_event.drain()
    }

    fn pending(&self) -> bool {
        !self.inbox_empty() || self.shared.news.0.load(Ordering::Acquire) != self.seen
    }

    fn door(&self) -> &Door {
        &self.shared.doors[self.me]
    }
}

/// Whoever sent something through the gate learns that it has been dropped.
impl<M> Drop for MeshEnd<M> {
    fn drop(&mut self) {
        if let Some(gate) = &self.gate {
            gate.close();
            while let Some(message) = gate.pop() {
                let_go(message);
            }
        }
    }
}

/// Connection counts.
impl<M: Send> MeshEnd<M> {
    /// Decides who serves a connection this shard just accepted (this shard, or one with clearly fewer that has not failed) and
    /// counts it there.
    #[must_use]
    pub fn place_connection(&self) -> usize {
        let mut counts: Vec<u32> = self.connections().collect();
        let mine = counts[self.me];
        for (count, door) in counts.iter_mut().zip(&self.shared.doors) {
            if door.failed.load(Ordering::Acquire) {
                // Has nothing to offer.
                *count = mine;
            }
        }
        let shard = balance::choose(self.me, &counts).unwrap_or(self.me);
        self.count_connection(shard);
        shard
    }

    /// Counts one more connection for that shard.
    pub fn count_connection(&self, shard: usize) {
        self.shared.doors[shard].connections.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one less: it was closed, or could not be handed over after all.
    pub fn uncount_connection(&self, shard: usize) {
        let before = self.shared.doors[shard].connections.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "shard {shard} has no connection to give back");
    }

    /// Connections of each shard, in order. Their sum is what `maxclients` limits.
    pub fn connections(&self) -> impl Iterator<Item = u32> + '_ {
        self.shared.doors.iter().map(|door| door.connections.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gate::Refused;
    use super::*;

    fn pair() -> (Mesh, MeshEnd<u32>, MeshEnd<u32>) {
        let (mesh, ends) = Mesh::build(2).unwrap();
        let [a, b] = <[_; 2]>::try_from(ends).unwrap();
        (mesh, a, b)
    }

    #[test]
    fn every_pair_has_a_mailbox_of_its_own() {
        let (_mesh, mut ends) = Mesh::build::<(usize, usize)>(5).unwrap();
        for (from, end) in ends.iter_mut().enumerate() {
            assert_eq!((end.me(), end.shards()), (from, 5));
            for to in 0..5 {
                assert_eq!(end.send(to, (from, to)).is_ok(), from != to);
            }
        }
        for (to, end) in ends.iter_mut().enumerate() {
            assert!(!end.inbox_empty());
            for from in 0..5 {
                assert_eq!(end.recv(from), (from != to).then_some((from, to)));
            }
            assert!(end.inbox_empty());
        }
    }

    #[test]
    fn a_full_mailbox_gives_the_message_back() {
        let (_mesh, mut a, mut b) = pair();
        for i in 0..MAILBOX_SLOTS as u32 {
            assert!(a.has_room(1));
            assert_eq!(a.send(1, i), Ok(()));
        }
        assert!(!a.has_room(1));
        assert_eq!(a.send(1, 7), Err(7));
        assert_eq!(b.recv(0), Some(0));
        assert!(a.has_room(1));
        assert!(!a.has_room(0), "no mailbox to itself");
    }

    #[test]
    fn the_wake_goes_to_the_event_the_sleeper_waits_for() {
        let (_mesh, mut a, b) = pair();
        assert!(!a.wake(1), "running: no signal");
        assert!(b.begin_wait());
        assert!(a.wake(1));
        assert!(!a.wake(1), "once per sleep");
        assert_eq!((b.drain_ring_event(), b.drain_park_event()), (true, false));
        assert!(b.begin_park());
        assert!(a.wake(1));
        assert_eq!((b.drain_ring_event(), b.drain_park_event()), (false, true));
        assert_eq!(a.send(1, 1), Ok(()));
        assert!(!b.begin_wait() && !b.begin_park(), "mail keeps it awake");
    }

    #[test]
    fn a_stop_request_wakes_every_sleeper_and_lets_it_sleep_again_once_seen() {
        let (mesh, mut a, mut b) = pair();
        assert!(a.begin_wait());
        assert!(b.begin_park());
        assert!(!a.stop_requested());
        mesh.stop();
        assert!(a.drain_ring_event() && b.drain_park_event());
        assert!(!a.begin_wait(), "not seen yet");
        assert!(a.stop_requested() && b.stop_requested());
        assert!(a.begin_wait() && a.stop_requested());
    }

    #[test]
    fn the_gate_lets_others_in_wakes_once_and_ends_with_its_shard() {
        let (mesh, mut ends) = Mesh::build::<u32>(2).unwrap();
        let entrance = mesh.open_gates(&mut ends, 2);
        let [mut a, b] = <[_; 2]>::try_from(ends).unwrap();
        assert!(a.begin_wait() && b.begin_park());
        assert_eq!((entrance.send(0, 5), entrance.send(0, 6)), (Ok(()), Ok(())));
        assert_eq!(entrance.send(0, 7), Err(Refused::Full(7)));
        assert!(a.drain_ring_event() && !b.drain_park_event(), "only the receiver is woken");
        assert!(!a.inbox_empty() && !a.begin_wait());
        assert!(a.has_visitor() && !b.has_visitor());
        assert_eq!([a.visitor(), a.visitor(), a.visitor()], [Some(5), Some(6), None]);
        drop(a);
        assert_eq!(entrance.send(0, 8), Err(Refused::Closed(8)));
        assert_eq!(entrance.send(1, 9), Ok(()));
    }

    #[test]
    fn a_failure_is_told_once_and_is_no_stop() {
        let (mesh, a, mut b) = pair();
        assert!(b.begin_park());
        a.fail();
        assert!(b.drain_park_event() && mesh.has_failed(0) && !mesh.has_failed(1));
        assert!(!b.begin_wait(), "not seen yet");
        assert!(!b.stop_requested());
        assert_eq!([b.next_failure(), b.next_failure()], [Some(0), None]);
        assert!(b.begin_wait());
    }

    #[test]
    fn no_connection_is_placed_on_a_shard_that_has_failed() {
        let (_mesh, ends) = Mesh::build::<u32>(3).unwrap();
        ends[1].fail();
        let placed: Vec<usize> = (0..4).map(|_| ends[0].place_connection()).collect();
        assert_eq!(placed, [0, 2, 0, 2]);
        ends[2].fail();
        assert_eq!([ends[0].place_connection(), ends[0].place_connection()], [0, 0]);
    }

    #[test]
    fn connections_are_counted_where_they_are_placed() {
        let (mesh, a, b) = pair();
        let placed: Vec<usize> = (0..4).map(|_| a.place_connection()).collect();
        assert_eq!(placed, [0, 1, 0, 1]);
        b.uncount_connection(1);
        b.count_connection(0);
        assert_eq!(mesh.connections().collect::<Vec<_>>(), [3, 1]);
        assert_eq!(b.connections().sum::<u32>(), 4);
    }
}
