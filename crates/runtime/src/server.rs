//! A server in this process: one thread per shard, each with its executor, its ring and its engine.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use corelane_engine::config::Config;
use corelane_engine::{Faults, Node, NodeConfig, Settings, ShardId};
use glommio::{LocalExecutor, LocalExecutorBuilder, Placement, PoolPlacement};
use socket2::{Domain, Socket, Type};
use thiserror::Error;

use crate::clock::Clock;
use crate::listening::Listening;
use crate::mesh::foreign::enter_shard;
use crate::mesh::{Mesh, MeshEnd, PeerKind};
use crate::net::{Listener, Net, NetLimits};
use crate::ring::PoolSize;
use crate::shard_loop::{Home, LoopError, ShardLoop, ShardMail, install_hook};
use crate::signals::block_all_here;
use crate::ticks::ticks;
use crate::topology::{Layout, bind_here, bind_here_to_any, shorten_slice_here};
use crate::visit::Doorway;

/// Memory for glommio's registered buffers: its least, since no socket of ours uses them.
const IO_MEMORY: usize = 64 << 10;
/// How long a shard asks to run at a stretch, a tenth of what is usual: it seldom has more to do before it sleeps. With 25 clients
/// on the shards' own CPUs this takes their 99th percentile from 0.94 to 0.62 ms.
const SLICE: Duration = Duration::from_micros(300);
/// Preemption is for task queues that share a shard with the loop; the loop itself hands over in its own rhythm.
const PREEMPT_TIMER: Duration = Duration::from_secs(1);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 511;

/// What a server is made of, once the options have been checked and the sockets bound.
#[derive(Debug)]
pub struct ServerPlan {
    /// One entry per shard.
    pub shards: Vec<ShardPlan>,
    /// The same for all engines.
    pub settings: Settings,
    /// Random seed of the process: hash seeds and random choices derive from it.
    pub seed: u64,
    /// Whose process it is.
    pub tenancy: Tenancy,
    /// Visits of threads that are no shards, as many as may wait at each shard; 0: there are none, and no [`Server::doorway`].
    pub gate_slots: usize,
    /// The sockets of all shards, where CONFIG SET may change them.
    pub listening: Option<Listening>,
}

/// Whose process the shards run in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Tenancy {
    /// Ours: a panic ends it, and it does without transparent huge pages.
    Owner,
    /// Another program's, which reaches the shards through [`Server::doorway`]. Nothing of the process is changed, its signals
    /// are left to its own threads, a panic costs one shard, and the shards do without glommio.
    Guest,
}

/// What one shard is given.
#[derive(Debug)]
pub struct ShardPlan {
    /// The CPU its thread is bound to; `None`: any.
    pub cpu: Option<usize>,
    /// The CPUs it may run on while others use its own, or all the time if it is not bound; empty: none, or any.
    pub elsewhere: Vec<usize>,
    /// Sockets that listen already.
    pub listeners: Vec<(OwnedFd, PeerKind)>,
}

impl ShardPlan {
    /// Shards where the layout has them, each with its sockets.
    pub fn placed(layout: &Layout, sockets: Vec<Vec<(OwnedFd, PeerKind)>>) -> Vec<Self> {
        let elsewhere = &layout.elsewhere;
        let shards = layout.cpus.iter().zip(sockets);
        shards.map(|(&cpu, listeners)| Self { cpu, elsewhere: elsewhere.clone(), listeners }).collect()
    }
}

impl ServerPlan {
    /// Default settings, unbound threads, and 127.0.0.1 at `port` (0: a free one) for every shard. For tests and embedding.
    ///
    /// # Errors
    /// The port cannot be bound.
    pub fn local(shards: usize, port: u16) -> io::Result<(Self, SocketAddr)> {
        let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut plans = Vec::new();
        for _ in 0..shards {
            let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None)?;
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            address = socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("not an IP socket"))?;
            plans.push(ShardPlan {
                cpu: None,
                elsewhere: Vec::new(),
                listeners: vec![(socket.into(), PeerKind::Tcp)],
            });
        }
        let mut config = Config::default();
        config.settle("port", &address.port().to_string());
        let mut settings = Settings::default();
        settings.apply(config);
        let plan = Self {
            shards: plans,
            settings,
            seed: 0x5eed,
            tenancy: Tenancy::Owner,
            gate_slots: 0,
            listening: None,
        };
        Ok((plan, address))
    }
}

