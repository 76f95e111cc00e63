//! What the integration tests share: servers to start, a client that hands back reply bytes untouched, reply
//! decoding, comparison rules and a seeded random source. Nothing here knows how corelane works inside: a test talks
//! to it over a socket, as any client would.
#![expect(dead_code, reason = "every test binary uses its own part of these helpers")]

pub(crate) mod client;
pub(crate) mod compare;
pub(crate) mod random;
pub(crate) mod resp;
pub(crate) mod server;
pub(crate) mod words;
