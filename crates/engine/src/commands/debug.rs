//! DEBUG: looks into the server and provokes faults, for tests of servers and clients.
//!
//! To clients DEBUG is one command: its subcommands are hidden, and all their errors are worded alike.

use super::object::encoding_name;
use super::{debug_reload, debug_tables, help};
use crate::args::{Args, parse_int};
use crate::command::{Command, Flags, Flow, KeyFlags, KeySpec, Merge, Plan, Scope};
use crate::config::amount;
use crate::ctx::{Ctx, HostRequest, PartResult, Payload, SessionCtx};
use crate::digest::{DatasetDigest, Digest, value_digest};
use crate::errors::{Error, echoed};
use crate::execute::shard_of;
use crate::keyspace::NewValue;
use crate::rdb::Checksums;
use crate::session::Client;
use crate::settings::Settings;
use crate::slot::Slot;
use corelane_resp::{Proto, Reply};

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

/// What DEBUG PROTOCOL answers for a double.
#[expect(clippy::approx_constant, reason = "it is Valkey's number, not an approximation of anything")]
const PROTOCOL_DOUBLE: f64 = 3.141;
/// Entries that one step of DEBUG DIGEST looks at.
const DIGESTED_PER_STEP: usize = 256;
/// Keys that one step of DEBUG POPULATE makes or leaves to other shards.
const POPULATED_PER_STEP: u64 = 1024;
/// The largest argument of DEBUG QUICKLIST-PACKED-THRESHOLD.
const THRESHOLD_MAX: usize = (4 << 30) - (1 << 20);
/// Longer names of keys are cut to this by DEBUG POPULATE, as in Valkey.
const POPULATED_KEY_MAX: usize = 127;

/// A form of the command that does not exist.
fn unknown(_: &mut SessionCtx<'_>, args: Args<'_>, _: &mut Reply) -> Result<(), Error> {
    Err(super::subcommand_syntax_error(args))
}

const fn hidden(name: &'static str, arity: i16, plan: Plan) -> Command {
    Command { name, arity, flags: ADMIN, plan, group: "server", ..Command::DEFAULT }
}

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "debug",
    arity: -2,
    flags: ADMIN,
    permit: Some(permit),
    group: "server",
    summary: "A container for debugging commands.",
    complexity: "Depends on subcommand.",
    doc_flags: &["syscmd"],
    subcommands_hidden: true,
    plan: Plan::Session(unknown),
    subcommands: &[
        Command {
            scope: Scope::Whole,
            ..hidden("digest", 2, Plan::EachShard { part: digest, merge: Merge::With(write_digest) })
        },
        Command {
            keys: &[KeySpec::all_from(2, 1, KeyFlags::RO)],
            ..hidden("digest-value", -2, Plan::EachShard { part: digest_value, merge: Merge::InKeyOrder })
        },
        hidden("error", 3, Plan::Session(error)),
        hidden("help", 2, Plan::Session(show_help)),
        Command {
            scope: Scope::Whole,
            check: Some(debug_tables::check_database),
            ..hidden(
                "htstats",
                -3,
                Plan::EachShard {
                    part: debug_tables::of_database,
                    merge: Merge::With(debug_tables::write_database),
                },
            )
        },
        Command {
            keys: &[KeySpec::one(2, KeyFlags::RO)],
            ..hidden("htstats-key", -3, Plan::OneShard(debug_tables::of_key))
        },
        hidden("log", 3, Plan::Session(log)),
        Command { keys: &[KeySpec::one(2, KeyFlags::RO)], ..hidden("object", -3, Plan::OneShard(object)) },
        hidden("panic", -2, Plan::Session(panic)),
        Command {
            flags: ADMIN.with(Flags::WRITE),
            scope: Scope::Whole,
            check: Some(check_populate),
            ..hidden("populate", -3, Plan::EachShard { part: populate, merge: Merge::AllOk })
        },
        hidden("protocol", 3, Plan::Session(protocol)),
        Command {
            scope: Scope::Nothing,
            check: Some(check_threshold),
            ..hidden(
                "quicklist-packed-threshold",
                3,
                Plan::EachShard { part: set_threshold, merge: Merge::AllOk },
            )
        },
        Command {
            flags: ADMIN.with(Flags::WRITE),
            scope: Scope::Whole,
            check: Some(debug_reload::check),
            ..hidden("reload", -2, Plan::EachShard { part: debug_reload::reload, merge: Merge::AllOk })
        },
        Command {
            scope: Scope::Nothing,
            ..hidden("set-active-expire", 3, Plan::EachShard { part: set_active_expire, merge: Merge::AllOk })
        },
        Command {
            scope: Scope::Nothing,
            ..hidden(
                "set-skip-checksum-validation",
                3,
                Plan::EachShard { part: skip_checksums, merge: Merge::AllOk },
            )
        },
        hidden("sleep", 3, Plan::Routed { route: |_| Ok(Slot(0)), run: sleep }),
    ],
    ..Command::DEFAULT
}];

