"""Publishes to a subscriber that acknowledges nothing; when a line of standard input says that the router was killed and is there again, the subscriber must get
what was acknowledged to the publisher, once. Argument: the URL of the router."""

import asyncio
import sys

from component import ACK2, PUBLISH, QOS1, QOS2, Component

URL = sys.argv[1]
ID = b"twice001"


async def send(c, qos, id, *args):
    c.waiting[id] = done = asyncio.get_running_loop().create_future()
    await c.send(PUBLISH | qos, id, "t", list(args))
    await asyncio.wait_for(done, 30)


async def main():
    sub, pub = await Component.connect(URL, "sub"), await Component.connect(URL, "pub")
    sub.answers_acks = False
    await sub.subscribe("t")
    await sub.reactive()
    await send(pub, QOS1, b"once0001", 1)
    await send(pub, QOS2, ID, 2)  # and no ack2: it is not known whether it came
    assert await sub.next() == ("t", [1])
    print("sent", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    sub, pub = await Component.connect(URL, "sub"), await Component.connect(URL, "pub")
    await send(pub, QOS2, ID, 2)
    await pub.send(ACK2, ID)
    await pub.publish("t", 3, qos=QOS2)
    await sub.reactive()
    await pub.publish("t", 4, qos=QOS1)
    got = [(await sub.next())[1][0] for _ in range(3)]
    assert got == [1, 2, 4], got
    await sub.rpc("rid")
    assert sub.publishes.empty()
    print("done", flush=True)


asyncio.run(main())
