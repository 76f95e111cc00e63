//! COMMAND INFO, DOCS and LIST of every command both servers know: equal but for what they cost and for subcommands that are not
//! there yet. And CLIENT LIST of several connections.

use std::collections::{BTreeMap, BTreeSet};

use super::peers::SHARD_COUNTS;
use crate::common::client::{Client, Outcome};
use crate::common::compare;
use crate::common::resp::Value;
use crate::common::server::{self, Server};
use crate::common::words;

/// What the server must have by now; commands beyond these are compared as well.
const COMMANDS: &str = "get set setnx setex psetex getset getdel getex mget mset msetnx msetex append strlen getrange \
    substr setrange incr decr incrby decrby incrbyfloat lcs delifeq del unlink exists type touch ttl pttl expire pexpire \
    expireat pexpireat expiretime pexpiretime persist keys scan randomkey rename renamenx copy move swapdb dbsize flushdb \
    flushall select ping echo quit reset hello client client|id client|info client|list client|setname client|getname \
    client|setinfo client|kill client|no-evict client|no-touch client|reply client|unblock client|pause client|unpause \
    client|getredir client|trackinginfo client|capa client|help monitor command command|count command|docs command|info command|list command|getkeys info config config|get \
    time debug object object|encoding slowlog slowlog|get slowlog|help slowlog|len slowlog|reset commandlog commandlog|get \
    commandlog|help commandlog|len commandlog|reset latency latency|doctor latency|graph latency|help latency|histogram \
    latency|history latency|latest latency|reset \
     hset hsetnx hmset hget hmget hgetall hkeys hvals hlen hstrlen hexists hdel hincrby hincrbyfloat hrandfield hscan hexpire \
     hpexpire hexpireat hpexpireat httl hpttl hexpiretime hpexpiretime hpersist hgetex hsetex hgetdel \
     zadd zincrby zrem zremrangebyrank zremrangebyscore zremrangebylex zpopmin zpopmax zcard zscore zmscore \
     zrank zrevrank zcount zlexcount zrange zrevrange zrangebyscore zrevrangebyscore zrangebylex zrevrangebylex zrandmember zscan \
     zmpop bzpopmin bzpopmax bzmpop zrangestore zunion zinter zdiff zintercard zunionstore zinterstore zdiffstore \
     pfadd pfcount pfmerge pfdebug pfselftest \
     geoadd geodist geohash geopos geosearch geosearchstore georadius georadius_ro georadiusbymember georadiusbymember_ro";

/// Index of the subcommands in an entry of COMMAND INFO.
const SUBCOMMANDS: usize = 9;
/// Indexes of the flags and the ACL categories, whose order means nothing.
const UNORDERED: [usize; 2] = [2, 6];
/// Fields of COMMAND DOCS that need not be equal: what a command costs here is not what it costs in Valkey.
const OURS: [&str; 1] = ["complexity"];

struct Pair {
    _servers: [Server; 2],
    ours: Client,
    valkey: Client,
}

impl Pair {
    fn start(proto: u8) -> Option<Self> {
        let valkey = Server::valkey()?;
        let ours = Server::ours(1);
        let mut pair = Self { ours: ours.client(), valkey: valkey.client(), _servers: [ours, valkey] };
        if proto == 3 {
            pair.ours.run("HELLO 3");
            pair.valkey.run("HELLO 3");
        }
        Some(pair)
    }

    /// The names both servers list.
    fn common_names(&mut self) -> Vec<String> {
        let ours = names(&mut self.ours);
        let valkey = names(&mut self.valkey);
        ours.intersection(&valkey).cloned().collect()
    }
}

fn names(client: &mut Client) -> BTreeSet<String> {
    client.run("COMMAND LIST").items().iter().map(Value::text).collect()
}

#[test]
fn every_command_of_the_list_is_there() {
    let server = Server::ours(2);
    let mut client = server.client();
    let known = names(&mut client);
    let missing: Vec<&str> = COMMANDS.split_whitespace().filter(|name| !known.contains(*name)).collect();
    assert!(missing.is_empty(), "COMMAND LIST lacks {missing:?}");
    let count = client.run("COMMAND COUNT").int();
    let top_level = known.iter().filter(|name| !name.contains('|')).count();
    assert_eq!(count, top_level as i64, "COMMAND COUNT against COMMAND LIST");
    assert_eq!(client.run("COMMAND").items().len(), top_level, "COMMAND");
}

#[test]
fn command_info_is_equal() {
    for proto in [2, 3] {
        let Some(mut pair) = Pair::start(proto) else { return };
        let mut found = Vec::new();
        for name in pair.common_names() {
            let line = format!("COMMAND INFO {name}");
            let ours = pair.ours.run(&line).items()[0].clone();
            let theirs = pair.valkey.run(&line).items()[0].clone();
            compare_info(&name, &ours, &theirs, &mut found);
        }
        assert!(found.is_empty(), "RESP{proto}: {} differences:\n{}", found.len(), found.join("\n"));
    }
}

