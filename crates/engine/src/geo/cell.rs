//! Cells of a grid over the globe, numbered along a Z-shaped curve, so that the cells within a larger one follow each other.

/// Longitude and latitude in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    /// East is positive.
    pub(crate) lon: f64,
    /// North is positive.
    pub(crate) lat: f64,
}

const LON_MAX: f64 = 180.0;
/// Where the Mercator projection's square ends (EPSG:3857).
const LAT_MAX: f64 = 85.051_128_78;
/// The finest grid has 2^26 by 2^26 cells; a score is the number of one of them.
pub(crate) const STEP_MAX: u32 = 26;

impl Position {
    /// Whether there is a cell for it.
    pub(crate) fn is_valid(self) -> bool {
        (-LON_MAX..=LON_MAX).contains(&self.lon) && (-LAT_MAX..=LAT_MAX).contains(&self.lat)
    }

    /// The nearest one that is valid.
    pub(crate) fn clamped(self) -> Self {
        Self { lon: self.lon.clamp(-LON_MAX, LON_MAX), lat: self.lat.clamp(-LAT_MAX, LAT_MAX) }
    }

    /// The middle of the cell that a score is the number of.
    pub(crate) fn of_score(score: f64) -> Self {
        let bits = as_unsigned(score);
        let (south_west, north_east) =
            Cell { lon: gather(bits >> 1), lat: gather(bits), step: STEP_MAX }.corners();
        Self { lon: (south_west.lon + north_east.lon) / 2.0, lat: (south_west.lat + north_east.lat) / 2.0 }
            .clamped()
    }

    /// The number of its cell in the finest grid.
    pub(crate) fn score(self) -> f64 {
        Cell::at(self, STEP_MAX).number() as f64
    }
}

/// As compilers for x86-64 convert it where it is negative or too large.
fn as_unsigned(score: f64) -> u64 {
    const HALF: f64 = (1u64 << 63) as f64;
    let as_signed = |number: f64| if (-HALF..HALF).contains(&number) { number as i64 } else { i64::MIN };
    if score < HALF { as_signed(score) as u64 } else { as_signed(score - HALF) as u64 ^ 1 << 63 }
}

/// A cell of the grid of 2^step by 2^step. At the eastern and northern edges of the globe there is one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    lon: u32,
    lat: u32,
    step: u32,
}

impl Cell {
    /// The cell of a valid position.
    pub(crate) fn at(position: Position, step: u32) -> Self {
        let place = |value: f64, max: f64| {
            let part = (value + max) / (max + max);
            (part * f64::from(1u32 << step)) as u32
        };
        Self { lon: place(position.lon, LON_MAX), lat: place(position.lat, LAT_MAX), step }
    }

    /// Its number in its grid.
    const fn number(self) -> u64 {
        spread(self.lon) << 1 | spread(self.lat)
    }

    /// The first score in it, and the first behind it.
    pub(crate) const fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEP_MAX - self.step);
        ((self.number() << shift) as f64, ((self.number() + 1) << shift) as f64)
    }

    /// Its south-western and its north-eastern corner.
    pub(crate) fn corners(self) -> (Position, Position) {
        let corner = |lon: u32, lat: u32| {
            let cells = (1u64 << self.step) as f64;
            Position {
                lon: -LON_MAX + f64::from(lon) / cells * (LON_MAX + LON_MAX),
                lat: -LAT_MAX + f64::from(lat) / cells * (LAT_MAX + LAT_MAX),
            }
        };
        (corner(self.lon, self.lat), corner(self.lon.wrapping_add(1), self.lat.wrapping_add(1)))
    }

    /// The cell so many further to the east and to the north, around the globe in both directions.
    pub(crate) fn neighbour(self, east: i32, north: i32) -> Self {
        let mask = (1 << self.step) - 1;
        let moved = |place: u32, by: i32| {
            if by == 0 { place } else { place.wrapping_add_signed(by) & mask }
        };
        Self { lon: moved(self.lon, east), lat: moved(self.lat, north), step: self.step }
    }
}

/// Puts a zero before each bit.
const fn spread(bits: u32) -> u64 {
    let mut x = bits as u64;
    x = (x | x << 16) & 0x0000_FFFF_0000_FFFF;
    x = (x | x << 8) & 0x00FF_00FF_00FF_00FF;
    x = (x | x << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    x = (x | x << 2) & 0x3333_3333_3333_3333;
    (x | x << 1) & 0x5555_5555_5555_5555
}

/// Every other bit.
const fn gather(bits: u64) -> u32 {
    let mut x = bits & 0x5555_5555_5555_5555;
    x = (x | x >> 1) & 0x3333_3333_3333_3333;
    x = (x | x >> 2) & 0x0F0F_0F0F_0F0F_0F0F;
    x = (x | x >> 4) & 0x00FF_00FF_00FF_00FF;
    x = (x | x >> 8) & 0x0000_FFFF_0000_FFFF;
    (x | x >> 16) as u32
}

/// The geohash (Gustavo Niemeyer, 2008) of a score's place, over all latitudes: ten letters, and one for bits that are not there.
pub(crate) fn geohash_text(score: f64) -> [u8; 11] {
    const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    const POLE: f64 = 90.0;
    let Position { lon, lat } = Position::of_score(score);
    // As `Cell::at`, but to the poles.
    let place = |value: f64, max: f64| ((value + max) / (max + max) * f64::from(1u32 << STEP_MAX)) as u32;
    let cell = Cell { lon: place(lon, LON_MAX), lat: place(lat, POLE), step: STEP_MAX };
    let mut text = [LETTERS[0]; 11];
    for (idx, letter) in text[..10].iter_mut().enumerate() {
        *letter = LETTERS[(cell.number() >> (2 * STEP_MAX as usize - 5 * (idx + 1)) & 0x1F) as usize];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn scores_lead_back_to_where_they_come_from(lon in -180.0..=180.0f64, lat in -85.0..=85.0f64) {
            let position = Position { lon, lat };
            let back = Position::of_score(position.score());
            prop_assert!((back.lon - lon).abs() < 3e-6 && (back.lat - lat).abs() < 2e-6, "{back:?}");
            for step in 1..=STEP_MAX {
                let (from, to) = Cell::at(position, step).scores();
                prop_assert!(from <= position.score() && position.score() < to);
            }
        }

        #[test]
        fn bits_are_spread_and_gathered(lon: u32, lat: u32) {
            let number = Cell { lon, lat, step: STEP_MAX }.number();
            prop_assert_eq!((gather(number >> 1), gather(number)), (lon, lat));
        }

        #[test]
        fn neighbours_are_mutual(lon in 0..64u32, lat in 0..64u32, east in -1..=1i32, north in -1..=1i32) {
            let cell = Cell { lon, lat, step: 6 };
            prop_assert_eq!(cell.neighbour(east, north).neighbour(-east, -north), cell);
        }
    }

    #[test]
    fn scores_that_are_no_cells_are_converted_as_valkey_does() {
        let cases = [
            (-1.0, u64::MAX),
            (f64::INFINITY, 0),
            (f64::NEG_INFINITY, 1 << 63),
            (1e18, 1_000_000_000_000_000_000),
        ];
        for (score, bits) in cases {
            assert_eq!(as_unsigned(score), bits, "{score}");
        }
        assert_eq!(&geohash_text(3_479_099_956_230_698.0), b"sqc8b49rny0");
    }
}
