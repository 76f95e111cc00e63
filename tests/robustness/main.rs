//! What hostile, broken and unlucky clients do, and how the server starts and ends: nothing of it may crash it, leak,
//! or make other clients wait.

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod leaks;
mod lifecycle;
mod soak;
mod subscribers;
