//! Random places, many of them the same or close together, and random areas: the same members in the same order with the same
//! digits as Valkey's, sorted or not, all or some.

use super::peers::{self, Step};
use crate::common::random::Random;
use crate::common::words;

const WORLDS: u64 = 12;
/// Worlds that once differed: 3722 has members of equal distance in a part of the order whose pivots are all bad.
const DIFFERED: &[u64] = &[3722];
const PLACES: usize = 400;
const SEARCHES: usize = 150;

/// Degrees from the equator that a place may be at most.
const MAX_LATITUDE: f64 = 85.051_128_78;

/// Degrees around which places lie, and how far.
struct Region {
    lon: f64,
    lat: f64,
    spread: f64,
}

impl Region {
    fn random(random: &mut Random) -> Self {
        let part = |random: &mut Random| random.below(2_000_001) as f64 / 1e6 - 1.0;
        let spread = *random.pick(&[0.0001, 0.01, 1.0, 30.0, 400.0]);
        let (mut lon, mut lat) = (180.0 * part(random), 85.0 * part(random));
        if random.one_in(4) {
            lon = *random.pick(&[0.0, 180.0, -180.0, 179.99, 90.0, 45.0]);
            lat = *random.pick(&[0.0, 85.0, -85.0, 66.0, 80.0, -66.3]);
        }
        Self { lon, lat, spread }
    }

    fn place(&self, random: &mut Random) -> String {
        let mut near = |centre: f64, max: f64| {
            let part = random.below(2_000_001) as f64 / 1e6 - 1.0;
            (centre + self.spread * part).clamp(-max, max)
        };
        let (lon, lat) = (near(self.lon, 180.0), near(self.lat, MAX_LATITUDE));
        format!("{lon:.7} {lat:.7}")
    }

    /// Those of a polygon whose centre is a place that members may have. Valkey searches for what lies about others from memory
    /// that it has not set.
    fn corners(&self, random: &mut Random) -> Vec<String> {
        loop {
            let corners: Vec<String> = (0..3 + random.below(4)).map(|_| self.place(random)).collect();
            if latitude_of_centre(&corners).abs() < MAX_LATITUDE {
                return corners;
            }
        }
    }

    /// A length in kilometres that has some of the places within it.
    fn length(&self, random: &mut Random) -> f64 {
        self.spread * 111.0 * *random.pick(&[0.01, 0.1, 0.3, 0.7, 1.0, 1.5, 4.0])
    }
}

/// The latitude in degrees of the sum of these places as vectors from the Earth's centre.
fn latitude_of_centre(corners: &[String]) -> f64 {
    let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
    for corner in corners {
        let degrees: Vec<f64> = corner.split(' ').map(|part| part.parse().expect("a number")).collect();
        let (lon, lat) = (degrees[0].to_radians(), degrees[1].to_radians());
        x += lat.cos() * lon.cos();
        y += lat.cos() * lon.sin();
        z += lat.sin();
    }
    z.atan2(x.hypot(y)).to_degrees()
}

fn world(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let region = Region::random(&mut random);
    let mut lines = Vec::new();
    // Both encodings, and several members at one place.
    let count = if seed.is_multiple_of(3) { 90 } else { PLACES };
    let mut places: Vec<String> = Vec::new();
    for n in 0..count {
        let place =
            if n > 3 && random.one_in(4) { random.pick(&places).clone() } else { region.place(&mut random) };
        lines.push(format!("GEOADD s {place} m{n}"));
        places.push(place);
    }
    let units = ["m", "km", "ft", "mi"];
    for _ in 0..SEARCHES {
        let unit = *random.pick(&units);
        let metres = |unit: &str| match unit {
            "m" => 1.0,
            "km" => 1000.0,
            "ft" => 0.3048,
            _ => 1609.34,
        };
        let mut length = || region.length(&mut random) * 1000.0 / metres(unit);
        let (one, other) = (length(), length());
        let from = match random.below(3) {
            0 => format!("FROMMEMBER m{}", random.below(count)),
            _ => format!("FROMLONLAT {}", region.place(&mut random)),
        };
        let area = match random.below(5) {
            0 | 1 => format!("{from} BYRADIUS {one:.3} {unit}"),
            2 | 3 => format!("{from} BYBOX {one:.3} {other:.3} {unit}"),
            _ => {
                let corners = region.corners(&mut random);
                format!("BYPOLYGON {} {}", corners.len(), corners.join(" "))
            }
        };
        let order = *random.pick(&["", "", " ASC", " DESC"]);
        let some = match random.below(4) {
            0 => format!(" COUNT {}", 1 + random.below(60)),
            1 => format!(" COUNT {} ANY", 1 + random.below(20)),
            _ => String::new(),
        };
        if random.one_in(6) {
            lines.push(format!("GEOSEARCHSTORE d s {area}{order}{some} STOREDIST"));
            lines.push("ZRANGE d 0 -1 WITHSCORES".to_owned());
        } else {
            let with = *random.pick(&["", " WITHDIST", " WITHDIST WITHCOORD WITHHASH"]);
            lines.push(format!("GEOSEARCH s {area}{order}{some}{with}"));
        }
        let (a, b) = (random.below(count), random.below(count));
        lines.push(format!("GEODIST s m{a} m{b} {unit}"));
    }
    let members: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
    lines.push(format!("GEOHASH s {}", members.join(" ")));
    lines.push(format!("GEOPOS s {}", members.join(" ")));
    lines.into_iter().map(|line| (1, words::parse(&line))).collect()
}

#[test]
fn random_areas_have_the_same_members_in_the_same_order() {
    peers::same_cases(DIFFERED, WORLDS, world);
}
