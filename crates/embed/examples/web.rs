//! An async web handler with a cache in its process: a page is made once a second at most, whoever asks.
//!
//! `cargo run --release -p corelane-embed --example web` asks itself a few times and ends; with an address, such as
//! `127.0.0.1:8080`, it serves until it is killed.

use std::error::Error as StdError;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use corelane_embed::{Builder, Cache, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const FRESH: Duration = Duration::from_secs(1);

/// Answers from the cache, and makes the page if it is not there.
async fn page(State(cache): State<Cache>, Path(name): Path<String>) -> Result<String, (StatusCode, String)> {
    let failed = |error: Error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let key = format!("page:{name}");
    if let Some(page) = cache.get(&key).await.map_err(failed)? {
        return Ok(String::from_utf8_lossy(&page).into_owned());
    }
    let made = cache.incr("pages made").await.map_err(failed)?;
    let page = format!("page {name}, made as number {made}\n");
    cache.set_with_ttl(&key, &page, FRESH).await.map_err(failed)?;
    Ok(page)
}

fn main() -> Result<(), Box<dyn StdError>> {
    let address = std::env::args().nth(1);
    let cache = Builder::new().shards(1).start()?;
    let app = Router::new().route("/{name}", get(page)).with_state(cache.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
        let bound = listener.local_addr()?;
        let server = tokio::spawn(async { axum::serve(listener, app).await });
        if address.is_some() {
            println!("serving on http://{bound}/");
            return Ok(server.await??);
        }
        for (path, made) in [("/a", 1), ("/b", 2), ("/a", 1)] {
            let mut client = TcpStream::connect(bound).await?;
            let request = format!("GET {path} HTTP/1.1\r\nhost: {bound}\r\nconnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            client.read_to_string(&mut answer).await?;
            let page = answer.split("\r\n\r\n").nth(1).ok_or("no body")?;
            print!("{path}: {page}");
            assert!(page.ends_with(&format!("made as number {made}\n")), "{answer}");
        }
        Ok::<(), Box<dyn StdError>>(())
    })?;
    cache.stop()?;
    Ok(())
}
