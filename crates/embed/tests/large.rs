//! Long words, and many of them: what is refused, and what is not.

use corelane_embed::{Builder, Bytes, Cache, Error, Frame};

const MIB: usize = 1 << 20;

fn too_long() -> Error {
    Error::Command("ERR string exceeds maximum allowed size (proto-max-bulk-len)".to_owned())
}

#[test]
fn a_batch_of_large_values_is_no_matter_of_the_query_buffer() {
    let cache = Builder::new().shards(2).config("client-query-buffer-limit", MIB).start().unwrap();
    let value = vec![1; 64 << 10];
    let mut batch = cache.batch();
    for n in 0..1000 {
        batch.set(format!("k{n}"), &value);
    }
    assert!(batch.wait().unwrap().iter().all(Result::is_ok));
    assert_eq!(cache.len().wait(), Ok(1000));
    assert_eq!(cache.get("k999").wait(), Ok(Some(value.into())));
    cache.stop().unwrap();
}

/// What stores a value or has a key of this length.
fn all_ways(cache: &Cache, long: &[u8]) -> Vec<(&'static str, Result<(), Error>)> {
    let mut batch = cache.batch();
    batch.set("batch", long).execute(&[b"SET", &b"batch"[..], long]).get(long);
    let mut batch = batch.wait().unwrap().into_iter().map(|reply| reply.map(drop));
    let owned = long.to_vec();
    let local = move |keys: &mut corelane_embed::Local<'_>| keys.set(&owned, b"1").map_err(Error::from);
    vec![
        ("set", cache.set("set", long).wait()),
        ("set_shared", cache.set_shared("set_shared", Bytes::copy_from_slice(long)).wait()),
        ("set_with_ttl", cache.set_with_ttl("ttl", long, std::time::Duration::from_secs(9)).wait()),
        ("set_if_absent", cache.set_if_absent("absent", long).wait().map(drop)),
        ("append", cache.append("append", long).wait().map(drop)),
        ("mset", cache.mset([(&b"mset"[..], long), (b"other", b"1")]).wait()),
        ("mget", cache.mget([long, b"other"]).wait().map(drop)),
        ("a key", cache.set(long, "1").wait()),
        ("execute", cache.execute(&[b"SET", &b"execute"[..], long]).wait().map(drop)),
        ("a batch's set", batch.next().unwrap()),
        ("a batch's execute", batch.next().unwrap()),
        ("a batch's get", batch.next().unwrap()),
        ("a closure's key", cache.on_owner(long, local).wait().unwrap()),
    ]
}

#[test]
fn no_way_leads_round_the_longest_word() {
    for shards in [1, 2, 5] {
        let cache = Builder::new().shards(shards).value_len_max(MIB).start().unwrap();
        let long = vec![b'x'; 2 * MIB];
        for (way, result) in all_ways(&cache, &long) {
            assert_eq!(result, Err(too_long()), "{way}");
        }
        assert_eq!(cache.len().wait(), Ok(0));
        // What is set later counts for all of them.
        cache.execute(&["CONFIG", "SET", "proto-max-bulk-len", "2mb"]).wait().unwrap();
        for (way, result) in all_ways(&cache, &long) {
            assert_eq!(result, Ok(()), "{way}");
        }
        assert_eq!(cache.execute(&["STRLEN", "execute"]).wait(), Ok(Frame::Int(2 << 20)));
        cache.stop().unwrap();
    }
}

#[test]
fn a_message_may_have_any_length() {
    let cache = Builder::new().shards(2).start().unwrap();
    let word = vec![b'x'; 16_000];
    let words = |name: &'static str| {
        let mut words = vec![name.as_bytes()];
        words.resize(101, &word[..]);
        words
    };
    let mut batch = cache.batch();
    for _ in 0..100 {
        batch.execute(&words("DEL"));
    }
    assert_eq!(batch.wait().unwrap(), vec![Ok(Frame::Int(0)); 100]);
    assert_eq!(cache.del_all(std::iter::repeat_n(&word, 10_000)).wait(), Ok(0));
    cache.stop().unwrap();
}
