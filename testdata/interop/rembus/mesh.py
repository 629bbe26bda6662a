"""Routers of one mesh that has rings, the URLs of which are the arguments: what is promised on every graph. Each line printed is one check that held. At "cut" the
first router is to be cut off from the others, and a line of input to say so; at "join" it is to be brought back, and that said."""

import asyncio
import collections
import sys

from component import ADMIN, IDENTITY, QOS1, QOS2, Component, Failed

URLS = sys.argv[1:]


class Foreign(Component):
    """A router of another kind: it has ports, and is told what comes and goes. It holds what it is told to its form."""

    async def login(self, key=None, secret=None):
        self.told = collections.Counter()
        return await self.ask(IDENTITY, self.name, {"ws": 1})

    async def read(self):
        recv = self.t.recv

        async def looked_at():
            b = await recv()
            if b[1] == ADMIN:
                marks = b.index(b"\x65rmark") + 6
                assert b[marks] & 0xE0 == 0x80 and b[marks] > 0x80
                for i in range(b[marks] & 0x1F):
                    assert b[marks + 1 + 9 * i] == 0x1B, "a mark is not eight bytes wide"
            return b

        self.t.recv = looked_at
        await super().read()

    async def take(self, m):
        if m[0] == ADMIN:
            c = m[3]
            if c["cmd"] == "subscribe":
                assert isinstance(c["msg_from"], float), c
            assert all(isinstance(x, str) for x in c["touch"]), c
            self.told[c["cmd"], m[2]] += 1
        await super().take(m)


async def until(what, check, more=str):
    """Waits for what routers have to tell each other first."""
    end = asyncio.get_running_loop().time() + 45
    while not await check():
        assert asyncio.get_running_loop().time() < end, f"it does not come that {what}{more()}"
        await asyncio.sleep(0.02)


async def told(watchers, cmd, topic):
    async def all_are():
        return all(w.told[cmd, topic] for w in watchers)

    await until(f"all hear of {cmd} {topic}", all_are)


async def status(c, topic):
    try:
        await c.rpc(topic)
        return 0
    except Failed as e:
        return e.status


async def known(url, n, wanted, unwanted=()):
    """Waits until a router tells who comes that others have all that is wanted, and nothing unwanted."""

    async def is_known():
        c = await Component.connect(url, None)
        exposed, subscribed = await c.ask(IDENTITY, f"asks{n}")
        await c.close()
        have = set(exposed) | set(subscribed)
        lacks[:] = sorted(set(wanted) - have) + ["!" + x for x in sorted(have & set(unwanted))]
        return not lacks

    lacks = []
    await until(f"router {n} knows {wanted} and not {unwanted}", is_known, lambda: f": {lacks} are wrong")


async def every_publish_once(pubs, subs, round):
    for i, p in enumerate(pubs):
        for qos in 0, QOS1, QOS2:
            await p.publish("news", round, i, qos, qos=qos)
    for s in subs:
        got = collections.Counter()
        for _ in range(3 * len(pubs)):
            topic, args = await s.next(60)
            assert topic == "news", topic
            got[tuple(args)] += 1
        assert got == {(round, i, qos): 1 for i in range(len(pubs)) for qos in (0, QOS1, QOS2)}, got