fn compare_info(name: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    let (ours, theirs) = (ours.items(), theirs.items());
    if ours.len() != theirs.len() {
        found.push(format!("{name}: {} fields, Valkey {}", ours.len(), theirs.len()));
        return;
    }
    for at in 0..SUBCOMMANDS {
        let field =
            |items: &[Value]| if UNORDERED.contains(&at) { sorted(&items[at]) } else { items[at].clone() };
        if field(&ours) != field(&theirs) {
            found.push(format!("{name}: field {at}: {:?}\n    Valkey: {:?}", ours[at], theirs[at]));
        }
    }
    let by_name = |value: &Value| -> BTreeMap<String, Value> {
        value.items().into_iter().map(|entry| (entry.items()[0].text(), entry)).collect()
    };
    let known = by_name(&theirs[SUBCOMMANDS]);
    for (subcommand, entry) in by_name(&ours[SUBCOMMANDS]) {
        if let Some(other) = known.get(&subcommand) {
            compare_info(&subcommand, &entry, other, found);
        }
    }
}

/// The value with its elements sorted; its type stays.
fn sorted(value: &Value) -> Value {
    let mut items = value.items();
    items.sort();
    match value {
        Value::Set(_) => Value::Set(items),
        _ => Value::Array(items),
    }
}

#[test]
fn command_docs_are_equal() {
    for proto in [2, 3] {
        let Some(mut pair) = Pair::start(proto) else { return };
        let mut found = Vec::new();
        for name in pair.common_names().iter().filter(|name| !name.contains('|')) {
            let line = format!("COMMAND DOCS {name}");
            let ours = pair.ours.run(&line);
            let theirs = pair.valkey.run(&line);
            let (Some(ours), Some(theirs)) = (ours.field(name), theirs.field(name)) else {
                found.push(format!("{name}: no entry: {ours:?}"));
                continue;
            };
            compare_docs(name, &ours, &theirs, &mut found);
        }
        assert!(found.is_empty(), "RESP{proto}: {} differences:\n{}", found.len(), found.join("\n"));
    }
}

fn compare_docs(name: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    let fields = |value: &Value| -> Vec<(String, Value)> {
        let all = value.pairs().into_iter().map(|(field, value)| (field.text(), value));
        all.filter(|(field, _)| !OURS.contains(&field.as_str())).collect()
    };
    let (ours, theirs) = (fields(ours), fields(theirs));
    let names =
        |fields: &[(String, Value)]| -> Vec<String> { fields.iter().map(|(name, _)| name.clone()).collect() };
    if names(&ours) != names(&theirs) {
        found.push(format!("{name}: fields {:?}\n    Valkey: {:?}", names(&ours), names(&theirs)));
        return;
    }
    for ((field, ours), (_, theirs)) in ours.into_iter().zip(theirs) {
        if field == "subcommands" {
            for (subcommand, entry) in ours.pairs() {
                if let Some(other) = theirs.field(&subcommand.text()) {
                    compare_docs(&subcommand.text(), &entry, &other, found);
                }
            }
        } else if field == "arguments" && argument_tree(&ours) == argument_tree(&theirs) {
            continue;
        } else if ours != theirs {
            found.push(format!("{name}: {field}: {ours:?}\n    Valkey: {theirs:?}"));
        }
    }
}

/// The arguments without what only people read.
fn argument_tree(arguments: &Value) -> Vec<Vec<(String, Value)>> {
    const UNUSED: [&str; 1] = ["summary"];
    let describe = |argument: Value| {
        let fields = argument.pairs().into_iter().map(|(name, value)| (name.text(), value));
        let kept = fields.filter(|(name, _)| !UNUSED.contains(&name.as_str()));
        kept.map(|(name, value)| match name.as_str() {
            "arguments" => (format!("{:?}", argument_tree(&value)), Value::Null),
            _ => (name, value),
        })
        .collect()
    };
    arguments.items().into_iter().map(describe).collect()
}

#[test]
fn command_list_filters_agree() {
    let Some(mut pair) = Pair::start(2) else { return };
    let common: BTreeSet<String> = pair.common_names().into_iter().collect();
    let categories = "keyspace read write set sortedset list hash string bitmap hyperloglog geo stream pubsub admin fast slow \
        blocking dangerous connection transaction scripting";
    let by_category = categories.split_whitespace().map(|category| format!("ACLCAT {category}"));
    let by_pattern =
        ["*", "get*", "GET*", "?et", "client|*", "m[gs]et"].map(|pattern| format!("PATTERN {pattern}"));
    for filter in by_category.chain(by_pattern) {
        let mut filtered = |client: fn(&mut Pair) -> &mut Client| -> Vec<String> {
            let reply = client(&mut pair).run(&format!("COMMAND LIST FILTERBY {filter}"));
            let mut names: Vec<String> = reply.items().iter().map(Value::text).collect();
            names.retain(|name| common.contains(name));
            names.sort();
            names
        };
        assert_eq!(filtered(|pair| &mut pair.ours), filtered(|pair| &mut pair.valkey), "{filter}");
    }
}

