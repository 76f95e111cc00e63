//! What versions of Redis and Valkey changed about commands, for COMMAND DOCS: facts about them, in their own words.

type Changes = &'static [(&'static str, &'static str)];

const RADIUS: Changes =
    &[("6.2.0", "Added the `ANY` option for `COUNT`."), ("7.0.0", "Added support for uppercase unit names.")];
const SEARCH: Changes = &[
    ("7.0.0", "Added support for uppercase unit names."),
    ("9.0.0", "Added support for the BYPOLYGON option."),
];

/// By full name, in the order of COMMAND DOCS: version and change.
const HISTORY: &[(&str, &[(&str, &str)])] = &[
    ("auth", &[("6.0.0", "Added ACL style (username and password).")]),
    (
        "bitcount",
        &[
            ("7.0.0", "Added the `BYTE|BIT` option."),
            ("8.0.0", "`end` made optional; when called without argument the command reports the last BYTE."),
        ],
    ),
    ("bitpos", &[("7.0.0", "Added the `BYTE|BIT` option.")]),
    (
        "client|kill",
        &[
            ("2.8.12", "Added new filter format."),
            ("2.8.12", "`ID` option."),
            ("3.2.0", "Added `master` type in for `TYPE` option."),
            (
                "5.0.0",
                "Replaced `slave` `TYPE` with `replica`. `slave` still supported for backward compatibility.",
            ),
            ("6.2.0", "`LADDR` option."),
            ("8.0.0", "`MAXAGE` option."),
            (
                "8.0.0",
                "Replaced `master` `TYPE` with `primary`. `master` still supported for backward compatibility.",
            ),
            ("8.1.0", "`ID` option accepts multiple IDs."),
            (
                "9.0.0",
                "Added filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA, and IP. And negative filters \
                        NOT-ID, NOT-TYPE, NOT-ADDR, NOT-LADDR, NOT-USER, NOT-FLAGS, NOT-NAME, NOT-LIB-NAME, \
                        NOT-LIB-VER, NOT-DB, NOT-CAPA, NOT-IP.",
            ),
        ],
    ),
    (
        "client|list",
        &[
            ("2.8.12", "Added unique client `id` field."),
            ("5.0.0", "Added optional `TYPE` filter."),
            ("6.0.0", "Added `user` field."),
            (
                "6.2.0",
                "Added `argv-mem`, `tot-mem`, `laddr` and `redir` fields and the optional `ID` filter.",
            ),
            ("7.0.0", "Added `resp`, `multi-mem`, `rbs` and `rbp` fields."),
            ("7.0.3", "Added `ssub` field."),
            (
                "8.0.0",
                "Replaced `master` `TYPE` with `primary`. `master` still supported for backward compatibility.",
            ),
            ("8.1.0", "Added filters USER, ADDR, LADDR, SKIPME, and MAXAGE."),
            (
                "9.0.0",
                "Added filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA, and IP. And negative filters \
                        NOT-ID, NOT-TYPE, NOT-ADDR, NOT-LADDR, NOT-USER, NOT-FLAGS, NOT-NAME, NOT-LIB-NAME, \
                        NOT-LIB-VER, NOT-DB, NOT-CAPA, NOT-IP.",
            ),
        ],
    ),
    ("client|pause", &[("6.2.0", "`CLIENT PAUSE WRITE` mode added along with the `mode` option.")]),
    ("command|info", &[("7.0.0", "Allowed to be called with no argument to get info on all commands.")]),
    ("config|get", &[("7.0.0", "Added the ability to pass multiple pattern parameters in one call")]),
    ("config|set", &[("7.0.0", "Added the ability to set multiple parameters in one call.")]),
    ("blpop", &[("6.0.0", "`timeout` is interpreted as a double instead of an integer.")]),
    ("brpop", &[("6.0.0", "`timeout` is interpreted as a double instead of an integer.")]),
    ("brpoplpush", &[("6.0.0", "`timeout` is interpreted as a double instead of an integer.")]),
    ("bzpopmax", &[("6.0.0", "`timeout` is interpreted as a double instead of an integer.")]),
    ("bzpopmin", &[("6.0.0", "`timeout` is interpreted as a double instead of an integer.")]),
    ("exists", &[("3.0.3", "Accepts multiple `key` arguments.")]),
    ("expire", &[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")]),
    ("expireat", &[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")]),
    (
        "flushall",
        &[
            ("4.0.0", "Added the `ASYNC` flushing mode modifier."),
            ("6.2.0", "Added the `SYNC` flushing mode modifier."),
        ],
    ),
    (
        "flushdb",
        &[
            ("4.0.0", "Added the `ASYNC` flushing mode modifier."),
            ("6.2.0", "Added the `SYNC` flushing mode modifier."),
        ],
    ),
    ("geoadd", &[("6.2.0", "Added the `CH`, `NX` and `XX` options.")]),
    ("georadius", RADIUS),
    ("georadius_ro", RADIUS),
    ("georadiusbymember", RADIUS),
    ("georadiusbymember_ro", RADIUS),
    ("geosearch", SEARCH),
    ("geosearchstore", SEARCH),
    ("hdel", &[("2.4.0", "Accepts multiple `field` arguments.")]),
    (
        "hello",
        &[
            (
                "8.1.0",
                "A new `availability_zone` field is added to the response if the `availability-zone` config is \
                        set.",
            ),
            (
                "6.2.0",
                "`protover` made optional; when called without arguments the command reports the current \
                        connection's context.",
            ),
        ],
    ),
    ("hset", &[("4.0.0", "Accepts multiple `field` and `value` arguments.")]),
    ("info", &[("7.0.0", "Added support for taking multiple section arguments.")]),
    ("lpop", &[("6.2.0", "Added the `count` argument.")]),
    ("lpush", &[("2.4.0", "Accepts multiple `element` arguments.")]),
    ("lpushx", &[("4.0.0", "Accepts multiple `element` arguments.")]),
    ("pexpire", &[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")]),
    ("pexpireat", &[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")]),
    ("pttl", &[("2.8.0", "Added the -2 reply.")]),
    (
        "renamenx",
        &[(
            "3.2.0",
            "The command no longer returns an error when source and destination names are the same.",
        )],
    ),
    (
        "restore",
        &[
            ("3.0.0", "Added the `REPLACE` modifier."),
            ("5.0.0", "Added the `ABSTTL` modifier."),
            ("5.0.0", "Added the `IDLETIME` and `FREQ` options."),
        ],
    ),
    ("rpop", &[("6.2.0", "Added the `count` argument.")]),
    ("rpush", &[("2.4.0", "Accepts multiple `element` arguments.")]),
    ("rpushx", &[("4.0.0", "Accepts multiple `element` arguments.")]),
    ("sadd", &[("2.4.0", "Accepts multiple `member` arguments.")]),
    ("scan", &[("6.0.0", "Added the `TYPE` subcommand.")]),
    (
        "set",
        &[
            ("2.6.12", "Added the `EX`, `PX`, `NX` and `XX` options."),
            ("6.0.0", "Added the `KEEPTTL` option."),
            ("6.2.0", "Added the `GET`, `EXAT` and `PXAT` option."),
            ("7.0.0", "Allowed the `NX` and `GET` options to be used together."),
            ("8.1.0", "Added the `IFEQ` option."),
        ],
    ),
    (
        "shutdown",
        &[
            ("7.0.0", "Added the `NOW`, `FORCE` and `ABORT` modifiers."),
            ("9.0.0", "Added the `SAFE` and `FAILOVER` modifiers."),
        ],
    ),
    ("slowlog|get", &[("4.0.0", "Added client IP address, port and name to the reply.")]),
    ("spop", &[("3.2.0", "Added the `count` argument.")]),
    ("srandmember", &[("2.6.0", "Added the optional `count` argument.")]),
    ("srem", &[("2.4.0", "Accepts multiple `member` arguments.")]),
    ("ttl", &[("2.8.0", "Added the -2 reply.")]),
    (
        "zadd",
        &[
            ("2.4.0", "Accepts multiple elements."),
            ("3.0.2", "Added the `XX`, `NX`, `CH` and `INCR` options."),
            ("6.2.0", "Added the `GT` and `LT` options."),
        ],
    ),
    ("zrange", &[("6.2.0", "Added the `REV`, `BYSCORE`, `BYLEX` and `LIMIT` options.")]),
    ("zrangebyscore", &[("2.0.0", "Added the `WITHSCORES` modifier.")]),
    ("zrank", &[("7.2.0", "Added the optional `WITHSCORE` argument.")]),
    ("zrem", &[("2.4.0", "Accepts multiple elements.")]),
    ("zrevrangebyscore", &[("2.1.6", "`min` and `max` can be exclusive.")]),
    ("zrevrank", &[("7.2.0", "Added the optional `WITHSCORE` argument.")]),
    ("zscan", &[("8.0.0", "Added noscores option.")]),
];

/// The changes of a command, given by its full name.
pub(super) fn history(name: &str) -> &'static [(&'static str, &'static str)] {
    HISTORY.iter().find(|(other, _)| *other == name).map_or(&[], |(_, changes)| changes)
}

#[cfg(test)]
mod tests {
    use super::HISTORY;
    use crate::commands::command_names::Names;

    #[test]
    fn only_commands_have_a_history() {
        for (name, changes) in HISTORY {
            assert!(Names(&[]).find_full(name.as_bytes()).is_some() && !changes.is_empty(), "{name}");
        }
    }
}
