"""redis-py's asyncio client against the server on the port given: many tasks over one pool, pipelines, both protocols,
collections, transactions, blocking commands, channels."""

import asyncio
import sys

import redis.asyncio as redis


async def commands(client):
    await client.flushall()
    assert await client.set("k", "v", ex=100) is True
    assert await client.get("k") == "v" and 0 < await client.ttl("k") <= 100
    assert await client.mset({f"m:{n}": n for n in range(100)}) is True
    assert await client.mget([f"m:{n}" for n in range(100)]) == [str(n) for n in range(100)]
    assert await client.incrby("n", 5) == 5 and await client.append("k", "w") == 2
    assert await client.delete("k", "n", "nope") == 2
    found = [key async for key in client.scan_iter(match="m:*", count=10)]
    assert sorted(found) == sorted(f"m:{n}" for n in range(100))
    assert await client.set("large", "x" * 100_000) is True and len(await client.get("large")) == 100_000
    try:
        await client.incr("large")
        raise AssertionError("no error")
    except redis.ResponseError as error:
        assert "not an integer" in str(error), error


async def pipelines(client):
    async with client.pipeline(transaction=False) as pipe:
        for n in range(1000):
            pipe.set(f"p:{n}", n).get(f"p:{n}")
        replies = await pipe.execute()
    assert replies == [reply for n in range(1000) for reply in (True, str(n))]


async def tasks(client):
    async def work(number):
        for n in range(50):
            await client.set(f"t:{number}:{n}", f"{number}-{n}")
            assert await client.get(f"t:{number}:{n}") == f"{number}-{n}"

    await asyncio.gather(*(work(number) for number in range(40)))


async def collections(client):
    assert await client.hset("h", mapping={"a": 1, "b": "two"}) == 2
    assert await client.hgetall("h") == {"a": "1", "b": "two"} and await client.hincrby("h", "a", 4) == 5
    assert await client.rpush("l", 1, 2, 3) == 3 and await client.lrange("l", 0, -1) == ["1", "2", "3"]
    assert await client.lmove("l", "l2") == "1" and await client.lpop("l", 5) == ["2", "3"]
    assert await client.sadd("s", "x", "y", "x") == 2 and await client.sadd("s2", "y", "z") == 2
    assert await client.sinter("s", "s2") == {"y"} and await client.sunionstore("s3", "s", "s2") == 3
    assert await client.smove("s", "s2", "x") == 1 and await client.sismember("s2", "x") == 1
    assert await client.zadd("z", {"one": 1, "more": 2.5}) == 2
    assert [list(pair) for pair in await client.zrange("z", 0, -1, withscores=True)] == [["one", 1.0], ["more", 2.5]]
    assert await client.zincrby("z", 2, "one") == 3.0 and await client.zrank("z", "more") == 0
    assert await client.setbit("bits", 7, 1) == 0 and await client.bitcount("bits") == 1
    assert await client.hset("many", mapping={f"f{n}": n for n in range(700)}) == 700
    assert len([field async for field in client.hscan_iter("many", count=50)]) == 700


async def transactions(client):
    async with client.pipeline(transaction=True) as pipe:
        assert await pipe.set("t1", 1).incr("t1").lpush("t2", "x").get("t1").execute() == [True, 2, 1, "2"]
    async def raise_by_one(times):
        async with client.pipeline(transaction=True) as pipe:
            while times:
                try:
                    await pipe.watch("t1", "t3")
                    value = int(await pipe.get("t1"))
                    pipe.multi()
                    await pipe.set("t1", value + 1).incr("t3").execute()
                    times -= 1
                except redis.WatchError:
                    continue
    await asyncio.gather(*(raise_by_one(10) for _ in range(5)))
    assert await client.get("t1") == "52" and await client.get("t3") == "50"


async def blocking(client):
    waiting = asyncio.create_task(client.blpop(["none", "queue"], timeout=5))
    await asyncio.sleep(0.05)
    assert await client.rpush("queue", "job") == 1
    assert list(await waiting) == ["queue", "job"]
    assert await client.blpop("queue", timeout=0.05) is None


async def channels(client):
    subscriber = client.pubsub()
    await subscriber.subscribe("news", "weather")
    await subscriber.psubscribe("n*")
    for _ in range(3):
        assert (await subscriber.get_message(timeout=5))["type"] in ("subscribe", "psubscribe")
    assert await client.publish("news", "hello") == 2 and await client.publish("none", "x") == 1
    heard = [await subscriber.get_message(timeout=5) for _ in range(3)]
    assert sorted((message["channel"], message["data"]) for message in heard) == [
        ("news", "hello"), ("news", "hello"), ("none", "x")], heard
    assert dict(await client.pubsub_numsub("news", "weather")) == {"news": 1, "weather": 1}
    await subscriber.unsubscribe()
    await subscriber.punsubscribe()
    await subscriber.aclose()


async def introspection(client):
    info = await client.info("everything")
    assert info["role"] == "master" and info["db0"]["keys"] > 0 and info["used_memory"] > 0, info
    stats = await client.memory_stats()
    assert stats["keys.count"] == await client.dbsize(), stats
    assert await client.memory_usage("large") > 100_000
    assert await client.object("encoding", "m:1") == "int"
    assert len(await client.role()) == 3 and await client.wait(0, 0) == 0
    assert await client.command_count() > 50


async def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        client = redis.Redis(port=port, protocol=protocol, decode_responses=True)
        for check in (commands, pipelines, tasks, collections, transactions, blocking, channels, introspection):
            await check(client)
        await client.aclose()
    print("all good")


asyncio.run(main())
