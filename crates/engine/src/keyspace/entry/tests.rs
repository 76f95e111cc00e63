//! Tests of entries: every change of shape keeps what it should.

use super::*;

#[test]
fn keys_values_and_deadlines_survive_every_change_of_shape() {
    for key_len in [0, 1, 16, 65_535, 65_536, 70_000] {
        let key = vec![b'k'; key_len];
        let mut entry = Entry::new(&key, NewValue::Slice(b"v"), None);
        for len in [0, 1, 64, INLINE_MAX - 1, INLINE_MAX, 3] {
            let value = vec![b'x'; len];
            entry.set_value(NewValue::Slice(&value));
            assert_eq!((entry.key(), entry.string()), (&key[..], Some(&value[..])));
            entry.set_expiry(Some(77));
            entry.set_hint(5);
            entry.set_expiry(Some(78));
            assert_eq!((entry.expiry(), entry.hint()), (Some(78), 5));
            entry.set_value(NewValue::Shared(Bytes::from(value.clone())));
            assert_eq!((entry.expiry(), entry.string()), (Some(78), Some(&value[..])));
            entry.set_expiry(None);
            assert_eq!((entry.expiry(), entry.hint(), entry.string()), (None, NO_HINT, Some(&value[..])));
        }
    }
}

#[test]
fn edits_cross_the_inline_limit_in_both_directions() {
    let mut entry = Entry::new(b"k", NewValue::Slice(b"ab"), Some(9));
    entry.edit_string(|s| s.resize(INLINE_MAX + 1, 0));
    assert_eq!(entry.string().map(<[u8]>::len), Some(INLINE_MAX + 1));
    entry.edit_string(|s| s.push(1));
    entry.edit_string(|s| s.truncate(2));
    assert_eq!((entry.string(), entry.expiry(), entry.form()), (Some(&b"ab"[..]), Some(9), StringForm::Raw));
    let copy = entry.clone_detached();
    let value = Value::String(Bytes::from("ab"));
    assert_eq!((&copy.value, copy.expiry, copy.form), (&value, Some(9), StringForm::Raw));
    assert_eq!(entry.detach(), copy);
}

#[test]
fn the_last_access_survives_every_change_of_shape() {
    let mut entry = Entry::new(b"k", NewValue::Slice(b"v"), None);
    entry.set_access(Access(1000));
    entry.set_value(NewValue::Slice(b"longer"));
    entry.set_expiry(Some(5));
    entry.set_value_and_expiry(NewValue::Slice(&[0; INLINE_MAX]), None);
    entry.edit_string(|s| s.truncate(1));
    assert_eq!(entry.access(), Access(1000));
}

#[test]
fn deadlines_behind_48_bits_are_kept_whole() {
    const FAR_AWAY: u64 = i64::MAX as u64;
    let deadlines = [Some(7), Some(EXPIRY_MAX_MS), Some(EXPIRY_MAX_MS + 1), Some(FAR_AWAY), None];
    for (from, to) in deadlines.iter().flat_map(|from| deadlines.iter().map(move |to| (*from, *to))) {
        for value in [&b"v"[..], b"w", b"longer", &[0; INLINE_MAX]] {
            let mut entry = Entry::new(b"key", NewValue::Slice(b"v"), from);
            entry.set_hint(9);
            assert_eq!((entry.expiry(), entry.string()), (from, Some(&b"v"[..])));
            entry.set_expiry(to);
            let hint = if from.is_some() && to.is_some() { 9 } else { NO_HINT };
            assert_eq!((entry.expiry(), entry.hint(), entry.key()), (to, hint, &b"key"[..]));
            entry.set_value_and_expiry(NewValue::Slice(value), from);
            assert_eq!((entry.expiry(), entry.string(), entry.key()), (from, Some(value), &b"key"[..]));
            entry.set_value(NewValue::Slice(b"x"));
            assert_eq!((entry.expiry(), entry.string()), (from, Some(&b"x"[..])));
        }
    }
}

#[test]
fn the_form_of_a_string_lasts_until_it_is_overwritten() {
    let mut entry = Entry::new(b"k", NewValue::Slice(b"10"), None);
    entry.set_form(StringForm::Text);
    entry.set_expiry(Some(5));
    assert_eq!((entry.form(), entry.clone_detached().form), (StringForm::Text, StringForm::Text));
    entry.set_value(NewValue::Slice(b"11"));
    assert_eq!(entry.form(), StringForm::Plain);
}

#[test]
fn value_and_deadline_are_overwritten_together() {
    let mut entry = Entry::new(b"k", NewValue::Slice(b"v"), Some(5));
    entry.set_hint(9);
    for (value, expiry) in [("w", Some(6)), ("long", Some(7)), ("gone", None), ("back", Some(8))] {
        let hint = if expiry.is_some() { entry.hint() } else { NO_HINT };
        entry.set_value_and_expiry(NewValue::Slice(value.as_bytes()), expiry);
        assert_eq!((entry.string(), entry.expiry(), entry.hint()), (Some(value.as_bytes()), expiry, hint));
    }
}

#[test]
fn a_small_string_costs_eight_bytes_and_sixteen_with_a_deadline() {
    let entry = Entry::new(&[b'k'; 16], NewValue::Slice(&[0; 64]), None);
    assert_eq!(entry.size(), 16 + 64 + 8);
    let entry = Entry::new(&[b'k'; 16], NewValue::Slice(&[0; 64]), Some(1));
    assert_eq!(entry.size(), 16 + 64 + 16);
}
