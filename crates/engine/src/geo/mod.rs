//! Places on Earth as scores of sorted sets, distances between them, and which scores an area has. Pure arithmetic; what it is
//! used for is in `commands/geo*.rs`.
//!
//! The arithmetic is Redis's to the last bit, operation by operation, since clients see seventeen decimals of it.

mod area;
mod cell;

pub(crate) use area::{Area, Found};
pub(crate) use cell::{Position, geohash_text};

/// Metres; the quadratic mean radius.
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Of a degree.
const RADIANS: f64 = std::f64::consts::PI / 180.0;

/// Metres between two places along the surface (haversine formula).
pub(crate) fn distance(a: Position, b: Position) -> f64 {
    /// About six nanometres.
    const SAME_LONGITUDE: f64 = 1e-15;
    let (lon_a, lon_b) = (a.lon * RADIANS, b.lon * RADIANS);
    let v = ((lon_b - lon_a) / 2.0).sin();
    if v.abs() <= SAME_LONGITUDE {
        return distance_of_latitudes(a.lat, b.lat);
    }
    let (lat_a, lat_b) = (a.lat * RADIANS, b.lat * RADIANS);
    let u = ((lat_b - lat_a) / 2.0).sin();
    let square = u * u + lat_a.cos() * lat_b.cos() * v * v;
    2.0 * EARTH_RADIUS * square.sqrt().asin()
}

fn distance_of_latitudes(a: f64, b: f64) -> f64 {
    EARTH_RADIUS * (b * RADIANS - a * RADIANS).abs()
}
