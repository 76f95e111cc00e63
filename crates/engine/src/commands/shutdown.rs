//! SHUTDOWN: the orderly end of the server. Nothing is saved, because nothing can be yet.

use crate::args::Args;
use crate::command::{Command, Flags, Plan};
use crate::ctx::{HostRequest, SessionCtx};
use crate::errors::Error;
use crate::session::CloseWhen;
use corelane_resp::Reply;

const FLAGS: Flags = Flags::ADMIN
    .with(Flags::NOSCRIPT)
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::NO_MULTI)
    .with(Flags::ALLOW_BUSY);

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "shutdown",
    arity: -1,
    flags: FLAGS,
    plan: Plan::Session(shutdown),
    group: "server",
    summary: "Synchronously saves the database(s) to disk and shuts down the server.",
    complexity: "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)",
    syntax: "[([NOSAVE | SAVE] #save-selector [NOW] @7.0.0 [FORCE] @7.0.0 [SAFE] @9.0.0 [FAILOVER] @9.0.0) \
        #save-selector-block | ABORT @7.0.0] #abort-selector",
    ..Command::DEFAULT
}];

/// What SHUTDOWN is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    nosave: bool,
    save: bool,
    force: bool,
    failover: bool,
    /// NOW and SAFE, which ask for what happens anyway: there are no replicas to wait for, and no slots to lose.
    others: bool,
    abort: bool,
}

fn parse(args: Args<'_>) -> Result<Options, Error> {
    let mut options = Options::default();
    for word in args.iter_from(1) {
        let flag = match word.to_ascii_lowercase().as_slice() {
            b"nosave" => &mut options.nosave,
            b"save" => &mut options.save,
            b"force" => &mut options.force,
            b"failover" => &mut options.failover,
            b"now" | b"safe" => &mut options.others,
            b"abort" => &mut options.abort,
            _ => return Err(Error::Syntax),
        };
        *flag = true;
    }
    let others = options.nosave || options.save || options.force || options.failover || options.others;
    if options.abort && others || options.save && options.nosave {
        return Err(Error::Syntax);
    }
    Ok(options)
}

/// Success has no reply: the connection ends with the server. What the client has sent behind it is not run.
fn shutdown(ctx: &mut SessionCtx<'_>, args: Args<'_>, _: &mut Reply) -> Result<(), Error> {
    let options = parse(args)?;
    if options.failover {
        return Err(Error::text("ERR SHUTDOWN FAILOVER is only supported in cluster mode."));
    }
    if options.abort {
        // It is over within the turn that it begins in.
        return Err(Error::text("ERR No shutdown in progress."));
    }
    let requests = &mut ctx.shard.host_requests;
    if options.save {
        let line = "SHUTDOWN SAVE: this server cannot save its data yet; use SHUTDOWN NOSAVE, or FORCE";
        requests.push_back(HostRequest::Log(line.to_owned()));
        if !options.force {
            return Err(Error::text("ERR Errors trying to SHUTDOWN. Check logs."));
        }
    }
    requests.push_back(HostRequest::Shutdown);
    ctx.client.close = Some(CloseWhen::AfterOutput);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::{Bench, check_all};
    use crate::ctx::HostRequest;

    #[test]
    fn bad_options_are_refused_as_in_valkey() {
        let syntax = "-ERR syntax error";
        for line in ["SHUTDOWN x", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW", "SHUTDOWN SAFE ABORT"] {
            check_all(&[(line, syntax)]);
        }
        check_all(&[
            ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
            ("SHUTDOWN FAILOVER", "-ERR SHUTDOWN FAILOVER is only supported in cluster mode."),
            ("SHUTDOWN SAVE", "-ERR Errors trying to SHUTDOWN. Check logs."),
        ]);
    }

    #[test]
    fn success_asks_for_the_end_and_has_no_reply() {
        for line in ["SHUTDOWN", "shutdown nosave now", "SHUTDOWN SAVE FORCE", "SHUTDOWN SAFE"] {
            let mut bench = Bench::new(2);
            let output = bench.exchange(format!("PING\r\n{line}\r\nECHO behind\r\n").as_bytes());
            assert_eq!(output, b"+PONG\r\n", "{line}");
            let requests: Vec<_> = std::iter::from_fn(|| bench.nodes[1].request()).collect();
            assert_eq!(requests.last(), Some(&HostRequest::Shutdown), "{line}");
        }
    }
}