#[test]
fn client_list_shows_every_connection_and_its_state() {
    let Some(valkey) = Server::valkey() else { return };
    for shards in SHARD_COUNTS {
        let ours = Server::ours(shards);
        let lists = [&ours, &valkey].map(|server| {
            let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
            for (number, client) in clients.iter_mut().enumerate() {
                client.run(&format!("CLIENT SETNAME name-{number}"));
                client.run(&format!("SELECT {number}"));
            }
            clients[1].run("HELLO 3");
            clients[2].run("CLIENT SETINFO lib-name some-lib");
            clients[3].run("GET x");
            // The connection that waited for the server to start may still be there.
            let list = server::poll(5000, || {
                let outcome = clients[0].call(&words::parse("CLIENT LIST"));
                let lines = outcome.value().expect("a reply").text().lines().count();
                (lines == clients.len()).then_some(outcome)
            });
            list.expect("a list of four connections")
        });
        let [ours, theirs] = lists.map(by_name);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert!(
                compare::same(&words::parse("CLIENT LIST"), ours, theirs, 0),
                "{ours:?}\nValkey: {theirs:?}"
            );
        }
    }
}

/// The lines of a CLIENT LIST as replies of their own, in the order of the connections' names.
fn by_name(list: Outcome) -> Vec<Outcome> {
    let text = list.value().expect("a reply").text();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_by_key(|line| line.split(' ').find(|word| word.starts_with("name=")));
    lines.iter().map(|line| Outcome::Reply(format!("+{line}\r\n").into_bytes())).collect()
}

/// Fields of Valkey's INFO that are not here, by the letters they begin with: what Valkey says of its own build, loop, modules and
/// certificates; what nobody counts here, and is not zero for that (changes since the last of no savings, time above a `maxmemory`
/// that is no limit, keys that have expired and are still there, the time that removing them takes, buffers that grow).
const NOT_HERE: &str = "valkey_ gcc_ hz configured_hz clients_hz tls_ rdb_changes module expired_stale expired_keys_with \
    expire_cycle total_eviction current_eviction dump_payload reply_buffer used_active_time engine";

/// Fields of an INFO reply, by section. What differs by number or command is left out.
fn info_fields(client: &mut Client) -> BTreeMap<String, BTreeSet<String>> {
    const BY_COMMAND: [&str; 3] = ["cmdstat_", "errorstat_", "latency_percentiles_"];
    let text = client.run("INFO everything").text();
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(heading) = line.strip_prefix("# ") {
            section = heading.to_owned();
            sections.entry(section.clone()).or_default();
        } else if let Some((name, _)) = line.split_once(':')
            && !BY_COMMAND.iter().any(|prefix| name.starts_with(prefix))
        {
            sections.entry(section.clone()).or_default().insert(name.to_owned());
        }
    }
    sections
}

#[test]
fn info_has_every_field_that_means_something_here() {
    let Some(mut pair) = Pair::start(2) else { return };
    for client in [&mut pair.ours, &mut pair.valkey] {
        client.check("SET k v EX 100", "+OK\r\n");
        client.run("NOSUCH");
    }
    let (ours, theirs) = (info_fields(&mut pair.ours), info_fields(&mut pair.valkey));
    let mut unused: BTreeSet<&str> = NOT_HERE.split_whitespace().collect();
    let mut missing = Vec::new();
    for (section, names) in &theirs {
        for name in names {
            let known = ours.get(section).is_some_and(|ours| ours.contains(name));
            let passed_over = NOT_HERE.split_whitespace().find(|prefix| name.starts_with(prefix));
            if let Some(prefix) = passed_over {
                unused.remove(prefix);
            } else if !known {
                missing.push(format!("{section}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "INFO lacks {missing:#?}");
    assert!(unused.is_empty(), "nothing in Valkey's INFO begins with {unused:?}");
}

#[test]
fn memory_stats_have_valkeys_fields() {
    let Some(mut pair) = Pair::start(3) else { return };
    let fields = |client: &mut Client| -> Vec<(String, &'static str)> {
        client.check("SET k v EX 100", "+OK\r\n");
        let kind = |value: &Value| match value {
            Value::Map(_) => "map",
            Value::Double(_) => "double",
            _ => "other",
        };
        let pairs = client.run("MEMORY STATS").pairs();
        pairs.iter().map(|(name, value)| (name.text(), kind(value))).collect()
    };
    assert_eq!(fields(&mut pair.ours), fields(&mut pair.valkey));
}