const HELP: &[&str] = &[
    "DIGEST",
    "    Output a hex signature representing the current DB content.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Output a hex signature of the values of all the specified keys.",
    "ERROR <string>",
    "    Return a RESP protocol error with <string> as message. Useful for clients",
    "    unit tests to simulate error replies.",
    "HTSTATS <dbid> [full]",
    "    Return hash table statistics of the specified database.",
    "HTSTATS-KEY <key> [full]",
    "    Like HTSTATS but for the hash table stored at <key>'s value.",
    "LOG <message>",
    "    Write <message> to the server log.",
    "OBJECT <key> [fast]",
    "    Show low level info about `key` and associated value.",
    "    Some fields of the default behavior may be time consuming to fetch,",
    "    and `fast` can be passed to avoid fetching them.",
    "PANIC",
    "    Crash the server simulating a panic.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Create <count> string keys named key:<num>. If <prefix> is specified then",
    "    it is used instead of the 'key' prefix.",
    "PROTOCOL <type>",
    "    Reply with a test value of the specified type. <type> can be: string,",
    "    integer, double, bignum, null, array, set, map, attrib, push, verbatim,",
    "    true, false.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    Sets the threshold for elements to be inserted as plain vs packed nodes.",
    "    Allows values up to 4GB. Setting to 0 restores to default.",
    "RELOAD",
    "    Write all values as RDB has them and read them again, in memory. Options of",
    "    Valkey's, which are about its file, are refused.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Setting it to 0 disables expiring keys in background when they are not",
    "    accessed (otherwise the behavior). Setting it to 1 reenables back the",
    "    default.",
    "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
    "    Enables or disables checksum checks for RESTORE's payload.",
    "SLEEP <seconds>",
    "    Stop the server for <seconds>. Decimals allowed.",
];

/// DEBUG is for those whom `enable-debug-command` allows it: nobody, everybody, or clients on this machine.
fn permit(client: &Client, _: Args<'_>, settings: &Settings) -> Result<(), Error> {
    settings.config.allows("enable-debug-command", client).then_some(()).ok_or(Error::text(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local \
         connection, otherwise you need to set this option in the configuration file, and then restart the server.",
    ))
}

fn show_help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    help::write(HELP, args, reply);
    Ok(())
}

fn panic(_: &mut SessionCtx<'_>, _: Args<'_>, _: &mut Reply) -> Result<(), Error> {
    panic!("DEBUG PANIC asked for this");
}

fn sleep(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    // Like strtod: what is not a number sleeps for no time.
    let text = std::str::from_utf8(args.at(2)).unwrap_or("");
    let seconds: f64 = text.parse().unwrap_or(0.0);
    let us = (seconds.clamp(0.0, 1e6) * 1e6) as u64;
    ctx.shard.host_requests.push_back(HostRequest::SleepUs(us));
    ctx.shard.timing.add_us(us);
    reply.ok();
    Ok(Flow::Done)
}

