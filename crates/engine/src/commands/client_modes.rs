//! CLIENT REPLY, NO-EVICT, NO-TOUCH and CAPA: ways of one connection.

use crate::args::Args;
use crate::ctx::SessionCtx;
use crate::errors::Error;
use crate::modes::Modes;
use corelane_resp::Reply;

/// OFF and SKIP answer nothing, in whatever mode the connection was before.
pub(super) fn reply_mode(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let modes = &mut ctx.client.modes;
    if args.is(2, "ON") {
        modes.set(Modes::REPLY_OFF.or(Modes::SKIP), false);
        reply.ok();
    } else if args.is(2, "OFF") {
        modes.set(Modes::REPLY_OFF, true);
    } else if args.is(2, "SKIP") {
        modes.set(Modes::SKIP_NEXT, !modes.has(Modes::REPLY_OFF));
    } else {
        return Err(Error::Syntax);
    }
    Ok(())
}

pub(super) fn no_evict(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    switch(ctx, Modes::NO_EVICT, args, reply)
}

pub(super) fn no_touch(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    switch(ctx, Modes::NO_TOUCH, args, reply)
}

fn switch(ctx: &mut SessionCtx<'_>, mode: Modes, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let on = match args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(Error::Syntax),
    };
    ctx.client.modes.set(mode, on);
    reply.ok();
    Ok(())
}

/// Capabilities that nobody knows do no harm.
pub(super) fn capa(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    if (2..args.len()).any(|idx| args.is(idx, "REDIRECT")) {
        ctx.client.modes.set(Modes::REDIRECT, true);
    }
    reply.ok();
    Ok(())
}

/// Tracking does not exist here, so it redirects to nobody.
pub(super) fn get_redir(_: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.int(-1);
    Ok(())
}

/// And is off.
pub(super) fn tracking_info(_: &mut SessionCtx<'_>, _: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(1);
    reply.bulk(b"off");
    reply.bulk(b"redirect");
    reply.int(-1);
    reply.bulk(b"prefixes");
    reply.array(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::commands::testing::Bench;

    #[test]
    fn reply_modes_mute_local_remote_and_merged_replies() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let keys = "SET a 1\nSET b 2\nSET c 3\nSET d 4";
            let muted =
                format!("{keys}\nMGET a b c d\nNOSUCH\nGET\nCLIENT REPLY bad\nCLIENT REPLY SKIP\nPING");
            let client = bench.connect(0, 77);
            let said =
                bench.say(client, &format!("ECHO 1\nCLIENT REPLY OFF\n{muted}\nCLIENT REPLY ON\nGET a"));
            assert_eq!(said, "\"1\"\n+OK\n\"1\"", "{shards} shards");
            let skips = "GET a\nCLIENT REPLY SKIP\nGET b\nGET c\nCLIENT REPLY SKIP\nMGET a b c d\nDBSIZE\n\
                CLIENT REPLY SKIP\nNOSUCH\nCLIENT REPLY SKIP\nCLIENT REPLY SKIP\nGET c\nGET d";
            assert_eq!(bench.say(client, skips), "\"1\"\n\"3\"\n:4\n\"4\"", "{shards} shards");
            assert_eq!(bench.say(client, "CLIENT REPLY SKIP\nCLIENT REPLY ON\nPING"), "+OK\n+PONG");
            assert_eq!(bench.say(client, "CLIENT REPLY OFF\nRESET\nPING"), "+RESET\n+PONG");
            assert_eq!(bench.say(client, "CLIENT REPLY OFF\nQUIT"), "closed");
        }
    }

    #[test]
    fn a_muted_protocol_error_closes_in_silence() {
        let mut bench = Bench::new(1);
        assert_eq!(bench.run("PING"), "+PONG");
        assert_eq!(bench.exchange(b"CLIENT REPLY SKIP\r\n*abc\r\n"), b"");
    }

    #[test]
    fn no_touch_leaves_the_access_times_of_all_shards_alone() {
        for shards in [1, 2, 5] {
            let mut bench = Bench::new(shards);
            let client = bench.connect(0, 77);
            bench.run("SET a 1\nSET b 2\nSET c 3");
            bench.now += 5000;
            let reads = "GET a\nMGET a b c\nSTRLEN b\nAPPEND c x\nSET b 3\nGETSET b 4";
            bench.say(client, &format!("CLIENT NO-TOUCH on\n{reads}"));
            let idle = "OBJECT IDLETIME a\nOBJECT IDLETIME b\nOBJECT IDLETIME c";
            assert_eq!(bench.run(idle), ":5\n:5\n:5", "{shards} shards");
            bench.say(client, "TOUCH a\nSET new 1");
            assert_eq!(bench.run("OBJECT IDLETIME a\nOBJECT IDLETIME new"), ":0\n:0");
            bench.say(client, &format!("CLIENT NO-TOUCH off\n{reads}"));
            assert_eq!(bench.run(idle), ":0\n:0\n:0", "{shards} shards");
        }
    }

    #[test]
    fn reset_is_not_answered_where_it_is_skipped() {
        let mut bench = Bench::new(2);
        let client = bench.connect(1, 7);
        assert_eq!(bench.say(client, "CLIENT REPLY SKIP\nRESET\nPING\nPING"), "+PONG\n+PONG");
        assert_eq!(bench.say(client, "CLIENT REPLY OFF\nPING\nRESET\nPING"), "+RESET\n+PONG");
    }

    #[test]
    fn reset_ends_all_of_it() {
        let mut bench = Bench::new(2);
        assert_eq!(
            bench.run("CLIENT NO-EVICT on\nCLIENT NO-TOUCH on\nCLIENT CAPA bogus redirect"),
            "+OK\n+OK\n+OK"
        );
        let info = bench.run("CLIENT INFO");
        assert!(info.contains(" flags=eT capa=r "), "{info}");
        bench.run("RESET");
        let info = bench.run("CLIENT INFO");
        assert!(info.contains(" flags=N capa=r "), "{info}");
        assert_eq!(bench.run("CLIENT NO-EVICT x"), "-ERR syntax error");
        assert_eq!(bench.run("CLIENT GETREDIR"), ":-1");
        let off = "[\"flags\", [\"off\"], \"redirect\", :-1, \"prefixes\", []]";
        assert_eq!(bench.run("CLIENT TRACKINGINFO"), off);
    }
}
