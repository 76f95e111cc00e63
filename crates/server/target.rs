//! Which server a tool is about: the options that all tools have in common, and the connection they stand for.

pub(crate) mod process;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::client::Client;
use process::{Place, places_of};

/// Where the server is, and its password.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The server's process; its port or Unix socket is found by itself
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["host", "unixsocket"])]
    pid: Option<u32>,
    /// The server's address
    #[arg(short = 'h', long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    host: String,
    /// The server's Unix socket
    #[arg(long, value_name = "PATH", conflicts_with = "host")]
    pub(crate) unixsocket: Option<PathBuf>,
    /// A user's name, to go with the password
    #[arg(long, value_name = "NAME", requires = "pass")]
    user: Option<String>,
    /// The server's password
    #[arg(long, value_name = "PASSWORD", env = "REDISCLI_AUTH", hide_env_values = true)]
    pass: Option<String>,
}

impl Target {
    /// Connects, and gives the password if there is one.
    ///
    /// # Errors
    /// There is no server, or it refuses.
    pub(crate) fn connect(&self) -> Result<Client> {
        let mut client = if let Some(path) = &self.unixsocket {
            Client::unix(path)?
        } else if let Some(pid) = self.pid {
            of_process(pid)?
        } else {
            Client::tcp(&self.host)?
        };
        client.authenticate(self.user.as_deref(), self.pass.as_deref())?;
        Ok(client)
    }

    /// How to call the server in a heading.
    pub(crate) fn name(&self) -> String {
        match (&self.unixsocket, self.pid) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(pid)) => format!("process {pid}"),
            (None, None) => self.host.clone(),
        }
    }
}

/// How long a place may take to show that it is a server's, if there are others.
const PROBE: Duration = Duration::from_secs(1);

/// Connects to a process, wherever it listens and speaks RESP; there may be other ports, such as the one for metrics.
fn of_process(pid: u32) -> Result<Client> {
    let connect = |place: &Place| match place {
        Place::Tcp(address) => Client::tcp(&address.to_string()),
        Place::Unix(path) => Client::unix(path),
    };
    let mut places = places_of(pid)?;
    let last = places.pop().with_context(|| format!("process {pid} listens nowhere"))?;
    let found = places.iter().find_map(|place| connect(place).ok()?.if_it_answers(PROBE));
    found.map_or_else(|| connect(&last), Ok)
}