async def main():
    pubs, subs, watchers = [], [], []
    for i, url in enumerate(URLS):
        pubs.append(await Component.connect(url, f"pub{i}"))
        subs.append(await Component.connect(url, f"sub{i}"))
        watchers.append(await Foreign.connect(url, f"foreign{i}"))
    for i, s in enumerate(subs):
        await s.subscribe(f"by{i}")
        await s.subscribe("news")
        await s.reactive()
    everybody = [f"by{i}" for i in range(len(URLS))]
    for i, url in enumerate(URLS):
        await known(url, i, everybody)
    for round in range(3):
        await every_publish_once(pubs, subs, round)
    print("publishes", flush=True)

    # A command of a component, and one of a foreign router, comes to each other one once.
    await subs[0].admin("x1", "subscribe")  # without msg_from
    await told(watchers, "subscribe", "x1")
    await watchers[2].ask(ADMIN, "x2", {"cmd": "subscribe", "msg_from": 0.0, "rmark": [1 << 63 | 7], "touch": ["foreign2"]})
    others = [w for w in watchers if w is not watchers[2]]
    await told(others, "subscribe", "x2")
    print("floods", flush=True)

    # One of two behind a router leaves, and is not told of; the other one does, and is.
    a, b = await Component.connect(URLS[0], "a"), await Component.connect(URLS[0], "b")
    for c in a, b:
        await c.subscribe("two")
        await c.reactive()
    await told(watchers, "subscribe", "two")
    await a.admin("two", "unsubscribe")
    await a.subscribe("after")
    await told(watchers, "subscribe", "after")
    assert all(w.told["unsubscribe", "two"] == 0 for w in watchers)
    await pubs[2].publish("two", "still")
    assert await b.next(60) == ("two", ["still"])
    await b.admin("two", "unsubscribe")
    await told(watchers, "unsubscribe", "two")
    print("one of two", flush=True)

    # News that are stale when routers come together again lose to newer ones.
    await a.subscribe("gone")
    await a.expose("gone-method", lambda: 1)
    for i, url in enumerate(URLS):
        await known(url, i, ["gone", "gone-method"])
    for w in watchers:
        for command in ("subscribe", "x1"), ("unsubscribe", "two"), ("subscribe", "after"):
            assert w.told[command] == 1, (w.name, command, w.told)
    assert [w.told["subscribe", "x2"] for w in watchers] == [1, 1, 0, 1]
    print("cut", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await known(URLS[2], 2, ["by1"], ["by0", "gone", "gone-method"])
    await known(URLS[0], 0, ["by0", "gone"], ["by2"])
    await a.admin("gone", "unsubscribe")
    await a.admin("gone-method", "unexpose")
    await b.subscribe("new")
    await b.expose("new-method", lambda: 2)
    await subs[2].subscribe("theirs")
    await pubs[0].publish("news", "here alone")
    await pubs[1].publish("news", "there alone")
    assert await subs[0].next(60) == ("news", ["here alone"])
    for s in subs[1:]:
        assert await s.next(60) == ("news", ["there alone"])
    print("join", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for i, url in enumerate(URLS):
        await known(url, i, everybody + ["new", "new-method", "theirs"], ["gone", "gone-method", "two"])
    assert await subs[0].next(60) == ("news", ["there alone"])
    for s in subs[1:]:
        assert await s.next(60) == ("news", ["here alone"])
    for i, p in enumerate(pubs):
        assert await status(p, "gone-method") == 42
        assert await p.rpc("new-method") == 2
        await p.publish("new", i)
        assert await b.next(60) == ("new", [i])
    for round in range(3, 6):
        await every_publish_once(pubs, subs, round)
    print("after a partition", flush=True)

    # Each router has its own grants: what is private at the second is not passed on there, whoever lets it pass before.
    boss = await Component.connect(URLS[1], "boss")
    await subs[1].subscribe("secret")
    await subs[0].subscribe("secret")
    await known(URLS[1], 1, ["secret"])
    await boss.admin("secret", "authorize", cid="sub1")
    await pubs[0].publish("secret", "from elsewhere")
    await pubs[1].publish("secret", "from one who may not")
    await subs[1].publish("secret", "back to nobody")
    for c in pubs[0], subs[1]:
        await c.rpc("rid")  # they are through
    for p in pubs:
        try:
            await p.admin("secret", "expose")
            assert p is not pubs[1]
        except Failed as e:
            assert p is pubs[1] and e.status == 10, e
    assert await status(pubs[1], "secret") == 10
    await boss.admin("secret", "authorize", cid="boss")
    await boss.publish("secret", "from one who may")
    assert await subs[1].next(60) == ("secret", ["from one who may"])
    assert await subs[0].next(60) == ("secret", ["from elsewhere"])
    print("grants", flush=True)

    for s in subs:
        assert s.publishes.empty(), s.publishes.get_nowait()
    print("done", flush=True)


asyncio.run(main())
