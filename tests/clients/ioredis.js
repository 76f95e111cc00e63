// ioredis against the server on the port given: commands, automatic pipelining, pipelines, large values, errors.
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
        for (const check of [commands, scanning, pipelines, introspection]) await check(client);
        await client.quit();
    }
    console.log("all good");
}

main(Number(process.argv[2])).catch((error) => {
    console.error(error);
    process.exit(1);
});
