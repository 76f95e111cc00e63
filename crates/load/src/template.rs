//! Requests with places in them that are filled in anew each time: numbers of twelve digits, and values of changing size.

use corelane_resp::encode_command;

use crate::numbers::{KeySource, Random, Sizes};

/// Becomes a random number of twelve digits, if there is a range to choose from.
pub const RAND_INT: &[u8] = b"__rand_int__";
/// Becomes `key:` and such a number: the keys of the usual tests.
pub const RAND_KEY: &[u8] = b"__rand_key__";
/// Becomes a value.
pub const DATA: &[u8] = b"__data__";

/// Digits of a random number.
const DIGITS: usize = 12;

/// What the places are filled with.
#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) random: Random,
    pub(crate) keys: KeySource,
    pub(crate) sizes: Sizes,
    /// As many bytes as the longest value has.
    pub(crate) data: Vec<u8>,
}

/// A piece of a request whose length changes from request to request.
#[derive(Clone, Debug)]
enum Piece {
    /// These bytes, with numbers at these places.
    Fixed(Vec<u8>, Vec<usize>),
    /// An argument: what stands before, between and behind the values in it.
    Sized(Vec<(Vec<u8>, Vec<usize>)>),
}

/// One request.
#[derive(Clone, Debug)]
pub struct Template {
    pieces: Vec<Piece>,
    numbers: usize,
}

