"""What an application does with redis-py, in RESP2 and RESP3; run by main.rs with the port as the only argument."""

import sys
import threading

import redis


def strings(client, text):
    assert client.ping() is True
    assert client.set("k", "v") is True
    assert client.get("k") == text("v")
    assert client.get("missing") is None
    assert client.set("k", "w", nx=True) is None
    assert client.set("k", "w", xx=True, get=True) == text("v")
    assert client.set("k", "x", ex=100) is True
    assert 98 <= client.ttl("k") <= 100
    assert client.getex("k", persist=True) == text("x")
    assert client.ttl("k") == -1
    assert client.mset({"a": 1, "b": "2", "c": b"\x00\xff" if text is bytes_text else "3"}) is True
    assert client.mget(["a", "b", "missing"]) == [text("1"), text("2"), None]
    assert client.incr("n") == 1 and client.incrby("n", 41) == 42 and client.decr("n") == 41
    assert abs(float(client.incrbyfloat("f", 0.5)) - 0.5) < 1e-9
    assert client.append("s", "abc") == 3 and client.strlen("s") == 3
    assert client.getrange("s", 0, 1) == text("ab") and client.setrange("s", 1, "X") == 3
    assert client.getdel("s") == text("aXc") and client.getset("k", "y") == text("x")
    assert client.setnx("k", "z") is False and client.msetnx({"k": 1, "new": 2}) is False
    assert client.lcs("k", "k") == text("y")


def keys(client, text):
    client.flushall()
    client.mset({f"key:{n}": n for n in range(1000)})
    assert client.dbsize() == 1000
    assert sorted(client.scan_iter(count=50)) == sorted(text(f"key:{n}") for n in range(1000))
    assert sorted(client.scan_iter(match="key:99*")) == sorted(text(f"key:{n}") for n in [99, *range(990, 1000)])
    assert len(client.keys("key:1?")) == 10
    assert client.exists("key:1", "key:2", "nope") == 2 and client.delete("key:1", "key:2", "nope") == 2
    assert client.unlink("key:3") == 1 and client.touch("key:4", "key:3") == 1
    assert client.type("key:4") == text("string") and client.randomkey() is not None
    assert client.rename("key:4", "renamed") is True and client.renamenx("key:5", "renamed") is False
    assert client.copy("renamed", "copied") is True and client.move("copied", 3) is True
    assert client.expire("renamed", 50) and client.pttl("renamed") > 0 and client.persist("renamed")
    assert client.swapdb(3, 4) is True
    try:
        client.rename("nope", "x")
        raise AssertionError("no error")
    except redis.ResponseError as error:
        assert str(error) == "no such key", error


def pipelines(client, text):
    client.flushall()
    with client.pipeline(transaction=False) as pipe:
        for n in range(2000):
            pipe.set(f"p:{n}", n)
            pipe.get(f"p:{n}")
            if n % 100 == 0:
                pipe.mget([f"p:{n}", f"p:{n - 1}"])
        replies = pipe.execute()
    expected = []
    for n in range(2000):
        expected += [True, text(str(n))]
        if n % 100 == 0:
            expected.append([text(str(n)), text(str(n - 1)) if n else None])
    assert replies == expected
    with client.pipeline(transaction=False) as pipe:
        replies = pipe.set("x", "abc").incr("x").get("x").execute(raise_on_error=False)
    assert replies[0] is True and isinstance(replies[1], redis.ResponseError) and replies[2] == text("abc")


def transactions(client, text):
    client.flushall()
    with client.pipeline(transaction=True) as pipe:
        pipe.mset({"a": 1, "b": 2, "c": 3}).incr("a").rename("a", "d").mget(["a", "b", "c", "d"]).dbsize()
        assert pipe.execute() == [True, 2, True, [None, text("2"), text("3"), text("2")], 3]
        replies = pipe.set("x", "abc").incr("x").get("x").execute(raise_on_error=False)
        assert replies[0] is True and isinstance(replies[1], redis.ResponseError) and replies[2] == text("abc")
        pipe.watch("a", "x")
        client.set("x", "other")
        pipe.multi()
        try:
            pipe.set("a", 1).execute()
            raise AssertionError("a watched key has changed")
        except redis.WatchError:
            assert client.get("a") is None


def introspection(client, text):
    assert client.client_setname("script") and client.client_getname() in ("script", b"script")
    assert client.client_id() > 0
    assert any(entry["name"] == "script" for entry in client.client_list())
    assert client.info()["redis_version"] and client.config_get("maxmemory")
    assert client.command_count() > 50 and len(client.time()) == 2
    assert client.echo("hi") == text("hi")


def messages(client, text):
    with client.pubsub() as listener:
        listener.subscribe("news", "{tag}other")
        listener.psubscribe("n*")
        confirmations = [listener.get_message(timeout=10) for _ in range(3)]
        assert [note["type"] for note in confirmations] == ["subscribe", "subscribe", "psubscribe"], confirmations
        assert [note["data"] for note in confirmations] == [1, 2, 3], confirmations
        assert client.publish("news", "hi") == 2 and client.publish("{tag}other", "x") == 1
        heard = [listener.get_message(timeout=10) for _ in range(3)]
        told = sorted((note["type"], note["channel"], note["data"]) for note in heard)
        assert told == [
            ("message", text("news"), text("hi")),
            ("message", text("{tag}other"), text("x")),
            ("pmessage", text("news"), text("hi")),
        ], told
        assert client.pubsub_numsub("news") == [(text("news"), 1)] and client.pubsub_numpat() == 1
        assert sorted(client.pubsub_channels()) == [text("news"), text("{tag}other")]
        listener.unsubscribe()
        listener.punsubscribe()
        ended = [listener.get_message(timeout=10) for _ in range(3)]
        assert ended[-1]["data"] == 0 and client.publish("news", "hi") == 0, ended
    client.config_set("notify-keyspace-events", "KEA")
    with client.pubsub() as listener:
        listener.psubscribe("__keyevent@0__:*")
        listener.get_message(timeout=10)
        client.set("told", "v")
        note = listener.get_message(timeout=10)
        assert (note["channel"], note["data"]) == (text("__keyevent@0__:set"), text("told")), note
    client.config_set("notify-keyspace-events", "")


def threads(port):
    """Eight threads over one pool: every answer goes to the one who asked."""
    client = redis.Redis(port=port)
    failures = []

    def work(number):
        for n in range(300):
            client.set(f"t:{number}:{n}", f"{number}-{n}")
            if client.get(f"t:{number}:{n}") != f"{number}-{n}".encode():
                failures.append((number, n))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures


def counting(port):
    """Eight threads count two keys up together, each by what it has read while it watched them: nothing is lost."""
    client = redis.Redis(port=port)
    client.delete("count:1", "count:2")

    def both(pipe):
        first, second = (int(value or 0) for value in pipe.mget("count:1", "count:2"))
        pipe.multi()
        pipe.set("count:1", first + 1).set("count:2", second + 1)

    def work():
        for _ in range(25):
            client.transaction(both, "count:1", "count:2")

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert client.mget("count:1", "count:2") == [b"200", b"200"], client.mget("count:1", "count:2")


def bytes_text(string):
    return string.encode()


def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        for decode in (False, True):
            text = (lambda string: string) if decode else bytes_text
            client = redis.Redis(port=port, protocol=protocol, decode_responses=decode)
            client.flushall()
            for check in (strings, keys, pipelines, transactions, messages, introspection):
                check(client, text)
            client.close()
    threads(port)
    counting(port)
    print("all good")


if __name__ == "__main__":
    main()