/// Why a server did not start, or ended.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Descriptors or memory for the connections between shards.
    #[error("cannot connect the shards with each other: {0}")]
    Mesh(#[source] io::Error),
    /// A thread could not be started.
    #[error("cannot start the thread of shard {shard}: {error}")]
    Thread {
        /// Which shard.
        shard: usize,
        /// The system's reason.
        #[source]
        error: io::Error,
    },
    /// glommio could not make an executor.
    #[error("cannot make the executor of shard {shard}: {reason}")]
    Executor {
        /// Which shard.
        shard: usize,
        /// glommio's reason.
        reason: String,
    },
    /// The sockets or their ring could not be set up, or failed.
    #[error("the sockets of shard {shard} failed: {error}")]
    Sockets {
        /// Which shard.
        shard: usize,
        /// The system's reason.
        #[source]
        error: io::Error,
    },
    /// A command or a closure panicked; that shard's keys are lost, the others have gone on.
    #[error("shard {shard} failed: panic in {command}")]
    Panic {
        /// Which shard.
        shard: usize,
        /// What was being run.
        command: &'static str,
    },
    /// A shard's thread is gone without a word.
    #[error("shard {shard} ended unexpectedly")]
    Gone {
        /// Which shard.
        shard: usize,
    },
}

/// A running server. Dropping it leaves the server running; see [`Server::stop`].
pub struct Server {
    mesh: Mesh,
    doorway: Option<Doorway>,
    threads: Vec<JoinHandle<Result<(), ServeError>>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("shards", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts all shards and returns when each of them accepts connections.
    ///
    /// # Errors
    /// The first failure of any shard; the others have been stopped.
    pub fn start(plan: ServerPlan) -> Result<Self, ServeError> {
        register_membarrier();
        let shards = plan.shards.len();
        let (mesh, mut ends) = Mesh::build(shards).map_err(ServeError::Mesh)?;
        if plan.tenancy == Tenancy::Owner {
            install_hook();
            refuse_huge_pages();
        }
        let doorway =
            (plan.gate_slots > 0).then(|| Doorway::new(mesh.open_gates(&mut ends, plan.gate_slots)));
        let serving = Arc::new(AtomicUsize::new(shards));
        let clock = Clock::new();
        let (ready, started) = mpsc::channel();
        let settings = plan.settings;
        let mut listening = plan.listening;
        let mut server = Self { mesh, doorway, threads: Vec::with_capacity(shards) };
        for (shard, end) in plan.shards.into_iter().zip(ends) {
            let me = end.me();
            let settings = Settings { started_ms: clock.now_ms(), cpu: shard.cpu, ..settings.clone() };
            let seed = Seed {
                shard,
                limits: NetLimits {
                    timeout_s: settings.timeout_s,
                    maxclients: settings.maxclients,
                    keepalive_s: settings.tcp_keepalive_s,
                },
                node: NodeConfig {
                    me: ShardId(me as u16),
                    shards: shards as u16,
                    seed: plan.seed,
                    settings,
                    ticks: ticks(),
                    faults: Faults::default(),
                },
                end,
                clock: clock.clone(),
                tenancy: plan.tenancy,
                listening: listening.take(),
                serving: Serving { count: Arc::clone(&serving), done: false },
                ready: ready.clone(),
            };
            let thread = std::thread::Builder::new().name(format!("shard-{me}")).spawn(move || seed.grow());
            match thread {
                Ok(thread) => server.threads.push(thread),
                Err(error) => return server.abandon(ServeError::Thread { shard: me, error }),
            }
        }
        drop(ready);
        for _ in 0..shards {
            // A shard that fails to start drops its sender without a word; its thread returns the reason.
            if started.recv().is_err() {
                server.mesh.stop();
                server.join()?;
                return Err(ServeError::Gone { shard: 0 });
            }
        }
        Ok(server)
    }

    /// Has the server stop: accept no more, answer what has been received, end. Returns at once; see [`Server::join`].
    pub fn stop(&self) {
        self.mesh.stop();
    }

    /// The handle through which signals stop it.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The way in for other threads, if the plan has slots for them.
    #[must_use]
    pub fn doorway(&self) -> Option<&Doorway> {
        self.doorway.as_ref()
    }

    /// Waits until all shards have ended.
    ///
    /// # Errors
    /// The first failure of a shard.
    pub fn join(self) -> Result<(), ServeError> {
        let mut outcome = Ok(());
        for (shard, thread) in self.threads.into_iter().enumerate() {
            let ended = thread.join().unwrap_or(Err(ServeError::Gone { shard }));
            outcome = outcome.and(ended);
        }
        outcome
    }

    fn abandon(self, error: ServeError) -> Result<Self, ServeError> {
        self.mesh.stop();
        // The error at hand is the cause; what the others report now is its consequence.
        let _ = self.join();
        Err(error)
    }
}

/// Everything a shard's thread starts from.
struct Seed {
    shard: ShardPlan,
    limits: NetLimits,
    node: NodeConfig,
    end: MeshEnd<ShardMail>,
    clock: Clock,
    tenancy: Tenancy,
    listening: Option<Listening>,
    serving: Serving,
    ready: mpsc::Sender<()>,
}

impl Seed {
    /// The whole life of a shard, on its own thread. A failure stops the other shards too.
    fn grow(self) -> Result<(), ServeError> {
        let shard = self.end.me();
        let stop = self.end.stopper();
        enter_shard();
        shorten_slice_here(SLICE);
        if self.shard.cpu.is_none()
            && !self.shard.elsewhere.is_empty()
            && let Err(error) = bind_here_to_any(&self.shard.elsewhere)
        {
            return self.fail(ServeError::Thread { shard, error });
        }
        let outcome = match self.tenancy {
            Tenancy::Owner => match executor(self.shard.cpu) {
                Ok(executor) => executor.run(self.serve()),
                Err(error) => return self.fail(ServeError::Executor { shard, reason: error.to_string() }),
            },
            Tenancy::Guest => {
                block_all_here();
                match self.shard.cpu.map_or(Ok(()), bind_here) {
                    Ok(()) => run_here(self.serve()),
                    Err(error) => return self.fail(ServeError::Thread { shard, error }),
                }
            }
        };
        let outcome = outcome.map_err(|error| match error {
            LoopError::Io(error) => ServeError::Sockets { shard, error },
            LoopError::Panic(command) => {
                ServeError::Panic { shard, command: command.unwrap_or("no command") }
            }
        });
        if outcome.as_ref().is_err_and(|error| !matches!(error, ServeError::Panic { .. })) {
            stop.stop();
        }
        outcome
    }

