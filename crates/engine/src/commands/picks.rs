//! How long the reply to a negative count may become: HRANDFIELD, SRANDMEMBER and ZRANDMEMBER then pick elements as often as the
//! client says, whatever the collection holds.

use crate::ctx::Ctx;
use crate::errors::Error;
use corelane_resp::Reply;

/// Bytes of such a reply, unless the client's `client-output-buffer-limit` allows less. Valkey has no limit here but memory.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// Bytes of an empty element.
const ELEMENT_BYTES_MIN: usize = b"$0\r\n\r\n".len();

/// What a reply may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    bytes_max: usize,
    start: usize,
}

impl Room {
    /// For what is written into `reply` from now on.
    pub(super) fn new(ctx: &Ctx<'_>, reply: &Reply) -> Self {
        let hard = ctx.shard.settings.output_limits.normal.hard;
        let bytes_max = if hard == 0 { REPLY_BYTES_MAX } else { hard.min(REPLY_BYTES_MAX) };
        Self { bytes_max, start: reply.len() }
    }

    /// Whether so many elements may fit.
    ///
    /// # Errors
    /// They do not, however short they are.
    pub(super) fn admit(self, elements: usize) -> Result<(), Error> {
        if elements > self.bytes_max / ELEMENT_BYTES_MIN { Err(self.error()) } else { Ok(()) }
    }

    /// Whether what has been written fits.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check(self, reply: &Reply) -> Result<(), Error> {
        if reply.len() - self.start > self.bytes_max { Err(self.error()) } else { Ok(()) }
    }

    #[cold]
    fn error(self) -> Error {
        Error::owned(format!(
            "ERR value is out of range, the reply would have more than {} bytes",
            self.bytes_max
        ))
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::Bench;

    #[test]
    fn replies_to_negative_counts_are_bounded() {
        let error = |bytes: usize| {
            format!("-ERR value is out of range, the reply would have more than {bytes} bytes")
        };
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("HSET h field value\nSADD s member\nZADD z 1 member");
            for command in
                ["HRANDFIELD h", "SRANDMEMBER s", "ZRANDMEMBER z", "HRANDFIELD none", "SRANDMEMBER none"]
            {
                let expected = if command.ends_with("none") { "[]".to_owned() } else { error(64 << 20) };
                assert_eq!(bench.run(&format!("{command} -4000000000000000000")), expected);
                assert_eq!(bench.run(&format!("{command} -12000000")), expected);
            }
            assert_eq!(bench.run("HRANDFIELD h -4000000 WITHVALUES"), error(64 << 20));
            bench.configure(|settings| settings.output_limits.normal.hard = 1000);
            let allowed =
                bench.run("SRANDMEMBER s -80\nHRANDFIELD h -40 WITHVALUES\nZRANDMEMBER z -40 WITHSCORES");
            assert_eq!(allowed.lines().filter(|line| line.starts_with('[')).count(), 3);
            for command in ["SRANDMEMBER s -90", "HRANDFIELD h -80 WITHVALUES", "ZRANDMEMBER z -90"] {
                assert_eq!(bench.run(command), error(1000));
            }
            assert_eq!(bench.run("SRANDMEMBER s 1000000"), "[\"member\"]");
            assert_eq!(
                bench.run("MULTI\nSRANDMEMBER s -90\nSCARD s\nEXEC").lines().last().unwrap_or_default(),
                format!("[{}, :1]", error(1000))
            );
        }
    }
}
