//! Which server a tool is about: the options that all tools have in common, and the connection they stand for.

pub(crate) mod process;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::address::Address;
use crate::client::Client;
use process::{Place, places_of};

/// Where the server is, and its password.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The server's process; its port or Unix socket is found by itself
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["host", "unixsocket"])]
    pid: Option<u32>,
    #[arg(
        help = "The server's address: HOST[:PORT], redis://[[USER]:PASSWORD@]HOST[:PORT] or unix://PATH",
        short = 'h',
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:6379"
    )]
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
        let Some(pid) = self.pid else {
            let address = match &self.unixsocket {
                Some(path) => Address::unix(path),
                None => Address::parse(&self.host)?,
            };
            return address.or_user(self.user.as_deref()).or_password(self.pass.clone()).connect();
        };
        let mut client = of_process(pid)?;
        client.authenticate(self.user.as_deref(), self.pass.as_deref())?;
        client.be_admitted("by --pass, or in REDISCLI_AUTH")?;
        Ok(client)
    }

    /// How to call the server in a heading.
    pub(crate) fn name(&self) -> String {
        match (&self.unixsocket, self.pid) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(pid)) => format!("process {pid}"),
            (None, None) => {
                Address::parse(&self.host).map_or_else(|_| self.host.clone(), |address| address.shown())
            }
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