impl Template {
    /// A command with its arguments, in which the places are named by [`RAND_INT`], [`RAND_KEY`] and [`DATA`]. Without a range of
    /// keys the first two stay as `__rand_int__`, so that all requests are for the same key.
    #[must_use]
    pub fn new(words: &[Vec<u8>], has_range: bool, sizes: &Sizes) -> Self {
        let mut template = Self { pieces: Vec::new(), numbers: 0 };
        let mut fixed = Vec::new();
        fixed.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            let word = replace(word, RAND_KEY, b"key:__rand_int__");
            let fixed_size = match sizes {
                Sizes::Fixed(size) => Some(*size),
                _ if find(&word, DATA).is_none() => Some(0),
                _ => None,
            };
            if let Some(size) = fixed_size {
                let word = replace(&word, DATA, &data(size));
                fixed.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                fixed.extend_from_slice(&word);
                fixed.extend_from_slice(b"\r\n");
                continue;
            }
            template.push_fixed(std::mem::take(&mut fixed), has_range);
            let mut parts = Vec::new();
            let mut rest = &word[..];
            while let Some(at) = find(rest, DATA) {
                parts.push(template.with_places(rest[..at].to_vec(), has_range));
                rest = &rest[at + DATA.len()..];
            }
            parts.push(template.with_places(rest.to_vec(), has_range));
            template.pieces.push(Piece::Sized(parts));
        }
        template.push_fixed(fixed, has_range);
        template
    }

    /// A request that is not an array of bulk strings, as it is.
    #[must_use]
    pub fn raw(bytes: &[u8]) -> Self {
        Self { pieces: vec![Piece::Fixed(bytes.to_vec(), Vec::new())], numbers: 0 }
    }

    fn push_fixed(&mut self, bytes: Vec<u8>, has_range: bool) {
        if !bytes.is_empty() {
            let (bytes, places) = self.with_places(bytes, has_range);
            self.pieces.push(Piece::Fixed(bytes, places));
        }
    }

    fn with_places(&mut self, bytes: Vec<u8>, has_range: bool) -> (Vec<u8>, Vec<usize>) {
        let mut places = Vec::new();
        let mut from = 0;
        while has_range && let Some(at) = find(&bytes[from..], RAND_INT) {
            places.push(from + at);
            from += at + DIGITS;
        }
        self.numbers += places.len();
        (bytes, places)
    }

    /// How many numbers a request takes.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.numbers
    }

    /// The length of a request in bytes, if that never changes.
    #[must_use]
    pub fn request_len(&self) -> Option<usize> {
        match &self.pieces[..] {
            [Piece::Fixed(bytes, _)] => Some(bytes.len()),
            _ => None,
        }
    }

    /// Appends a request.
    pub(crate) fn write(&self, out: &mut Vec<u8>, filling: &mut Filling) {
        for piece in &self.pieces {
            match piece {
                Piece::Fixed(bytes, places) => append(out, bytes, places, filling),
                Piece::Sized(parts) => {
                    let size = filling.sizes.draw(&mut filling.random);
                    let around: usize = parts.iter().map(|(bytes, _)| bytes.len()).sum();
                    let len = around + size * (parts.len() - 1);
                    out.extend_from_slice(format!("${len}\r\n").as_bytes());
                    for (index, (bytes, places)) in parts.iter().enumerate() {
                        if index > 0 {
                            out.extend_from_slice(&filling.data[..size]);
                        }
                        append(out, bytes, places, filling);
                    }
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }

    /// Writes new numbers into requests of this template that stand one behind the other, all of the same length.
    #[inline]
    pub(crate) fn renew(&self, requests: &mut [u8], filling: &mut Filling) {
        if let [Piece::Fixed(bytes, places)] = &self.pieces[..]
            && !places.is_empty()
        {
            for request in requests.chunks_exact_mut(bytes.len()) {
                for at in places {
                    write_number(&mut request[*at..*at + DIGITS], filling);
                }
            }
        }
    }
}

fn append(out: &mut Vec<u8>, bytes: &[u8], places: &[usize], filling: &mut Filling) {
    let start = out.len();
    out.extend_from_slice(bytes);
    for at in places {
        write_number(&mut out[start + at..start + at + DIGITS], filling);
    }
}

#[inline]
fn write_number(place: &mut [u8], filling: &mut Filling) {
    let number = filling.keys.draw(&mut filling.random);
    // Two halves that do not wait for each other: half the time of twelve divisions in a row.
    let (high, low) = place.split_at_mut(DIGITS / 2);
    write_digits(high, (number / 1_000_000 % 1_000_000) as u32);
    write_digits(low, (number % 1_000_000) as u32);
}

#[inline]
fn write_digits(place: &mut [u8], mut number: u32) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Bytes for values: printable, and not all alike.
#[must_use]
pub(crate) fn data(len: usize) -> Vec<u8> {
    let mut random = Random::new(1234);
    (0..len).map(|_| b'0' + (random.bits() % 64) as u8).collect()
}

/// A command without places.
#[must_use]
pub(crate) fn plain(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, words);
    bytes
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn replace(bytes: &[u8], what: &[u8], by: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = find(rest, what) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(by);
        rest = &rest[at + what.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Keys;

    fn filling(sizes: Sizes) -> Filling {
        let data = data(sizes.max());
        Filling { random: Random::new(5), keys: KeySource::new(Keys::Sequential, 1000), sizes, data }
    }

    fn template(line: &str, has_range: bool, sizes: &Sizes) -> Template {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Template::new(&words, has_range, sizes)
    }

    fn written(template: &Template, filling: &mut Filling) -> String {
        let mut out = Vec::new();
        template.write(&mut out, filling);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn places_are_filled_each_time() {
        let fixed = Sizes::Fixed(2);
        let one = template("MSET __rand_key__ a__rand_int__b k __data__", true, &fixed);
        let mut filling = filling(fixed.clone());
        let expected =
            "*5\r\n$4\r\nMSET\r\n$16\r\nkey:000000000000\r\n$14\r\na000000000001b\r\n$1\r\nk\r\n$2\r\n";
        assert!(written(&one, &mut filling).starts_with(expected));
        assert_eq!((one.numbers(), one.request_len()), (2, Some(expected.len() + 4)));
        let mut two = written(&one, &mut filling).into_bytes();
        two.extend_from_within(..);
        one.renew(&mut two, &mut filling);
        let text = String::from_utf8(two).unwrap();
        for number in 4..8 {
            assert!(text.contains(&format!("{number:012}")), "{text}");
        }
    }

    #[test]
    fn numbers_have_twelve_digits() {
        let mut filling = filling(Sizes::Fixed(1));
        filling.keys = KeySource::new(Keys::Sequential, 1_000_000_000_000);
        for number in [0, 999_999, 1_000_000, 123_456_789_012, 999_999_999_999] {
            filling.keys.next = number;
            let mut place = [0; DIGITS];
            write_number(&mut place, &mut filling);
            assert_eq!(std::str::from_utf8(&place), Ok(format!("{number:012}").as_str()));
        }
    }

    #[test]
    fn without_a_range_there_is_one_key() {
        let sizes = Sizes::Fixed(3);
        let one = template("GET __rand_key__", false, &sizes);
        assert_eq!(written(&one, &mut filling(sizes)), "*2\r\n$3\r\nGET\r\n$16\r\nkey:__rand_int__\r\n");
        assert_eq!(one.numbers(), 0);
    }

    #[test]
    fn values_of_changing_size_announce_their_length() {
        let sizes = Sizes::Weighted(vec![(1, 1), (20, 1)]);
        let one = template("SET __rand_key__ <__data__|__rand_int__|__data__> EX 9", true, &sizes);
        assert_eq!(one.request_len(), None);
        let mut filling = filling(sizes);
        let mut seen = Vec::new();
        for _ in 0..50 {
            let text = written(&one, &mut filling);
            let decoded = corelane_resp::decode(text.as_bytes()).unwrap();
            let (corelane_resp::Frame::Array(words), len) = decoded.unwrap() else { panic!("{text}") };
            assert_eq!((words.len(), len), (5, text.len()));
            let corelane_resp::Frame::Bulk(value) = &words[2] else { panic!("{text}") };
            seen.push(value.len());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [18, 56]);
    }
}
