"""Data at rest: who comes later gets what was published, by its look-back and its mark; also over the death of the router, for each of which a line of standard
input says that it is there again. Argument: the URL of the router."""

import asyncio
import sys

from component import Component, QOS1, QOS2

URL = sys.argv[1]
LAST_RECEIVED = float("inf")


async def numbers(c, n):
    return [(await c.next())[1][-1] for _ in range(n)]


async def nothing(c):
    await c.rpc("rid")
    assert c.publishes.empty(), c.publishes.get_nowait()


async def back(name, *topics):
    c = await Component.connect(URL, name)
    for t in topics:
        await c.subscribe(t, LAST_RECEIVED)
    await c.reactive()
    return c


async def restarted(said):
    print(said, flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def main():
    pub = await Component.connect(URL, "pub")
    for i in range(20):
        await pub.publish("t", i, qos=[0, QOS1, QOS2][i % 3])
    await pub.publish("t", {"a": 1}, 20)
    await pub.rpc("rid")
    await restarted("published")

    sub = await back("sub", "t")
    assert await numbers(sub, 21) == list(range(21))
    await nothing(sub)
    await restarted("received")

    pub = await Component.connect(URL, "pub")
    await pub.publish("t", 21, qos=QOS1)  # its subscription is there still
    await pub.publish("other", 0, qos=QOS1)
    sub = await back("sub")
    assert await numbers(sub, 1) == [21]
    await pub.publish("t", 22)
    assert await numbers(sub, 1) == [22]
    await nothing(sub)

    # What comes in between, of many, comes in its turn.
    await sub.close()
    for i in range(2000):
        await pub.publish("t", 23 + i)
    other = asyncio.create_task(later(pub))
    sub = await back("sub")
    assert await numbers(sub, 4000) == list(range(23, 4023))
    await other
    await nothing(sub)
    late = await Component.connect(URL, "late")
    await late.subscribe("t", 1e6)  # a millisecond
    await asyncio.sleep(0.01)
    await late.reactive()
    await nothing(late)
    late = await back("later", "t")
    assert await numbers(late, 4023) == list(range(4023))
    print("done", flush=True)


async def later(pub):
    for i in range(2000):
        await pub.publish("t", 2023 + i)


asyncio.run(main())