    fn fail(self, error: ServeError) -> Result<(), ServeError> {
        self.end.stop_all();
        Err(error)
    }

    async fn serve(self) -> Result<(), LoopError> {
        let settings = &self.node.settings;
        let (keepalive_s, spin) = (settings.tcp_keepalive_s, Duration::from_micros(settings.busy_poll_us));
        let pool = PoolSize { min: settings.buffer_pool_min, max: settings.buffer_pool_max };
        let listeners = self.shard.listeners.into_iter();
        let listeners = listeners.map(|(socket, kind)| Listener::new(socket, kind, keepalive_s));
        let net = Net::new(&self.end, listeners.collect::<io::Result<_>>()?, self.limits, pool)?;
        if let Some(listening) = self.listening {
            listening.settle_here();
        }
        let node = Node::new(self.node);
        let (mesh, clock) = (self.end, self.clock);
        let home = self.shard.cpu.map(|cpu| Home { cpu, any_of: self.shard.elsewhere });
        let mut shard_loop = ShardLoop::new(node, net, mesh, clock, spin, self.serving, self.tenancy)?;
        shard_loop.may_leave(home);
        // If nobody listens any more, another shard has failed, and the mesh says so.
        let _ = self.ready.send(());
        drop(self.ready);
        shard_loop.run().await
    }
}

/// Counts the shards that still have connections while the server stops.
pub(crate) struct Serving {
    count: Arc<AtomicUsize>,
    done: bool,
}

impl Serving {
    /// This shard has none left.
    pub(crate) fn finish(&mut self) {
        if !std::mem::replace(&mut self.done, true) {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether no shard has any left.
    pub(crate) fn is_over(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Runs a shard's loop without an executor: whatever a guest awaits is ready, since it waits in the kernel itself. (Of an
/// executor of glommio's, an eventfd stays when it has ended: a process could not start and stop for ever.)
fn run_here<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

fn executor(cpu: Option<usize>) -> glommio::Result<LocalExecutor, ()> {
    LocalExecutorBuilder::new(cpu.map_or(Placement::Unbound, Placement::Fixed))
        .io_memory(IO_MEMORY)
        .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
        .preempt_timer(PREEMPT_TIMER)
        .make()
}

/// glommio's sleep uses `membarrier`; registering before there are threads keeps the first sleep from taking 30-80 ms.
fn register_membarrier() {
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    // SAFETY: the call takes integers only. A kernel without it makes glommio use something slower.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) };
}

/// The first touch of a transparent huge page clears 2 MiB at once, 2 to 10 ms on a virtual machine: turns stay short
/// without them (`turn_us_max` while 3 M keys come in: 7 ms with, 1.2 ms without).
fn refuse_huge_pages() {
    // SAFETY: the call takes integers only. Where it is not known, nothing changes.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}
