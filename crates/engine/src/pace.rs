//! How much a handler does in one call. What the pieces are pieces of, it knows itself.

/// How long a handler may take in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As long as it takes: nothing else may come in between.
    Whole,
    /// Not long; rather than that it answers [`Flow::Later`](crate::command::Flow::Later).
    Brief,
    /// It does a piece of its work, and is called again: the intents on its keys are held until all is done.
    Pieces,
}

/// How much a handler may do in one call.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    /// How long it may take.
    pub pace: Pace,
    /// What that comes to.
    pub sizes: PieceSizes,
}

/// How much work is brief, and how much a piece, in elements of collections that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceSizes {
    /// So many short elements are brief.
    pub brief_len: usize,
    /// So many make a piece.
    pub piece_len: usize,
}

impl PieceSizes {
    /// About 0.2 ms, and a quarter of that.
    pub const DEFAULT: Self = Self { brief_len: 2048, piece_len: 512 };
    /// Whatever can be done in pieces is, one element at a time.
    pub const SMALLEST: Self = Self { brief_len: 0, piece_len: 1 };
    /// Elements are short up to this many bytes on average.
    pub const SHORT_BYTES: usize = 512;
}

impl Pacing {
    /// Whether it is brief to handle so many elements, which are as long as those of a value of `len` elements and `bytes` bytes
    /// are on average.
    #[inline]
    pub fn is_brief(self, count: usize, extent: (usize, usize)) -> bool {
        count <= share(self.sizes.brief_len, extent)
    }

    /// How many of `count` elements to handle in this call, if they are as long as those of a value of `len` elements and
    /// `bytes` bytes are on average; `None` if that would not be brief and has to be.
    #[inline]
    pub fn piece(self, count: usize, extent: (usize, usize)) -> Option<usize> {
        match self.pace {
            Pace::Whole => Some(usize::MAX),
            Pace::Brief => self.is_brief(count, extent).then_some(usize::MAX),
            Pace::Pieces => Some(share(self.sizes.piece_len, extent).max(1)),
        }
    }

    /// How many elements to look at in this call, of a value like that, for a command that may find what it looks for before it has
    /// seen all of them.
    pub fn look(self, extent: (usize, usize)) -> usize {
        match self.pace {
            Pace::Whole => usize::MAX,
            Pace::Brief => share(self.sizes.brief_len, extent),
            Pace::Pieces => share(self.sizes.piece_len, extent).max(1),
        }
    }

    /// How many of so many bytes of strings to look at in this call; `None` if that would not be brief and has to be.
    pub fn piece_of_bytes(self, bytes: usize) -> Option<usize> {
        let piece = self.piece(bytes.div_ceil(PieceSizes::SHORT_BYTES), (0, 0))?;
        Some(piece.saturating_mul(PieceSizes::SHORT_BYTES))
    }
}

/// How many elements of such a value take as long as so many short ones.
#[inline]
fn share(of_short: usize, (len, bytes): (usize, usize)) -> usize {
    let mean_bytes = bytes.checked_div(len).unwrap_or(0).max(PieceSizes::SHORT_BYTES);
    of_short * PieceSizes::SHORT_BYTES / mean_bytes
}
