//! The conditions that CLIENT LIST and CLIENT KILL put on clients.

use super::client_list::flags;
use crate::args::Args;
use crate::errors::Error;
use crate::keyspace::Millis;
use crate::modes::Modes;
use crate::session::{Client, Session};
use crate::settings::Settings;

/// All conditions of one command.
#[derive(Default)]
pub(super) struct Filters {
    conditions: Vec<Condition>,
    /// SKIPME, if it was given.
    pub(super) skip_me: Option<bool>,
}

struct Condition {
    /// In capitals, without `NOT-`.
    name: Vec<u8>,
    negative: bool,
    filter: Filter,
}

impl Filters {
    /// `touched`: a key that the client watches has been changed.
    pub(super) fn accept(&self, session: &Session, touched: bool, now: Millis) -> bool {
        self.conditions.iter().all(|known| known.filter.accepts(session, touched, now) != known.negative)
    }

    /// Whether it matters which clients watch keys that have been changed.
    pub(super) fn ask_for_touched(&self) -> bool {
        let asks = |known: &Condition| matches!(&known.filter, Filter::Flags(wanted) if wanted.contains('d'));
        self.conditions.iter().any(asks)
    }

    /// Parses the options of a subcommand.
    pub(super) fn parse(args: Args<'_>, settings: &Settings) -> Result<Self, Error> {
        let mut filters = Self::default();
        if args.len() == 3 {
            return Err(Error::Syntax);
        }
        let mut idx = 2;
        while idx < args.len() {
            let word = args.at(idx).to_ascii_uppercase();
            let (negative, name) = match word.strip_prefix(b"NOT-") {
                Some(b"IDLE" | b"MAXAGE" | b"SKIPME") => return Err(Error::Syntax),
                Some(rest) => (true, rest),
                None => (false, &word[..]),
            };
            idx += 1;
            let filter = if name == b"ID" {
                let mut ids = Vec::new();
                while let Some(id) = args.get(idx).and_then(crate::args::parse_int) {
                    ids.push(checked_id(id)?);
                    idx += 1;
                }
                Filter::Ids(ids)
            } else {
                let value = args.get(idx).ok_or(Error::Syntax)?;
                idx += 1;
                if name == b"SKIPME" {
                    filters.skip_me = Some(parse_yes_no(value)?);
                    continue;
                }
                parse_filter(name, value, negative, settings)?
            };
            filters.put(Condition { name: name.to_vec(), negative, filter });
        }
        Ok(filters)
    }

    /// Of two conditions with one name the latter holds; ids are added to those before.
    fn put(&mut self, new: Condition) {
        let same = |known: &&mut Condition| known.name == new.name && known.negative == new.negative;
        let Some(known) = self.conditions.iter_mut().find(same) else { return self.conditions.push(new) };
        match (&mut known.filter, new.filter) {
            (Filter::Ids(ids), Filter::Ids(more)) => ids.extend(more),
            (filter, new) => *filter = new,
        }
    }
}

/// One condition.
enum Filter {
    Ids(Vec<i64>),
    /// Of the type "pubsub", or not.
    Listens(bool),
    /// Of a type that does not exist here.
    Nobody,
    User(bool),
    Text(fn(&Client) -> String, String),
    MaxAge(u64),
    Idle(u64),
    Db(usize),
    Flags(String),
    /// The capabilities asked for, of which there is one.
    Capa(String),
}

impl Filter {
    fn accepts(&self, session: &Session, touched: bool, now: Millis) -> bool {
        let client = &session.client;
        let age = |since: Millis| now.saturating_sub(since) / 1000;
        match self {
            Self::Ids(ids) => ids.contains(&(client.id as i64)),
            Self::Listens(yes) => client.modes.has(Modes::SUBSCRIBED) == *yes,
            Self::Nobody => false,
            Self::User(yes) => *yes,
            // An empty field counts as one that was never set.
            Self::Text(field, wanted) => !wanted.is_empty() && field(client) == *wanted,
            Self::MaxAge(seconds) => age(client.created) >= *seconds,
            Self::Idle(seconds) => age(client.last_active) >= *seconds,
            Self::Db(db) => client.db == *db,
            Self::Flags(wanted) => {
                let flags = flags(session, touched);
                // A monitor counts as a replica, too, though it is not shown as one.
                wanted.chars().all(|flag| flags.contains(if flag == 'S' { 'O' } else { flag }))
            }
            Self::Capa(wanted) => wanted.is_empty() || client.modes.has(Modes::REDIRECT),
        }
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn parse_yes_no(value: &[u8]) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(Error::Syntax),
    }
}

