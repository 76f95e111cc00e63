//! Payloads of real servers, own ones, and broken ones.

use super::*;
use proptest::prelude::*;

/// What a payload holds; `None` where version or checksum are wrong.
fn unseal(payload: &[u8], checksums: Checksums) -> Option<&[u8]> {
    let sealed = Sealed::of(payload, Versions::Strict)?;
    let right = checksums == Checksums::Ignored || sealed.checksum == checksum(0, sealed.summed);
    right.then_some(sealed.content)
}

fn read(payload: &[u8]) -> Result<Portable, Unreadable> {
    let mut reader = Reader::new(unseal(payload, Checksums::Checked).expect("a sound payload"));
    let value = reader.value()?;
    assert!(reader.rest().is_empty());
    Ok(value)
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn field(name: &str, value: &str, expiry: Option<u64>) -> Field {
    Field { name: name.into(), value: value.into(), expiry }
}

#[test]
fn payloads_of_valkey_and_redis_are_read() {
    let hash = Portable::Hash(vec![field("f", "v", None), field("g", "1", None)]);
    let cases: Vec<(&[u8], Portable)> = vec![
        (b"\x00\x05helloP\x00\xacX\x16\xe7\xfbfG\xfe", Portable::String(b"hello".to_vec())),
        (b"\x00\xc190P\x00R\xbe#\xb6\r\xaeoM", Portable::String(b"12345".to_vec())),
        (b"\x00\xc3\t@d\x01xx\xe0W\x00\x01xx\n\x00]\xb7\xf6c\xbb\x08b_", Portable::String(vec![b'x'; 100])),
        (
            b"\x12\x01\x02\x0f\x0f\x00\x00\x00\x03\x00\x81a\x02\x81b\x02\x01\x01\xff\n\x00\xe0\x1b\xabJG\xceY\"",
            Portable::List(texts(&["a", "b", "1"])),
        ),
        (
            b"\x14\r\r\x00\x00\x00\x02\x00\x81a\x02\x81b\x02\xffP\x00\xac\x19~V*nX)",
            Portable::Set(texts(&["a", "b"])),
        ),
        (b"\x02\x02\x01a\x01b\n\x00\xfed!%\xeb\x03=\r", Portable::Set(texts(&["a", "b"]))),
        (
            b"\x0b\x0c\x02\x00\x00\x00\x02\x00\x00\x00\x01\x00\x02\x00\n\x00oy8\xb14\xeb .",
            Portable::Set(texts(&["1", "2"])),
        ),
        (
            b"\x10\x12\x12\x00\x00\x00\x04\x00\x81f\x02\x81v\x02\x81g\x02\x01\x01\xff\n\x00#\xc1\xa5\xe3]\xfa\xe8\x1c",
            hash,
        ),
        (
            b"\x16\x02\x01f\x01vxc\xf2\xfd\xa1\x01\x00\x00\x01g\xc0\x01\xff\xff\xff\xff\xff\xff\xff\xffP\x00C\x00)\xc7\xdc\xeff\xc8",
            Portable::Hash(vec![field("f", "v", Some(0x01a1_fdf2_6378)), field("g", "1", None)]),
        ),
        (
            b"\x11\x14\x14\x00\x00\x00\x04\x00\x81a\x02\x831.5\x04\x81b\x02\x02\x01\xff\n\x00\xfa\x02\xb4%\xaf\x18\x87c",
            Portable::SortedSet(vec![(b"a".to_vec(), 1.5), (b"b".to_vec(), 2.0)]),
        ),
    ];
    for (payload, value) in cases {
        assert_eq!(read(payload), Ok(value), "{}", payload.escape_ascii());
    }
}

#[test]
fn encodings_of_older_versions_are_read() {
    // A ziplist of "ab", 5, -3, 300, a string of 70 bytes and 7.
    let mut ziplist = b"\x00\x02ab\x04\xf6\x02\xfe\xfd\x03\xc0\x2c\x01\x04\x40\x46".to_vec();
    ziplist.extend_from_slice(&[b'z'; 70]);
    ziplist.extend_from_slice(b"\x48\xf8\xff");
    let mut whole = ((ziplist.len() + 10) as u32).to_le_bytes().to_vec();
    whole.extend_from_slice(b"\0\0\0\0\x06\0");
    whole.extend_from_slice(&ziplist);
    let long = "z".repeat(70);
    let elements = texts(&["ab", "5", "-3", "300", &long, "7"]);
    let mut content = vec![types::LIST_ZIPLIST, 0x40, whole.len() as u8];
    content.extend_from_slice(&whole);
    assert_eq!(Reader::new(&content).value(), Ok(Portable::List(elements.clone())));
    let mut content = vec![types::LIST_QUICKLIST, 1, 0x40, whole.len() as u8];
    content.extend_from_slice(&whole);
    assert_eq!(Reader::new(&content).value(), Ok(Portable::List(elements)));
    let old = b"\x03\x03\x01a\xfe\x01b\xff\x01c\x041e-1";
    let scores =
        vec![(b"a".to_vec(), f64::INFINITY), (b"b".to_vec(), f64::NEG_INFINITY), (b"c".to_vec(), 0.1)];
    assert_eq!(Reader::new(old).value(), Ok(Portable::SortedSet(scores)));
    // A listpack with integers of all widths: 13 bits, 2, 3, 4 and 8 bytes, and a string with a length of 12 bits.
    let mut pack = b"\xdf\xff\x02\xf1\x00\x80\x03\xf2\x00\x00\x80\x04\xf3\x00\x00\x00\x80\x05".to_vec();
    pack.extend_from_slice(b"\xf4\x00\x00\x00\x00\x00\x00\x00\x80\x09\xe0\x46");
    pack.extend_from_slice(&[b'z'; 70]);
    pack.extend_from_slice(b"\x48\xff");
    let mut content = vec![types::SET_LISTPACK, 0x40, (pack.len() + 6) as u8];
    content.extend_from_slice(&((pack.len() + 6) as u32).to_le_bytes());
    content.extend_from_slice(&[6, 0]);
    content.extend_from_slice(&pack);
    let ints = ["-1", "-32768", "-8388608", "-2147483648", "-9223372036854775808", &long];
    assert_eq!(Reader::new(&content).value(), Ok(Portable::Set(texts(&ints))));
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert_eq!(unseal(b"abc", Checksums::Ignored), None);
    let mut payload = b"\x00\x05hello\n\x00cr\xdfve4 \n".to_vec();
    assert!(unseal(&payload, Checksums::Checked).is_some());
    payload[3] ^= 1;
    assert_eq!(unseal(&payload, Checksums::Checked), None);
    // A version of the future is refused whatever the checksum says.
    let mut future = b"\x00\x01a\x51\x00".to_vec();
    let checksum = CRC.checksum(&future);
    future.extend_from_slice(&checksum.to_le_bytes());
    assert_eq!(unseal(&future, Checksums::Ignored), None);
    for content in [
        &b""[..],
        b"\x00",
        b"\x00\x05hell",
        b"\x00\xc4",
        b"\x00\x82",
        b"\x01\x00",
        b"\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x02\x02\x01a\x01a",
        b"\x04\x01\x01a",
        b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f",
        b"\x0b\x08\x03\x00\x00\x00\x00\x00\x00\x00",
        b"\x0b\x0c\x02\x00\x00\x00\x02\x00\x00\x00\x02\x00\x01\x00",
        b"\x10\x07\x07\x00\x00\x00\x00\x00\xff",
        b"\x10\x0a\x0a\x00\x00\x00\x01\x00\x81a\x02\xff",
        b"\x12\x01\x02\x03abc",
    ] {
        assert_eq!(Reader::new(content).value(), Err(Unreadable::Malformed), "{}", content.escape_ascii());
    }
    assert_eq!(Reader::new(b"\x13\x00").value(), Err(Unreadable::UnknownType(0x13)));
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        hash in prop::collection::btree_map(".*", (any::<Vec<u8>>(), prop::option::of(0..1u64 << 48)), 1..5),
        list in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20_000), 1..5),
        scores in prop::collection::btree_map(any::<Vec<u8>>(), -1e300..1e300f64, 1..5),
    ) {
        let mut writer = Writer::default();
        writer.hash(hash.len(), true);
        let fields: Vec<Field> = hash
            .into_iter()
            .map(|(name, (value, expiry))| Field { name: name.into_bytes(), value, expiry })
            .collect();
        fields.iter().for_each(|field| writer.field(&field.name, &field.value, field.expiry));
        let payload = seal(writer, (0, 0));
        prop_assert_eq!(payload[payload.len() - 10], 80);
        prop_assert_eq!(read(&payload), Ok(Portable::Hash(fields)));

        let mut writer = Writer::default();
        writer.list(list.len());
        list.iter().for_each(|element| writer.element(element));
        let payload = seal(writer, (0, 0));
        prop_assert_eq!(payload[payload.len() - 10], 10);
        prop_assert_eq!(read(&payload), Ok(Portable::List(list)));

        let mut writer = Writer::default();
        writer.sorted_set(scores.len());
        scores.iter().for_each(|(member, score)| writer.member(member, *score));
        prop_assert_eq!(read(&seal(writer, (0, 0))), Ok(Portable::SortedSet(scores.into_iter().collect())));
    }

    #[test]
    fn no_bytes_do_harm(number in 0..24u8, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let content = [&[number][..], &bytes].concat();
        // Whatever it is, an answer comes, and quickly.
        let _ = Reader::new(&content).value();
        let _ = unseal(&content, Checksums::Ignored);
    }
}
