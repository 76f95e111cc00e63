//! Bytes that a client has sent and that are not run yet. What is done with at the front is not moved away each time:
//! a client may have thousands of commands here that are run one by one.

/// Unprocessed input of a connection.
#[derive(Debug, Default)]
pub(crate) struct Input {
    buf: Vec<u8>,
    /// Bytes at the front of `buf` that are done with; less than all of them.
    done: usize,
}

impl Input {
    /// What is left, in the order of its arrival.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[self.done..]
    }

    /// How much is left.
    pub(crate) fn len(&self) -> usize {
        self.buf.len() - self.done
    }

    /// Room beyond that, in bytes.
    pub(crate) fn free(&self) -> usize {
        self.buf.capacity() - self.len()
    }

    /// Whether nothing is left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// More has arrived.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// So many bytes at the front are done with. Each byte is moved at most once for one that goes, so a consumed byte
    /// costs constant time; an empty input keeps no memory.
    pub(crate) fn consume(&mut self, len: usize) {
        self.done += len;
        if self.done == self.buf.len() {
            *self = Self::default();
        } else if self.done > self.buf.len() / 2 {
            self.buf.drain(..self.done);
            self.done = 0;
        }
    }

    /// Takes off everything from byte `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Vec<u8> {
        let rest = self.buf.split_off(self.done + at);
        self.consume(0);
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_is_consumed_in_order() {
        let all: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let (mut input, mut seen, mut pushed) = (Input::default(), 0, 0);
        for step in 0.. {
            let more = all.len().min(pushed + step * 7 % 41);
            input.push(&all[pushed..more]);
            pushed = more;
            assert_eq!((input.bytes(), input.len()), (&all[seen..pushed], pushed - seen));
            assert_eq!(input.is_empty(), seen == pushed);
            if seen == all.len() {
                break;
            }
            let used = input.len().min(step * 5 % 37);
            input.consume(used);
            seen += used;
            if step % 10 == 0 && input.len() > 3 {
                let rest = input.split_off(input.len() - 3);
                assert_eq!(rest, all[pushed - 3..pushed]);
                input.push(&rest);
            }
        }
        assert_eq!(input.buf.capacity(), 0, "an idle connection keeps no buffer");
    }

    #[test]
    fn small_steps_through_a_large_input_move_it_rarely() {
        let mut input = Input::default();
        input.push(&[b'x'; 1 << 16]);
        let mut moves = 0;
        while !input.is_empty() {
            let done = input.done;
            input.consume(8);
            moves += usize::from(input.done < done);
        }
        assert!(moves <= 16, "moved {moves} times");
    }
}
