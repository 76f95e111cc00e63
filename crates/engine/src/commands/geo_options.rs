//! What GEOSEARCH, GEORADIUS and their kin are asked for.

use super::geo::{position_at, unit_at};
use super::zset_range::parse_score;
use crate::args::{Args, parse_int};
use crate::errors::Error;
use crate::geo::{Area, Position};
use crate::values::SortedSetRef;

/// Where GEOSEARCHSTORE's result goes. No other one's can go to that argument.
pub(super) const SEARCH_DESTINATION: usize = 1;

pub(super) const SEARCH_EVENT: &str = "geosearchstore";
pub(super) const RADIUS_EVENT: &str = "georadiusstore";

/// Which of the commands it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// GEOSEARCH.
    Search,
    /// GEOSEARCHSTORE.
    SearchStore,
    /// GEORADIUS, around a position.
    Radius {
        /// It may have a STORE.
        stores: bool,
    },
    /// GEORADIUSBYMEMBER, around a member.
    RadiusByMember {
        /// It may have a STORE.
        stores: bool,
    },
}

impl Form {
    pub(super) const fn is_search(self) -> bool {
        matches!(self, Self::Search | Self::SearchStore)
    }

    /// Whether it has the option STORE.
    const fn has_store(self) -> bool {
        matches!(self, Self::Radius { stores: true } | Self::RadiusByMember { stores: true })
    }

    /// Whether it may store its result.
    pub(super) const fn may_store(self) -> bool {
        matches!(self, Self::SearchStore) || self.has_store()
    }

    /// What is told when it does.
    pub(super) const fn event(self) -> &'static str {
        if self.is_search() { SEARCH_EVENT } else { RADIUS_EVENT }
    }

    /// The source's index in the arguments.
    pub(super) const fn source(self) -> usize {
        if matches!(self, Self::SearchStore) { 2 } else { 1 }
    }

    /// Where the options begin.
    const fn options_at(self) -> usize {
        match self {
            Self::Search => 2,
            Self::SearchStore => 3,
            Self::Radius { .. } => 6,
            Self::RadiusByMember { .. } => 5,
        }
    }
}

/// How results are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Near,
    Far,
}

/// What is asked for.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) centre: Option<Position>,
    pub(super) area: Option<Area>,
    /// Metres.
    pub(super) unit: f64,
    pub(super) with_distance: bool,
    pub(super) with_hash: bool,
    pub(super) with_position: bool,
    pub(super) order: Option<Order>,
    /// At most so many.
    pub(super) count: Option<usize>,
    /// The first that are found are as good as the nearest.
    pub(super) any: bool,
    /// Where the result goes: the index of a key.
    pub(super) store: Option<usize>,
    /// With distances for scores.
    pub(super) store_distance: bool,
    from_member: bool,
    from_position: bool,
}

impl Query {
    /// Reads the arguments of a command whose source is `set`; members are looked up on the way, as errors come in the order of
    /// the arguments.
    pub(super) fn parse(args: Args<'_>, form: Form, set: Option<SortedSetRef<'_>>) -> Result<Self, Error> {
        let mut query = Self { unit: 1.0, ..Self::default() };
        match form {
            Form::Radius { .. } => {
                query.centre = Some(position_at(args, 2)?);
                query.circle(args, 4)?;
            }
            // Without a set nobody looks at the radius.
            Form::RadiusByMember { .. } if set.is_some() => {
                query.around(args, 2, set)?;
                query.circle(args, 3)?;
            }
            Form::SearchStore => query.store = Some(SEARCH_DESTINATION),
            _ => {}
        }
        let mut idx = form.options_at();
        while idx < args.len() {
            let behind = args.len() - idx - 1;
            let taken = query.plain_option(args, idx, form);
            idx += match taken {
                true => 1,
                false if form.is_search() && query.is_of_search(args, idx, behind) => {
                    1 + query.search_option(args, idx, set)?
                }
                false if args.is(idx, "COUNT") && behind > 0 => {
                    let count = args.int(idx + 1)?;
                    let count = usize::try_from(count).ok().filter(|count| *count > 0);
                    query.count = Some(count.ok_or(Error::text("ERR COUNT must be > 0"))?);
                    2
                }
                false
                    if form.has_store()
                        && behind > 0
                        && (args.is(idx, "STORE") || args.is(idx, "STOREDIST")) =>
                {
                    query.store = Some(idx + 1);
                    query.store_distance = args.is(idx, "STOREDIST");
                    2
                }
                false => return Err(Error::Syntax),
            };
        }
        query.check(args, form)?;
        Ok(query)
    }

    /// Takes an option that is a word by itself; true if it is one.
    fn plain_option(&mut self, args: Args<'_>, idx: usize, form: Form) -> bool {
        match () {
            () if args.is(idx, "WITHDIST") => self.with_distance = true,
            () if args.is(idx, "WITHHASH") => self.with_hash = true,
            () if args.is(idx, "WITHCOORD") => self.with_position = true,
            () if args.is(idx, "ANY") => self.any = true,
            () if args.is(idx, "ASC") => self.order = Some(Order::Near),
            () if args.is(idx, "DESC") => self.order = Some(Order::Far),
            () if form == Form::SearchStore && args.is(idx, "STOREDIST") => self.store_distance = true,
            () => return false,
        }
        true
    }

