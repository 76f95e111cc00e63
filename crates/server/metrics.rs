//! `--metrics-port`: what the server counts, over HTTP: /metrics for Prometheus and its kin, / for people, /metrics.json for
//! the page at /.
//!
//! A thread of its own serves it. It asks the shards through their gates when somebody scrapes, and otherwise sleeps; the
//! shards answer in a turn of theirs, for which they look at every slot's table and every connection.

mod connection;
mod families;
mod family;
mod gather;
mod http;
mod json;
mod serve;

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result, bail};
use corelane_engine::config::Config;
use corelane_runtime::visit::Doorway;

use family::Format;
use gather::Gather;
use http::{Request, Response, Status};
use serve::{LISTENERS_MAX, Service};

/// Questions that may wait at each shard: one, and those that an overloaded shard has not answered in time.
pub(crate) const GATE_SLOTS: usize = 4;

/// The page, with its script and style.
const PAGE: &str = include_str!("metrics/page.html");

/// Listens at `metrics-bind`, if a `metrics-port` is set.
///
/// # Errors
/// An address that is not there, or a port that is taken.
pub(crate) fn listen(config: &Config) -> Result<Vec<TcpListener>> {
    let port = config.number("metrics-port") as u16;
    let mut listeners = Vec::new();
    if port == 0 {
        return Ok(listeners);
    }
    for word in config.value("metrics-bind").split_ascii_whitespace() {
        let (optional, address) = word.strip_prefix('-').map_or((false, word), |address| (true, address));
        let address = SocketAddr::new(address.parse().context("metrics-bind takes IP addresses")?, port);
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener),
            Err(_) if optional => {}
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot serve metrics on {address}; choose another --metrics-port or --metrics-bind"
                    )
                });
            }
        }
    }
    if listeners.is_empty() || listeners.len() > LISTENERS_MAX {
        bail!("metrics-bind has to name at least one address of this machine, and {LISTENERS_MAX} at most");
    }
    Ok(listeners)
}

/// Serves metrics in a thread of its own, which ends with the process.
///
/// # Errors
/// The thread could not be started, or the system has no descriptors left.
pub(crate) fn start(listeners: Vec<TcpListener>, doorway: Doorway) -> Result<()> {
    let places: Vec<String> = listeners
        .iter()
        .filter_map(|listener| Some(format!("http://{}", listener.local_addr().ok()?)))
        .collect();
    let service = Service::new(listeners).context("cannot watch the sockets for metrics")?;
    let serve = move || {
        let mut gather = Gather::new(doorway);
        if let Err(error) = service.run(&mut |request| answer(request, &mut gather)) {
            tracing::error!("no metrics are served any more: {error}");
        }
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(serve)?;
    tracing::info!("metrics on {}", places.join(" "));
    Ok(())
}

fn answer(request: &Request, gather: &mut Gather) -> Response {
    let (content_type, body) = match request.path.as_str() {
        "/" => ("text/html; charset=utf-8", PAGE.into()),
        "/metrics" => {
            let format = Format::accepted(&request.accept);
            (format.content_type(), family::write(&families::families(&gather.sample()), format).into())
        }
        "/metrics.json" => ("application/json", json::object(&gather.sample()).to_string().into()),
        _ => return Response::refusal(Status::NotFound),
    };
    Response { status: Status::Ok, content_type, body }
}
