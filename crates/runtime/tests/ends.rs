//! What becomes of the keys when a server ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use bytes::Bytes;
use corelane_engine::Calls;
use corelane_runtime::server::{Server, ServerPlan, Tenancy};
use corelane_runtime::visit::Visit;

/// A value that says when it is freed.
struct Value {
    bytes: Vec<u8>,
    freed: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.freed.store(true, Ordering::Release);
    }
}

fn frees_its_keys(tenancy: Tenancy) -> bool {
    let (mut plan, _) = ServerPlan::local(1, 0).unwrap();
    (plan.tenancy, plan.gate_slots) = (tenancy, 1);
    let server = Server::start(plan).unwrap();
    let freed = Arc::new(AtomicBool::new(false));
    let mut calls = Calls::new(0);
    [&b"SET"[..], b"key"].into_iter().for_each(|word| calls.word(word));
    calls.shared(Bytes::from_owner(Value { bytes: vec![b'x'; 1 << 20], freed: Arc::clone(&freed) }));
    calls.end();
    let (visit, mut answer) = Visit::calls(calls);
    assert!(server.doorway().unwrap().send(0, visit, None).is_ok());
    let mut context = Context::from_waker(Waker::noop());
    while answer.poll(&mut context).is_pending() {
        std::thread::yield_now();
    }
    assert!(!freed.load(Ordering::Acquire), "the shard has it");
    server.stop();
    server.join().unwrap();
    freed.load(Ordering::Acquire)
}

/// A server of 20 million keys took seconds to end, since each was freed by itself.
#[test]
fn a_process_that_ends_leaves_the_keys_to_the_system() {
    assert!(!frees_its_keys(Tenancy::Owner));
    assert!(frees_its_keys(Tenancy::Guest), "a host would pay for them for ever");
}