    /// Whether an option of GEOSEARCH stands there with as many arguments `behind` it as it needs at least, and does not
    /// contradict those before it.
    fn is_of_search(&self, args: Args<'_>, idx: usize, behind: usize) -> bool {
        let polygon = matches!(self.area, Some(Area::Polygon(_)));
        let circle = matches!(self.area, Some(Area::Circle { .. }));
        let in_box = matches!(self.area, Some(Area::Box { .. }));
        match () {
            () if args.is(idx, "FROMMEMBER") => behind > 0 && !self.from_position && !polygon,
            () if args.is(idx, "FROMLONLAT") => behind > 1 && !self.from_member && !polygon,
            () if args.is(idx, "BYRADIUS") => behind > 1 && !in_box && !polygon,
            () if args.is(idx, "BYBOX") => behind > 2 && !circle && !polygon,
            () if args.is(idx, "BYPOLYGON") => {
                behind > 1 && !circle && !in_box && !self.from_member && !self.from_position
            }
            () => false,
        }
    }

    /// Takes such an option; returns how many arguments it has behind it.
    fn search_option(
        &mut self,
        args: Args<'_>,
        idx: usize,
        set: Option<SortedSetRef<'_>>,
    ) -> Result<usize, Error> {
        if args.is(idx, "FROMMEMBER") {
            self.around(args, idx + 1, set)?;
            self.from_member = true;
            Ok(1)
        } else if args.is(idx, "FROMLONLAT") {
            self.centre = Some(position_at(args, idx + 1)?);
            self.from_position = true;
            Ok(2)
        } else if args.is(idx, "BYRADIUS") {
            self.circle(args, idx + 1)?;
            Ok(2)
        } else if args.is(idx, "BYBOX") {
            self.rectangle(args, idx + 1)?;
            Ok(3)
        } else {
            self.polygon(args, idx + 1)
        }
    }

    fn around(&mut self, args: Args<'_>, idx: usize, set: Option<SortedSetRef<'_>>) -> Result<(), Error> {
        let Some(set) = set else { return Ok(()) };
        let member = args.at(idx);
        let score = set.score(member).ok_or_else(|| Error::echo("ERR member ", member, " does not exist"))?;
        self.centre = Some(Position::of_score(score));
        Ok(())
    }

    fn circle(&mut self, args: Args<'_>, idx: usize) -> Result<(), Error> {
        let radius = parse_score(args.at(idx)).ok_or(Error::text("ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err(Error::text("ERR radius cannot be negative"));
        }
        self.unit = unit_at(args, idx + 1)?;
        self.area = Some(Area::Circle { radius });
        Ok(())
    }

    fn rectangle(&mut self, args: Args<'_>, idx: usize) -> Result<(), Error> {
        let width = parse_score(args.at(idx)).ok_or(Error::text("ERR need numeric width"))?;
        let height = parse_score(args.at(idx + 1)).ok_or(Error::text("ERR need numeric height"))?;
        if width < 0.0 || height < 0.0 {
            return Err(Error::text("ERR height or width cannot be negative"));
        }
        self.unit = unit_at(args, idx + 2)?;
        self.area = Some(Area::Box { width, height });
        Ok(())
    }

    /// Number of corners and corners; returns how many arguments these are.
    fn polygon(&mut self, args: Args<'_>, idx: usize) -> Result<usize, Error> {
        const CORNERS_MIN: usize = 3;
        let count = parse_int(args.at(idx)).and_then(|count| i32::try_from(count).ok());
        let count = count.ok_or(Error::text("ERR invalid number of vertices"))?;
        let fits = |count: &usize| *count >= CORNERS_MIN && idx + 2 * count < args.len();
        let count = usize::try_from(count).ok().filter(fits);
        let count = count.ok_or(Error::text("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"))?;
        let corners: Result<Vec<Position>, Error> =
            (0..count).map(|corner| position_at(args, idx + 1 + 2 * corner)).collect();
        let area = Area::Polygon(corners?);
        (self.centre, self.area) = (area.own_centre(), Some(area));
        Ok(1 + 2 * count)
    }

    /// What goes together, once all is known.
    fn check(&self, args: Args<'_>, form: Form) -> Result<(), Error> {
        if self.store.is_some() && (self.with_distance || self.with_hash || self.with_position) {
            return Err(Error::text(if form == Form::SearchStore {
                "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            } else {
                "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            }));
        }
        let has_centre =
            self.from_member || self.from_position || matches!(self.area, Some(Area::Polygon(_)));
        if form.is_search() && !has_centre {
            let before = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
            return Err(Error::echo(before, args.at(0), ""));
        }
        if form.is_search() && self.area.is_none() {
            let before = "ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for ";
            return Err(Error::echo(before, args.at(0), ""));
        }
        if self.any && self.count.is_none() {
            return Err(Error::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }
}
