"""redis-py's asyncio client against the server on the port given: many tasks over one pool, pipelines, both protocols."""

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
        for check in (commands, pipelines, tasks, introspection):
            await check(client)
        await client.aclose()
    print("all good")


asyncio.run(main())
