//! Which server a tool is about: the options that all tools have in common, and the connection they stand for.

pub(crate) mod process;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::client::Client;

/// Where the server is, and its password.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The server's process; the port is found by itself
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["host", "unixsocket"])]
    pid: Option<u32>,
    /// The server's address
    #[arg(short = 'h', long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    host: String,
    /// The server's Unix socket
    #[arg(long, value_name = "PATH", conflicts_with = "host")]
    pub(crate) unixsocket: Option<PathBuf>,
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
            Client::tcp(&process::address_of(pid)?)?
        } else {
            Client::tcp(&self.host)?
        };
        client.authenticate(self.pass.as_deref())?;
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
