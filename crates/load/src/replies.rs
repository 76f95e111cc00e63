//! Counts replies in a stream of bytes, wherever it is cut, and builds none of their values.
//!
//! How deep aggregates are nested does not matter: a reply has ended when as many items have come as its heads announced.

/// Bytes of a head or a simple string, before a server counts as one that does not speak RESP.
const LINE_LEN_MAX: usize = 1 << 20;

/// What is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server does not speak RESP: a reply cannot start with byte 0x{0:02x}, or has a length that makes no sense"
)]
pub struct NoReply(u8);

/// Where in the stream of replies of one connection we are.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Bytes of a payload, its line end included, that are still to come.
    skip: u64,
    /// Items of the reply that are still to come; 0 between replies.
    missing: u64,
    /// The reply that has begun is a push, which answers nothing.
    push: bool,
    /// The part of a head that has come.
    line: Vec<u8>,
}

impl Scanner {
    /// Takes the next bytes. Returns how many replies have ended in them; `error` is told of those that are errors: how many
    /// ended before it in these bytes, and its text.
    ///
    /// # Errors
    /// The bytes are no replies. The connection is of no more use.
    #[inline]
    pub fn scan(&mut self, bytes: &[u8], mut error: impl FnMut(u32, &[u8])) -> Result<u32, NoReply> {
        let mut ended = 0;
        let mut rest = bytes;
        loop {
            if self.skip > 0 {
                let len = self.skip.min(rest.len() as u64);
                rest = &rest[len as usize..];
                self.skip -= len;
                if self.skip > 0 {
                    return Ok(ended);
                }
                ended += self.item_ended();
            }
            if rest.is_empty() {
                return Ok(ended);
            }
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                self.line.extend_from_slice(rest);
                let first = self.line[0];
                return if self.line.len() > LINE_LEN_MAX { Err(NoReply(first)) } else { Ok(ended) };
            };
            let (line, behind) = rest.split_at(end + 1);
            rest = behind;
            if self.line.is_empty() {
                ended += self.head(line, |text| error(ended, text))?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                ended += self.head(&whole, |text| error(ended, text))?;
                whole.clear();
                self.line = whole;
            }
        }
    }

    /// A head with its line end. Returns 1 if the reply has ended with it.
    #[inline]
    fn head(&mut self, line: &[u8], error: impl FnOnce(&[u8])) -> Result<u32, NoReply> {
        let Some((&kind, text)) = line.split_first() else { return Err(NoReply(b'\n')) };
        let text = text.strip_suffix(b"\r\n").unwrap_or(text.strip_suffix(b"\n").unwrap_or(text));
        let top = self.missing == 0;
        let children = match kind {
            b'+' | b':' | b'_' | b',' | b'#' | b'(' => 0,
            b'-' => {
                if top {
                    error(text);
                }
                0
            }
            b'$' | b'=' | b'!' | b'*' | b'~' | b'%' | b'>' | b'|' => {
                let Some(len) = length(text) else { return Err(NoReply(kind)) };
                match (kind, len) {
                    (_, None) => 0,
                    (b'$' | b'=' | b'!', Some(len)) => {
                        if kind == b'!' && top {
                            error(b"a long error");
                        }
                        self.skip = len + 2;
                        // Counted when its payload has passed.
                        self.missing += u64::from(top);
                        return Ok(0);
                    }
                    (b'%', Some(pairs)) => pairs * 2,
                    (b'|', Some(pairs)) => pairs * 2 + 1,
                    (_, Some(items)) => items,
                }
            }
            _ => return Err(NoReply(kind)),
        };
        if top {
            self.push = kind == b'>';
            self.missing = children + 1;
        } else {
            self.missing += children;
        }
        Ok(self.item_ended())
    }

    #[inline]
    fn item_ended(&mut self) -> u32 {
        self.missing -= 1;
        u32::from(self.missing == 0 && !std::mem::take(&mut self.push))
    }
}

/// A length or count; the inner `None` is -1, a null.
#[inline]
fn length(text: &[u8]) -> Option<Option<u64>> {
    match text {
        b"-1" => Some(None),
        [] => None,
        digits if digits.len() <= 10 && digits.iter().all(u8::is_ascii_digit) => {
            Some(Some(digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"+OK\r\n$3\r\nabc\r\n$-1\r\n*2\r\n$1\r\n\n\r\n*1\r\n:5\r\n-ERR no\r\n*0\r\n*-1\r\n%1\r\n+a\r\n,1.5\r\n\
        >2\r\n+invalidate\r\n_\r\n|1\r\n+ttl\r\n:3\r\n#t\r\n~1\r\n(12\r\n=5\r\ntxt:a\r\n!4\r\nE no\r\n$0\r\n\r\n";
    const REPLIES: u32 = 13;

    #[test]
    fn replies_are_counted_wherever_the_stream_is_cut() {
        for size in 1..STREAM.len() {
            let mut scanner = Scanner::default();
            let (mut ended, mut errors) = (0, Vec::new());
            for piece in STREAM.chunks(size) {
                let before = ended;
                ended += scanner
                    .scan(piece, |at, text| {
                        errors.push((before + at, String::from_utf8_lossy(text).into_owned()));
                    })
                    .unwrap();
            }
            assert_eq!(ended, REPLIES, "pieces of {size}");
            assert_eq!(
                errors,
                [(4, "ERR no".to_owned()), (11, "a long error".to_owned())],
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"$x\r\n", b"*\r\n", b"\r\n", b"$99999999999\r\n"]
        {
            assert!(Scanner::default().scan(bytes, |_, _| ()).is_err(), "{}", bytes.escape_ascii());
        }
        let long = vec![b'+'; LINE_LEN_MAX + 1];
        assert_eq!(Scanner::default().scan(&long, |_, _| ()), Err(NoReply(b'+')));
    }

    #[test]
    fn values_are_not_kept() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.scan(b"$1000000\r\n", |_, _| ()), Ok(0));
        assert_eq!(scanner.scan(&[b'-'; 1_000_000], |_, _| ()), Ok(0));
        assert_eq!(scanner.scan(b"\r\n", |_, _| ()), Ok(1));
        assert_eq!(scanner.line.capacity(), 0);
    }
}