fn checked_id(id: i64) -> Result<i64, Error> {
    if id < 1 {
        return Err(Error::text("ERR client-id should be greater than 0"));
    }
    Ok(id)
}

fn parse_number(what: &str, value: &[u8]) -> Result<i64, Error> {
    crate::args::parse_int(value).ok_or_else(|| not_a_number(what))
}

fn not_a_number(what: &str) -> Error {
    Error::owned(format!("ERR {what} is not an integer or out of range"))
}

fn parse_seconds(what: &str, value: &[u8]) -> Result<u64, Error> {
    match parse_number(what, value)? {
        number @ 1.. => Ok(number.unsigned_abs()),
        _ => Err(Error::owned(format!("ERR {what} should be greater than 0"))),
    }
}

/// Checks that a filter's letters are all among the `known`.
fn check_letters(what: &str, known: &[u8], value: &[u8], negative: bool) -> Result<(), Error> {
    if value.iter().all(|letter| known.contains(letter)) {
        return Ok(());
    }
    let place =
        if negative { format!("NOT-{} filter", what.to_uppercase()) } else { "provided filter".to_owned() };
    Err(Error::echo(&format!("ERR Unknown {what} found in the {place}: "), value, ""))
}

fn parse_filter(name: &[u8], value: &[u8], negative: bool, settings: &Settings) -> Result<Filter, Error> {
    /// The letters that CLIENT LIST can show.
    const FLAGS: &[u8] = b"AbBcdeEiIMNOPrRStTuUx";
    const CAPABILITIES: &[u8] = b"r";
    let wanted = text(value);
    Ok(match name {
        b"TYPE" => match value.to_ascii_lowercase().as_slice() {
            b"normal" => Filter::Listens(false),
            b"pubsub" => Filter::Listens(true),
            b"master" | b"primary" | b"replica" | b"slave" => Filter::Nobody,
            _ => return Err(Error::echo("ERR Unknown client type '", value, "'")),
        },
        b"USER" if value == b"default" => Filter::User(true),
        b"USER" => return Err(Error::echo("ERR No such user '", value, "'")),
        b"ADDR" => Filter::Text(|client| client.addr().to_owned(), wanted),
        b"LADDR" => Filter::Text(|client| client.laddr().to_owned(), wanted),
        b"NAME" => Filter::Text(|client| text(&client.name), wanted),
        b"LIB-NAME" => Filter::Text(|client| text(&client.lib_name), wanted),
        b"LIB-VER" => Filter::Text(|client| text(&client.lib_version), wanted),
        b"IP" => {
            let ip = |client: &Client| {
                let ip = client.addr().rsplit_once(':').map_or("", |(ip, _)| ip);
                ip.trim_start_matches('[').trim_end_matches(']').to_owned()
            };
            Filter::Text(ip, wanted)
        }
        b"MAXAGE" => Filter::MaxAge(parse_seconds("maxage", value)?),
        b"IDLE" => Filter::Idle(parse_seconds("idle", value)?),
        b"DB" => {
            let (last, what) = (settings.databases - 1, if negative { "NOT-DB" } else { "DB" });
            let number = i32::try_from(parse_number(what, value)?).map_err(|_| not_a_number(what))?;
            let db = usize::try_from(number).ok().filter(|db| *db <= last);
            let error = || Error::owned(format!("ERR {what} number should be between 0 and {last}"));
            Filter::Db(db.ok_or_else(error)?)
        }
        b"FLAGS" => {
            check_letters("flags", FLAGS, value, negative)?;
            Filter::Flags(wanted)
        }
        b"CAPA" => {
            check_letters("capa", CAPABILITIES, value, negative)?;
            Filter::Capa(wanted)
        }
        _ => return Err(Error::Syntax),
    })
}
