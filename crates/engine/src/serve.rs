//! Commands that other shards send for their clients.

use crate::args::Args;
use crate::command::{Flow, Pace};
use crate::ctx::write_error;
use crate::errors::Error;
use crate::execute::run_at_pace;
use crate::keyspace::{KnownKey, Millis, WARM_MAX};
use crate::message::{Batch, RequestHead};
use crate::node::{Core, Node};
use crate::participant::Origin;
use crate::slot::ShardId;
use crate::timing::Answered;
use corelane_resp::Reply;

impl Node {
    /// Runs the commands that another shard sent for its clients: read ahead, have their keys loaded, run.
    pub(crate) fn serve(&mut self, from: ShardId, batch: &Batch, now: Millis) {
        let mut ahead = std::mem::take(&mut self.core.ahead);
        let mut heads = [None; WARM_MAX];
        let mut at = 0;
        loop {
            ahead.keys = [KnownKey::default(); WARM_MAX];
            let mut count = 0;
            while count < WARM_MAX
                && let Some((head, next)) = batch.request_at(at, &mut ahead.spans[count])
            {
                heads[count] = Some(head);
                if let Some(key) = batch.request_args(&ahead.spans[count]).get(1) {
                    ahead.keys[count] = KnownKey::new(self.core.shard.keyspace.hasher().key(key));
                }
                (at, count) = (next, count + 1);
            }
            if let Some(Some(head)) = heads[..count].first() {
                self.core.shard.keyspace.warm(head.db.into(), &ahead.keys[..count]);
            }
            for (place, (head, spans)) in heads[..count].iter().flatten().zip(&ahead.spans).enumerate() {
                self.core.shard.timing.place = place;
                self.core.shard.known_key = ahead.keys[place];
                self.serve_one(from, *head, batch.request_args(spans), now);
            }
            self.core.shard.known_key = KnownKey::default();
            self.core.shard.timing.end_run();
            if let Some(stalled) = self.core.shard.timing.take_stalled()
                && let Some(head) = heads[stalled.place]
            {
                let args = batch.request_args(&ahead.spans[stalled.place]);
                self.core.note_stalled_for((from, head), stalled, args, now);
            }
            if count < WARM_MAX {
                break;
            }
        }
        self.core.ahead = ahead;
    }

    #[inline]
    fn serve_one(&mut self, from: ShardId, head: RequestHead, args: Args<'_>, now: Millis) {
        let core = &mut self.core;
        let command = core.table.resolve(head.command.index, args);
        core.shard.stats.hops_in += 1;
        core.current = Some(command.name);
        core.shard.keyspace.no_touch = head.no_touch;
        core.running = head.command;
        core.shard.timing.separate(command);
        if self.participant.must_wait(&core.shard, &mut core.hashes, command, args) {
            core.shard.stats.waited += 1;
            return self.participant.park(Origin { from, head }, command, args, &core.hashes);
        }
        let answered = core.reply_to(from, head, |shard, reply| {
            run_at_pace(shard, command, Pace::Brief, (head.db.into(), now), args, reply)
        });
        let Some(answered) = answered else {
            let origin = Origin { from, head };
            return self.participant.walk(&mut core.shard, (origin, None), command, args, now);
        };
        if !core.shard.timing.shares(command, head.command.number, answered) {
            core.ended_for((from, head.session), command, args, answered, now);
        }
        core.serve_new(&mut self.participant, None, now);
    }
}

impl Core {
    /// Lets `run` write a reply for another shard's client. An error is counted. `None` if it is put off.
    pub(crate) fn reply_to(
        &mut self,
        from: ShardId,
        head: RequestHead,
        run: impl FnOnce(&mut crate::ctx::Shard, &mut Reply) -> Result<Flow, Error>,
    ) -> Option<Answered> {
        let shard = &mut self.shard;
        self.outboxes[usize::from(from.0)].push_reply(head.session, head.seq, head.proto, |reply| {
            let (mark, bytes_before) = (reply.mark(), reply.len());
            match run(shard, reply) {
                Ok(Flow::Later) => return None,
                Ok(_) => {}
                Err(error) => {
                    drop(reply.split_off(mark));
                    write_error(&error, reply);
                }
            }
            let answered = Answered::since(reply, mark, bytes_before);
            if answered.failed {
                shard.stats.count_error(&reply.buf[mark.offset()..]);
            }
            Some(answered)
        })
    }
}
