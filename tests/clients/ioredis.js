// ioredis against the server on the port given: commands, automatic pipelining, pipelines, large values, errors, collections,
// transactions, blocking commands, channels.
"use strict";

const assert = require("node:assert");
const Redis = require("ioredis");

async function commands(client) {
    await client.flushall();
    assert.strictEqual(await client.set("k", "v", "EX", 100), "OK");
    assert.strictEqual(await client.get("k"), "v");
    assert.ok((await client.pttl("k")) > 0);
    await client.mset(Object.fromEntries([...Array(100).keys()].map((n) => [`m:${n}`, n])));
    const values = await client.mget([...Array(100).keys()].map((n) => `m:${n}`));
    assert.deepStrictEqual(values, [...Array(100).keys()].map(String));
    assert.strictEqual(await client.incrby("n", 7), 7);
    assert.strictEqual(await client.del("k", "n", "nope"), 2);
    await assert.rejects(client.set("k", "v", "NOSUCH"), /syntax error/);
    const large = Buffer.alloc(300_000, 7);
    await client.set("large", large);
    assert.ok(large.equals(await client.getBuffer("large")));
}

async function scanning(client) {
    const found = new Set();
    for await (const keys of client.scanStream({ match: "m:*", count: 10 })) keys.forEach((key) => found.add(key));
    assert.strictEqual(found.size, 100);
}

async function pipelines(client) {
    const pipeline = client.pipeline();
    for (let n = 0; n < 1000; n++) pipeline.set(`p:${n}`, n).get(`p:${n}`);
    const replies = await pipeline.exec();
    replies.forEach(([error, reply], at) => {
        assert.ifError(error);
        assert.strictEqual(reply, at % 2 ? String((at - 1) / 2) : "OK");
    });
    const all = await Promise.all([...Array(2000).keys()].map((n) => client.set(`a:${n}`, n).then(() => client.get(`a:${n}`))));
    assert.deepStrictEqual(all, [...Array(2000).keys()].map(String));
}

async function collections(client) {
    assert.strictEqual(await client.hset("h", { a: 1, b: "two" }), 2);
    assert.deepStrictEqual(await client.hgetall("h"), { a: "1", b: "two" });
    assert.strictEqual(await client.rpush("l", 1, 2, 3), 3);
    assert.deepStrictEqual(await client.lrange("l", 0, -1), ["1", "2", "3"]);
    assert.strictEqual(await client.lmove("l", "l2", "LEFT", "RIGHT"), "1");
    assert.strictEqual(await client.sadd("s", "x", "y", "x"), 2);
    assert.strictEqual(await client.sadd("s2", "y", "z"), 2);
    assert.deepStrictEqual(await client.sinter("s", "s2"), ["y"]);
    assert.strictEqual(await client.zadd("z", 1, "one", 2.5, "more"), 2);
    assert.deepStrictEqual(await client.zrange("z", 0, -1, "WITHSCORES"), ["one", "1", "more", "2.5"]);
    assert.strictEqual(await client.setbit("bits", 7, 1), 0);
    assert.strictEqual(await client.bitcount("bits"), 1);
    const fields = new Set();
    for (let n = 0; n < 700; n++) await client.hset("many", `f${n}`, n);
    for await (const some of client.hscanStream("many", { count: 50 })) some.forEach((word, at) => at % 2 || fields.add(word));
    assert.strictEqual(fields.size, 700);
}

async function transactions(client, connect) {
    const replies = await client.multi().set("t1", 1).incr("t1").lpush("t2", "x").get("t1").exec();
    assert.deepStrictEqual(replies, [[null, "OK"], [null, 2], [null, 1], [null, "2"]]);
    const other = connect();
    await other.watch("t1");
    await client.set("t1", 9);
    assert.strictEqual(await other.multi().set("t1", 10).exec(), null);
    await other.watch("t1", "t2");
    assert.deepStrictEqual(await other.multi().incr("t1").exec(), [[null, 10]]);
    await other.quit();
}

async function blocking(client, connect) {
    const waiter = connect();
    const popped = waiter.blpop("none", "queue", 5);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.strictEqual(await client.rpush("queue", "job"), 1);
    assert.deepStrictEqual(await popped, ["queue", "job"]);
    assert.strictEqual(await waiter.blpop("queue", 0.05), null);
    await waiter.quit();
}

async function channels(client, connect) {
    const subscriber = connect();
    const heard = [];
    subscriber.on("message", (channel, message) => heard.push([channel, message]));
    subscriber.on("pmessage", (pattern, channel, message) => heard.push([pattern, channel, message]));
    assert.strictEqual(await subscriber.subscribe("news", "weather"), 2);
    assert.strictEqual(await subscriber.psubscribe("n*"), 3);
    assert.strictEqual(await client.publish("news", "hello"), 2);
    assert.strictEqual(await client.publish("weather", "rain"), 1);
    assert.strictEqual(await client.publish("none", "x"), 1);
    while (heard.length < 4) await new Promise((resolve) => setTimeout(resolve, 5));
    heard.sort();
    const expected = [["n*", "news", "hello"], ["n*", "none", "x"], ["news", "hello"], ["weather", "rain"]];
    assert.deepStrictEqual(heard, expected);
    await subscriber.quit();
}

async function introspection(client) {
    assert.match(await client.info(), /redis_version:/);
    assert.ok((await client.memory("USAGE", "large")) > 300_000);
    assert.deepStrictEqual(await client.role(), ["master", 0, []]);
    assert.ok((await client.command("COUNT")) > 50);
    assert.strictEqual(await client.wait(1, 20), 0);
}

async function main(port) {
    for (const options of [{}, { enableAutoPipelining: true }]) {
        const client = new Redis({ port, maxRetriesPerRequest: 0, ...options });
        const connect = () => new Redis({ port, maxRetriesPerRequest: 0 });
        const checks = [commands, scanning, pipelines, collections, transactions, blocking, channels, introspection];
        for (const check of checks) await check(client, connect);
        await client.quit();
    }
    console.log("all good");
}

main(Number(process.argv[2])).catch((error) => {
    console.error(error);
    process.exit(1);
});
