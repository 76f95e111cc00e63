//! CLIENT HELP: Valkey's words on what there is here.

use super::help;
use crate::args::Args;
use crate::ctx::SessionCtx;
use crate::errors::Error;
use corelane_resp::Reply;

const HELP: &[&str] = &[
    "CAPA <option> [options...]",
    "    The client claims its some capability options. Options are:",
    "    * REDIRECT",
    "      The client can handle redirection during primary and replica failover in standalone mode.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made from the specified address.",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made to the specified local address.",
    "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
    "      Kill connections by type.",
    "    * USER <username>",
    "      Kill connections authenticated by <username>.",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "    * ID <client-id> [<client-id>...]",
    "      Kill connections by client IDs.",
    "    * MAXAGE <maxage>",
    "      Kill connections older than the specified age.",
    "    * FLAGS <flags>",
    "      Kill connections that include the specified flags.",
    "    * NAME <client-name>",
    "      Kill connections with the specified name.",
    "    * IDLE <idle>",
    "      Kill connections with idle time greater than or equal to <idle> seconds.",
    "    * LIB-NAME <library-name>",
    "      Kill connections with the specified library name.",
    "    * LIB-VER <library-version>",
    "      Kill connections with the specified library version.",
    "    * DB <db-id>",
    "      Kill connections currently operating on the specified database ID.",
    "    * CAPA <capa>",
    "      Kill connections currently with the specified capa.",
    "    * IP <ip>",
    "      Kill connections made from the specified ip.",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "    * USER <username>",
    "      Return clients authenticated by <username>.",
    "    * ADDR <ip:port>",
    "      Return clients connected from the specified address.",
    "    * LADDR <ip:port>",
    "      Return clients connected to the specified local address.",
    "    * ID <client-id> [<client-id>...]",
    "      Return clients with the specified IDs.",
    "    * SKIPME (YES|NO)",
    "      Exclude the current client from the list (default: no).",
    "    * MAXAGE <maxage>",
    "      List connections older than the specified age.",
    "    * FLAGS <flags>",
    "      Return clients with the specified flags.",
    "    * NAME <client-name>",
    "      Return clients with the specified name.",
    "    * IDLE <idle>",
    "      Return clients with idle time greater than or equal to <idle> seconds.",
    "    * LIB-NAME <lib-name>",
    "      Return clients with the specified lib name.",
    "    * LIB-VER <lib-version>",
    "      Return clients with the specified lib version.",
    "    * DB <db-id>",
    "      Return clients currently operating on the specified database ID.",
    "    * CAPA <capa>",
    "      Return connections currently with the specified capa.",
    "    * IP <ip>",
    "      Return connections made from the specified ip.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are:",
    "    * LIB-NAME: the client lib name.",
    "    * LIB-VER: the client lib version.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "NO-EVICT (ON|OFF)",
    "    Protect current client connection from eviction.",
    "NO-TOUCH (ON|OFF)",
    "    Will not touch LRU/LFU stats when this mode is on.",
];

pub(super) fn show_help(_: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    help::write(HELP, args, reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn help_tells_what_there_is_and_nothing_else() {
        let client = super::super::all().find(|command| command.name == "client").expect("the command");
        let there: BTreeSet<String> = client
            .subcommands
            .iter()
            .map(|sub| sub.name.to_uppercase())
            .filter(|name| name != "HELP")
            .collect();
        let told: BTreeSet<String> = HELP
            .iter()
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect();
        assert_eq!(told, there);
    }
}