fn log(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let text = String::from_utf8_lossy(echoed(args.at(2))).into_owned();
    ctx.shard.host_requests.push_back(HostRequest::Log(format!("DEBUG LOG: {text}")));
    reply.ok();
    Ok(())
}

fn error(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.raw(b"-");
    let line: Vec<u8> =
        args.at(2).iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect();
    reply.raw(&line);
    reply.raw(b"\r\n");
    Ok(())
}

/// A value of each type of RESP.
fn protocol(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    match args.at(2).to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.int(12345),
        b"double" => reply.double(PROTOCOL_DOUBLE),
        b"bignum" => reply.bignum("1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.int(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.int(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.int(number);
                reply.bool(number == 1);
            }
        }
        b"attrib" => {
            if reply.proto() == Proto::Resp3 {
                reply.raw(b"|1\r\n");
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.int(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if reply.proto() == Proto::Resp2 => {
            return Err(Error::text("ERR RESP2 is not supported by this command"));
        }
        b"push" => {
            // A push message in the middle of a command comes behind its reply, as in Valkey.
            reply.bulk(b"Some real reply following the push reply");
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
        }
        b"true" => reply.bool(true),
        b"false" => reply.bool(false),
        b"verbatim" => reply.verbatim("txt", "This is a verbatim\nstring"),
        _ => {
            return Err(Error::text(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

/// `serializedlength` is that of the plain string in Redis's dump format, without its compression.
fn object(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    if args.len() > 4 {
        return Err(super::subcommand_syntax_error(args));
    }
    let (key, now) = (ctx.key(args.at(2)), ctx.now);
    let entry = ctx.find(key).ok_or(Error::NoSuchKey)?;
    let access = entry.access();
    let mut text =
        format!("Value at:{:p} refcount:1 encoding:{}", entry.key().as_ptr(), encoding_name(&entry));
    if !(args.len() == 4 && args.is(3, "fast")) {
        let len = entry.string().map_or(0, <[u8]>::len);
        let length_prefix = match len {
            0..64 => 1,
            64..16384 => 2,
            _ => 5,
        };
        text.push_str(&format!(" serializedlength:{}", len + length_prefix));
    }
    drop(entry);
    let policy = &ctx.shard.keyspace.access;
    if let Some(idle_s) = policy.idle_s(access, now) {
        text.push_str(&format!(" lru:{} lru_seconds_idle:{idle_s}", access.seconds()));
    }
    if let Some(frequency) = policy.frequency(access, now) {
        text.push_str(&format!(" lfu_freq:{frequency} lfu_access_time_minutes:{}", access.minutes()));
    }
    reply.simple(&text);
    Ok(Flow::Done)
}

/// From which length on an element of a long list gets a piece of its own.
fn threshold(args: Args<'_>) -> Result<usize, Error> {
    let text = std::str::from_utf8(args.at(2)).ok();
    let size = text.and_then(amount).and_then(|size| usize::try_from(size).ok());
    size.filter(|size| *size <= THRESHOLD_MAX)
        .ok_or(Error::text("ERR argument must be a memory value bigger than 1 and smaller than 4gb"))
}

fn check_threshold(args: Args<'_>, _: &Settings) -> Result<(), Error> {
    threshold(args).map(drop)
}

fn set_threshold(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    ctx.shard.settings.compact.list_size.alone_bytes_min = threshold(args)?;
    reply.ok();
    Ok(Flow::Done)
}

/// Whether a text is a number other than 0. Like atoi: what does not begin with a number is 0.
fn is_nonzero(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    digits.iter().take_while(|byte| byte.is_ascii_digit()).any(|byte| *byte != b'0')
}

fn set_active_expire(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    ctx.shard.keyspace.expires_actively = is_nonzero(args.at(2));
    reply.ok();
    Ok(Flow::Done)
}

fn skip_checksums(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    ctx.shard.checksums = if is_nonzero(args.at(2)) { Checksums::Ignored } else { Checksums::Checked };
    reply.ok();
    Ok(Flow::Done)
}

fn write_hex(digest: &Digest, reply: &mut Reply) {
    let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    reply.simple(&text);
}

fn digest_value(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    for idx in ctx.keys.indices() {
        let key = ctx.key(args.at(idx));
        let now = ctx.now;
        let digest =
            ctx.find(key).map_or(Digest::default(), |entry| value_digest(Digest::default(), &entry, now));
        write_hex(&digest, reply);
    }
    Ok(Flow::Done)
}

/// One step; what has been found so far is in the payload.
fn digest(ctx: &mut Ctx<'_>, _: Args<'_>, _: &mut Reply) -> Result<Flow, Error> {
    let mut found = match std::mem::take(&mut ctx.payload) {
        Payload::Digest(found) => found,
        _ => Box::new(DatasetDigest::new(ctx.shard.keyspace.databases())),
    };
    let more = found.step(&ctx.shard.keyspace, DIGESTED_PER_STEP, ctx.now);
    ctx.payload = Payload::Digest(found);
    Ok(if more { Flow::Again(1) } else { Flow::Done })
}

fn write_digest(parts: &[PartResult], _: Args<'_>, reply: &mut Reply) {
    let digests = parts.iter().filter_map(|part| match &part.payload {
        Payload::Digest(digest) => Some(&**digest),
        _ => None,
    });
    write_hex(&DatasetDigest::merged(digests), reply);
}

/// How many keys to make, and how long their values; 0 for as they come.
fn parse_populate(args: Args<'_>, settings: &Settings) -> Result<(u64, usize), Error> {
    if args.len() > 5 {
        return Err(super::subcommand_syntax_error(args));
    }
    let number = |idx| parse_int(args.at(idx)).and_then(|n| u64::try_from(n).ok()).ok_or(Error::NotPositive);
    let count = number(2)?;
    let size = if args.len() == 5 { number(4)? as usize } else { 0 };
    if size > settings.proto_max_bulk_len {
        return Err(Error::StringTooLong);
    }
    Ok((count, size))
}

fn check_populate(args: Args<'_>, settings: &Settings) -> Result<(), Error> {
    parse_populate(args, settings).map(drop)
}

/// One step: makes the keys of the next few numbers that are this shard's and not there.
fn populate(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<Flow, Error> {
    let (count, size) = parse_populate(args, &ctx.shard.settings)?;
    let prefix = echoed(args.get(3).unwrap_or(b"key"));
    let end = count.min(ctx.resume + POPULATED_PER_STEP);
    for number in ctx.resume..end {
        let mut name = [prefix, b":", number.to_string().as_bytes()].concat();
        name.truncate(POPULATED_KEY_MAX);
        if shard_of(ctx.shard, &name) != ctx.shard.me {
            continue;
        }
        let key = ctx.key(&name);
        if ctx.find(key).is_none() {
            let mut value = format!("value:{number}").into_bytes();
            if size != 0 {
                value.resize(size, 0);
            }
            ctx.set(key, NewValue::Slice(&value), None);
        }
    }
    if end < count {
        return Ok(Flow::Again(end));
    }
    reply.ok();
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};

    #[test]
    fn digests_are_valkeys_and_do_not_depend_on_the_shards() {
        check_all(&[
            ("DEBUG DIGEST", "+0000000000000000000000000000000000000000"),
            ("SET a b\nSET n 1\nDEBUG DIGEST-VALUE", "+OK\n+OK\n[]"),
            (
                "DEBUG DIGEST-VALUE a n nokey",
                "[+b78559cd22bce6e6df712eb99ce7f3b08e8f8f1f, +b4fc66738120fba0b5aa500ab5c2bf89cea1c5da, \
                 +0000000000000000000000000000000000000000]",
            ),
            (
                "DEBUG POPULATE 3\nDEBUG POPULATE 3 foo\nDEBUG POPULATE 3 bar 10\nDEBUG POPULATE 1 bar2 3",
                "+OK\n+OK\n+OK\n+OK",
            ),
            ("DEBUG DIGEST", "+7f1783c574b0fc1083fd407a0581a30dd367bb5c"),
            ("SELECT 3\nSET x y EX 100", "+OK\n+OK"),
            ("DEBUG DIGEST", "+e561aad0a96c3dc48065cd576e5bc57a135e6506"),
        ]);
    }

    #[test]
    fn keys_are_made_by_number() {
        check_all(&[
            ("SET key:7 mine\nDEBUG POPULATE 5000\nDBSIZE\nGET key:7", "+OK\n+OK\n:5000\n\"mine\""),
            ("GET key:4999\nEXISTS key:5000\nDEBUG POPULATE 0", "\"value:4999\"\n:0\n+OK"),
            ("DEBUG POPULATE 2 b 10\nGET b:1", "+OK\n\"value:1\\x00\\x00\\x00\""),
            (
                "DEBUG POPULATE x\nDEBUG POPULATE 1 a -1",
                &["-ERR value is out of range, must be positive"; 2].join("\n"),
            ),
        ]);
    }

    #[test]
    fn hidden_subcommands_are_refused_alike() {
        let refused = |name: &str| {
            format!("-ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP.")
        };
        for (line, name) in [
            ("DEBUG xyz", "xyz"),
            ("DEBUG DIGEST x", "DIGEST"),
            ("DEBUG sleep", "sleep"),
            ("DEBUG OBJECT", "OBJECT"),
            ("DEBUG OBJECT a b c", "OBJECT"),
            ("DEBUG POPULATE 1 2 3 4", "POPULATE"),
            ("DEBUG HELP x", "HELP"),
            ("DEBUG LOADAOF", "LOADAOF"),
        ] {
            check_all(&[(line, &refused(name))]);
        }
        check_all(&[
            ("DEBUG", "-ERR wrong number of arguments for 'debug' command"),
            ("COMMAND GETKEYS DEBUG OBJECT x", "-ERR The command has no key arguments"),
            ("COMMAND LIST FILTERBY PATTERN debug*", "[\"debug\"]"),
        ]);
    }

    #[test]
    fn every_type_of_reply_can_be_had() {
        check_all(&[
            ("DEBUG PROTOCOL double\nDEBUG PROTOCOL null\nDEBUG PROTOCOL true", "\"3.141\"\nnil\n:1"),
            ("DEBUG PROTOCOL push", "-ERR RESP2 is not supported by this command"),
            ("DEBUG ERROR \"CODE text\"", "-CODE text"),
        ]);
        let mut bench = Bench::new(2);
        bench.run("HELLO 3");
        for (kind, reply) in [
            ("bignum", "(1234567999999999999999999999999999999"),
            ("set", "~{:0, :1, :2}"),
            ("map", "{:0: #f, :1: #t, :2: #f}"),
            ("attrib", "\"Some real reply following the attribute\""),
            ("verbatim", "=This is a verbatim\\nstring"),
            ("FALSE", "#f"),
        ] {
            assert_eq!(bench.run(&format!("DEBUG PROTOCOL {kind}")), reply);
        }
        let pushed = bench.exchange(b"DEBUG PROTOCOL push\r\n");
        assert!(pushed.ends_with(b">2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n"), "{}", pushed.escape_ascii());
    }

    #[test]
    fn without_active_expiry_keys_stay_until_somebody_looks() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            bench.run("DEBUG SET-ACTIVE-EXPIRE 0\nDEBUG POPULATE 10\nPEXPIRE key:3 5");
            bench.now += 100;
            assert_eq!(bench.run("DBSIZE\nGET key:3\nDBSIZE\nPEXPIRE key:4 5"), ":10\nnil\n:9\n:1");
            bench.now += 100;
            assert_eq!(bench.run("DBSIZE\nDEBUG SET-ACTIVE-EXPIRE 1\nPING\nDBSIZE"), ":9\n+OK\n+PONG\n:8");
        }
    }
}
