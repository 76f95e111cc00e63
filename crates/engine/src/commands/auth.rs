//! AUTH: the password of the default user, the only one there is.

use crate::args::Args;
use crate::command::{Command, Flags, Plan};
use crate::ctx::SessionCtx;
use crate::errors::Error;
use corelane_resp::Reply;

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "auth",
    arity: -2,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::NO_AUTH)
        .with(Flags::ALLOW_BUSY),
    plan: Plan::Session(auth),
    secrets: Some(|_, idx| idx > 0),
    group: "connection",
    summary: "Authenticates the connection.",
    complexity: "O(N) where N is the number of passwords defined for the user",
    syntax: "[username] @6.0.0 password",
    ..Command::DEFAULT
}];

fn auth(ctx: &mut SessionCtx<'_>, args: Args<'_>, reply: &mut Reply) -> Result<(), Error> {
    let (user, password) = match args.len() {
        2 if ctx.shard.settings.password.is_empty() => {
            return Err(Error::text(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => (&b"default"[..], args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return Err(Error::Syntax),
    };
    authenticate(ctx, user, password)?;
    reply.ok();
    Ok(())
}

/// Lets a client in that knows the password; without one, any will do.
pub(super) fn authenticate(ctx: &mut SessionCtx<'_>, user: &[u8], password: &[u8]) -> Result<(), Error> {
    let settings = &ctx.shard.settings;
    let right = user == b"default" && (settings.password.is_empty() || same(password, &settings.password));
    if !right {
        ctx.shard.stats.logins_failed += 1;
        return Err(Error::text("WRONGPASS invalid username-password pair or user is disabled."));
    }
    ctx.client.authenticated = true;
    Ok(())
}

/// Takes as long for every wrong password of one length.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::super::testing::check_all;

    #[test]
    fn without_a_password_nobody_is_kept_out() {
        check_all(&[
            (
                "AUTH x",
                "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            ),
            ("AUTH default x", "+OK"),
            ("AUTH other x", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH a b c", "-ERR syntax error"),
        ]);
    }
}
