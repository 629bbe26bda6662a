"""Two brokers of one mesh, the URLs of which are the arguments: what is done at one is known at the other. Each line printed is one check that held."""

import asyncio
import os
import sys

from component import QOS1, QOS2, Component, Failed

A, B = sys.argv[1:3]
PUB, SUB = f"pub{os.getpid()}", f"sub{os.getpid()}"


async def reaches(pub, topic, sub, *args):
    """Publishes until it comes: the other broker has to be told of the subscription first."""
    while True:
        await pub.publish(topic, *args)
        try:
            return await sub.next(0.1)
        except asyncio.TimeoutError:
            pass


async def drain(sub):
    try:
        while True:
            await sub.next(0.3)
    except asyncio.TimeoutError:
        pass


async def main():
    pub, sub = await Component.connect(A, PUB), await Component.connect(B, SUB)
    await sub.subscribe("news")
    await sub.subscribe("a/*/c")
    await sub.reactive()
    assert await reaches(pub, "news", sub, 1) == ("news", [1])
    await drain(sub)
    for qos in 0, QOS1, QOS2:
        await pub.publish("news", "x", 1.5, qos=qos)
        assert await sub.next() == ("news", ["x", 1.5])
    print("publishes", flush=True)
    assert await reaches(pub, "a/b/c", sub, 2) == ("a/*/c", ["a/b/c", 2])
    await drain(sub)
    print("topic spaces", flush=True)
    await sub.expose("add", lambda x, y: x + y)
    while True:
        try:
            assert await pub.rpc("add", 1, 2) == 3
            break
        except Failed as e:
            assert e.status == 42, e
            await asyncio.sleep(0.01)
    assert await asyncio.gather(*(pub.rpc("add", i, 1) for i in range(100))) == list(range(1, 101))
    try:
        await pub.rpc("add", 1, 2, target=SUB)
        raise AssertionError("a component of another broker is named")
    except Failed as e:
        assert e.status == 45, e
    print("requests", flush=True)
    await sub.admin("add", "unexpose")
    await sub.admin("news", "unsubscribe")
    await sub.admin("a/*/c", "unsubscribe")
    while True:
        try:
            await pub.rpc("add", 1, 2)
        except Failed as e:
            if e.status == 42:
                break
        await asyncio.sleep(0.01)
    print("withdrawals", flush=True)
    print("done", flush=True)
    for c in pub, sub:
        await c.close()


asyncio.run(main())
