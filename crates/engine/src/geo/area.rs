//! Areas that are searched: circles, boxes and polygons, the nine cells that cover one, and what lies in it.

use super::cell::{Cell, Position, STEP_MAX};
use super::{EARTH_RADIUS, RADIANS, distance, distance_of_latitudes};

/// An area. Lengths are in its unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Area {
    /// All within a distance of the centre.
    Circle {
        /// The distance.
        radius: f64,
    },
    /// All up to half the lengths to each side of the centre.
    Box {
        /// West to east, along the parallel.
        width: f64,
        /// South to north.
        height: f64,
    },
    /// All within these corners.
    Polygon(Vec<Position>),
}

/// A place in an area.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// Where it is.
    pub(crate) position: Position,
    /// From the centre, in metres.
    pub(crate) distance: f64,
}

/// South-western and north-eastern corner.
struct Bounds {
    min: Position,
    max: Position,
}

impl Area {
    /// The centre of a polygon: that of its corners as points in space, seen from within the Earth. `None` for the others.
    pub(crate) fn own_centre(&self) -> Option<Position> {
        let Self::Polygon(corners) = self else { return None };
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        for corner in corners {
            let (lon, lat) = (corner.lon * RADIANS, corner.lat * RADIANS);
            x += lat.cos() * lon.cos();
            y += lat.cos() * lon.sin();
            z += lat.sin();
        }
        let (lon, lat) = (f64::atan2(y, x), f64::atan2(z, (x * x + y * y).sqrt()));
        Some(Position { lon: lon / RADIANS, lat: lat / RADIANS })
    }

    fn bounds(&self, centre: Position, unit: f64) -> Bounds {
        let (width, height) = match self {
            Self::Circle { radius } => (unit * radius, unit * radius),
            Self::Box { width, height } => (unit * width / 2.0, unit * height / 2.0),
            Self::Polygon(corners) => {
                let mut bounds = Bounds {
                    min: Position { lon: f64::INFINITY, lat: f64::INFINITY },
                    max: Position { lon: f64::NEG_INFINITY, lat: f64::NEG_INFINITY },
                };
                for corner in corners {
                    let (min, max) = (&mut bounds.min, &mut bounds.max);
                    (min.lon, min.lat) = (min.lon.min(corner.lon), min.lat.min(corner.lat));
                    (max.lon, max.lat) = (max.lon.max(corner.lon), max.lat.max(corner.lat));
                }
                return bounds;
            }
        };
        let lat_delta = height / EARTH_RADIUS / RADIANS;
        let lon_delta = |lat: f64| width / EARTH_RADIUS / (lat * RADIANS).cos() / RADIANS;
        // A parallel is shorter the nearer it is to a pole.
        let lon_delta = if centre.lat < 0.0 {
            lon_delta(centre.lat - lat_delta)
        } else {
            lon_delta(centre.lat + lat_delta)
        };
        Bounds {
            min: Position { lon: centre.lon - lon_delta, lat: centre.lat - lat_delta },
            max: Position { lon: centre.lon + lon_delta, lat: centre.lat + lat_delta },
        }
    }

    /// Metres from the centre that nothing in it is farther away than.
    fn reach(&self, centre: Position, unit: f64, bounds: &Bounds) -> f64 {
        match self {
            Self::Circle { radius } => radius * unit,
            Self::Box { width, height } => {
                let square = (width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0);
                square.sqrt() * unit
            }
            Self::Polygon(_) => {
                let corners = [
                    (bounds.min.lon, bounds.max.lat),
                    (bounds.max.lon, bounds.max.lat),
                    (bounds.min.lon, bounds.min.lat),
                    (bounds.max.lon, bounds.min.lat),
                ];
                let far = corners.map(|(lon, lat)| distance(centre, Position { lon, lat }));
                far.into_iter().fold(far[0], f64::max) * unit
            }
        }
    }

    /// Cells that cover it, in the order in which Redis looks at them: its centre's, then those around it. Where cells are
    /// large, several of these may be the same.
    pub(crate) fn cells(&self, centre: Position, unit: f64) -> Vec<Cell> {
        let bounds = self.bounds(centre, unit);
        let mut step = step_for(self.reach(centre, unit, &bounds), centre.lat);
        let start = centre.clamped();
        let mut cell = Cell::at(start, step);
        if step > 1 && !reaches(cell, &bounds) {
            step -= 1;
            cell = Cell::at(start, step);
        }
        let (south_west, north_east) = cell.corners();
        // Is the centre's cell alone enough to this side?
        let prune = step >= 2;
        let (south, west) =
            (prune && south_west.lat < bounds.min.lat, prune && south_west.lon < bounds.min.lon);
        let (north, east) =
            (prune && north_east.lat > bounds.max.lat, prune && north_east.lon > bounds.max.lon);
        let around = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let needed = around.into_iter().filter(|&(to_east, to_north)| {
            !(to_north > 0 && north || to_north < 0 && south || to_east > 0 && east || to_east < 0 && west)
        });
        let mut cells = vec![cell];
        for (to_east, to_north) in needed {
            let next = cell.neighbour(to_east, to_north);
            // The same cell twice in a row is looked at once.
            if cells.len() == 1 || cells.last() != Some(&next) {
                cells.push(next);
            }
        }
        cells
    }

    /// Whether the place of a score is in it.
    pub(crate) fn find(&self, centre: Position, unit: f64, score: f64) -> Option<Found> {
        let position = Position::of_score(score);
        match self {
            Self::Circle { radius } => {
                let distance = distance(centre, position);
                if distance > radius * unit {
                    return None;
                }
                Some(Found { position, distance })
            }
            Self::Box { width, height } => {
                if distance_of_latitudes(position.lat, centre.lat) > height * unit / 2.0 {
                    return None;
                }
                let beside = Position { lon: centre.lon, lat: position.lat };
                if distance(position, beside) > width * unit / 2.0 {
                    return None;
                }
                Some(Found { position, distance: distance(centre, position) })
            }
            Self::Polygon(corners) => {
                surrounds(corners, position).then(|| Found { position, distance: distance(centre, position) })
            }
        }
    }
}

/// Whether a line from a point to the east crosses the sides an odd number of times (W. Randolph Franklin's PNPOLY).
fn surrounds(corners: &[Position], point: Position) -> bool {
    let before = corners.iter().cycle().skip(corners.len().saturating_sub(1));
    let crosses = |(a, b): (&Position, &Position)| {
        (a.lat > point.lat) != (b.lat > point.lat)
            && point.lon < (b.lon - a.lon) * (point.lat - a.lat) / (b.lat - a.lat) + a.lon
    };
    corners.iter().zip(before).filter(|pair| crosses(*pair)).count() % 2 == 1
}

/// The finest grid of which nine cells cover an area that reaches so many metres, as a rule.
fn step_for(mut reach: f64, lat: f64) -> u32 {
    /// Half of what the projection's square measures.
    const MERCATOR_MAX: f64 = 20_037_726.37;
    if reach == 0.0 {
        return STEP_MAX;
    }
    let mut step = 1;
    while reach < MERCATOR_MAX {
        reach *= 2.0;
        step += 1;
    }
    // Cells get narrower to the poles.
    step -= 2 + i32::from(lat.abs() > 66.0) + i32::from(lat.abs() > 80.0);
    step.clamp(1, STEP_MAX as i32).unsigned_abs()
}

/// Whether the cells to the four sides go as far as the bounds.
fn reaches(cell: Cell, bounds: &Bounds) -> bool {
    let [north, south, east, west] =
        [(0, 1), (0, -1), (1, 0), (-1, 0)].map(|(east, north)| cell.neighbour(east, north).corners());
    let short = north.1.lat < bounds.max.lat
        || south.0.lat > bounds.min.lat
        || east.1.lon < bounds.max.lon
        || west.0.lon > bounds.min.lon;
    !short
}
