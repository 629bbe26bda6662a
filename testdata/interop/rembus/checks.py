"""Checks a broker of Rembus: each line printed is one check that held. Arguments: the URLs of its listeners, WebSocket and TCP, its pin, and under TLS
the certificate of who signed its own."""

import asyncio
import json
import ssl
import sys

import websockets
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from component import PUBLISH, QOS1, QOS2, Component, Failed

WS, TCP, PIN = sys.argv[1:4]
CA = sys.argv[4] if len(sys.argv) > 4 else None
SSL = ssl.create_default_context(cafile=CA) if CA else None


def connect(url, name=None, **more):
    return Component.connect(url, name, ca=CA, **more)


async def refused(status, awaited):
    try:
        got = await awaited
    except Failed as e:
        assert e.status == status, f"refused with {e}, and not {status}"
        return e.data
    raise AssertionError(f"it is done, with {got!r}")


async def empty(c):
    await c.rpc("rid")
    assert c.publishes.empty(), c.publishes.get_nowait()


async def built_ins():
    c = await connect(WS)
    assert isinstance(await c.rpc("version"), str) and "up for" in await c.rpc("uptime") and await c.rpc("rid") == "hub"
    await refused(42, c.rpc("python_service_install", "f", "def f(): pass"))
    await c.close()


async def publish(pub, sub, qos):
    p, s = await connect(pub, "pub"), await connect(sub, "sub")
    await s.subscribe("t")
    await s.reactive()
    for args in [(), ("x",), ({"t": 21.5, "ok": True},), (1, [2, None], b"\x00\xff"), ("y" * 70000,)]:
        await p.publish("t", *args, qos=qos)
        assert await s.next() == ("t", list(args))
    if qos == QOS2:
        kinds = [s.acks.get_nowait()[0] for _ in range(s.acks.qsize())]
        await s.rpc("rid")
        kinds += [s.acks.get_nowait()[0] for _ in range(s.acks.qsize())]
        assert sorted(kinds) == sorted([0x31, 6] * 5), kinds
    await s.admin("t", "unsubscribe")
    await refused(10, s.admin("t", "unsubscribe"))
    await p.publish("t", "gone")
    await p.rpc("rid")
    await empty(s)
    await p.close()
    await s.close()


async def calls():
    a, b = await connect(WS, "a"), await connect(TCP, "b")
    await b.expose("add", lambda x, y: x + y)
    assert await a.rpc("add", 1, 2) == 3 and await a.rpc("add", "x", "y") == "xy" and await a.rpc("add", 2**64, 1) == 2**64 + 1
    assert "unsupported" in await refused(40, a.rpc("add", 1, "x"))
    assert await a.rpc("add", 1, 2, target="b") == 3
    assert await refused(45, a.rpc("add", 1, 2, target="nobody")) == "nobody"
    await refused(44, b.rpc("add", 1, 2))
    await b.admin("add", "unexpose")
    await refused(42, a.rpc("add", 1, 2))
    await b.expose("add", lambda x, y: x + y)
    await b.close()
    while True:
        try:
            await a.rpc("add", 1, 2, target="b")
        except Failed as e:
            if e.status == 46:
                break
        await asyncio.sleep(0.01)
    await refused(43, a.rpc("add", 1, 2))
    # A client after a loss says its name, and no more of what it exposes.
    b = await connect(WS, "b")
    b.methods["add"] = lambda x, y: x * y
    assert await a.rpc("add", 3, 4) == 12
    await b.admin("add", "unexpose")
    await a.close()
    await b.close()


async def wide_ids():
    a, b = await connect(WS, "a", idlen=16), await connect(WS, "b")
    await b.expose("twice", lambda x: 2 * x)
    assert await a.rpc("twice", 21) == 42
    await a.publish("t", 1, qos=QOS1)
    await b.admin("twice", "unexpose")
    await a.close()
    await b.close()


async def many_at_once():
    a, b = await connect(WS, "a"), await connect(WS, "b")
    await b.expose("inc", lambda x: x + 1)
    got = await asyncio.gather(*(a.rpc("inc", i) for i in range(500)))
    assert got == list(range(1, 501))
    await b.admin("inc", "unexpose")
    await a.close()
    await b.close()


async def spaces():
    a, b = await connect(WS, "veneto/belluno/cencenighe"), await connect(TCP, "b")
    await b.subscribe("veneto/*/cencenighe/*")
    await b.reactive()
    await a.publish("veneto/belluno/cencenighe/wind", 7)
    assert await b.next() == ("veneto/*/cencenighe/*", ["veneto/belluno/cencenighe/wind", 7])
    await a.publish("veneto/@agordo/cencenighe/wind", 7)
    await a.rpc("rid")
    await empty(b)
    await b.admin("veneto/*/cencenighe/*", "unsubscribe")
    await a.close()
    await b.close()


async def again():
    """Acks never come: a QoS 1 publish arrives 1 + 3 times, then the next one."""
    a, b = await connect(WS, "a"), await connect(WS, "b")
    await b.subscribe("t")
    b.answers_acks = False
    await b.reactive()
    await a.publish("t", 1, qos=QOS1)
    await a.publish("t", 2)
    assert [(await b.next())[1] for _ in range(5)] == [[1]] * 4 + [[2]]
    await b.admin("t", "unsubscribe")
    await a.close()
    await b.close()


async def once():
    a, b = await connect(WS, "a"), await connect(WS, "b")
    await b.subscribe("t")
    await b.reactive()
    id = a.new_id()
    for _ in range(10):
        await a.send(PUBLISH | QOS2, id, "t", ["once"])
    # A new connection of the name knows what the old one has said.
    await a.rpc("rid")
    await a.close()
    a = await connect(WS, "a")
    await a.send(PUBLISH | QOS2, id, "t", ["once"])
    await a.rpc("rid")
    assert await b.next() == ("t", ["once"])
    await empty(b)
    await b.admin("t", "unsubscribe")
    await a.close()
    await b.close()


async def registered(key):
    c = await connect(WS)
    await refused(10, c.register("reg", "wrong", key))
    await refused(10, c.register("reg.nowhere", PIN, key))
    await c.register("reg", PIN, key)
    await refused(60, c.register("reg", PIN, key))
    await c.close()
    wrong = ec.generate_private_key(ec.SECP256R1())
    await refused(10, connect(WS, "reg", key=wrong))
    r = await connect(TCP, "reg", key=key)
    await refused(10, connect(WS, "reg", key=key, tries=1))
    await r.ask(9)
    await r.close()


async def private_topics():
    boss, a, b = await connect(WS, "boss"), await connect(WS, "a"), await connect(WS, "b")
    await refused(10, a.admin("secret", "private_topic"))
    await boss.admin("secret", "private_topic")
    await refused(10, b.subscribe("secret"))
    await boss.admin("secret", "authorize", cid="a")
    await boss.admin("secret", "authorize", cid="b")
    assert await boss.admin("__config__", "private_topics_config") == {"secret": ["a", "b"]}
    await b.subscribe("secret")
    await b.reactive()
    await a.publish("secret", 1)
    assert await b.next() == ("secret", [1])
    await boss.admin("secret", "unauthorize", cid="a")
    await a.publish("secret", 2)
    await a.rpc("rid")
    await empty(b)
    await refused(10, a.rpc("secret"))
    await boss.admin("secret", "public_topic")
    await refused(47, boss.admin("__config__", "reset_router"))
    assert (await boss.admin("__config__", "broker_config"))["subscribers"] == {"secret": ["b"]}
    await b.admin("secret", "unsubscribe")
    for c in boss, a, b:
        await c.close()


async def floods():
    a, b = await connect(WS, "a"), await connect(WS, "b")
    await a.admin("t", "subscribe")  # without msg_from
    topic, m = await asyncio.wait_for(b.floods.get(), 30)
    assert topic == "t" and m["cmd"] == "subscribe" and m["msg_from"] == 0.0 and m["touch"] == ["b"] and m["rmark"][0] >= 1 << 63, m
    await a.admin("t", "unsubscribe")
    await a.close()
    await b.close()


async def as_json():
    b = await connect(WS, "b")
    await b.expose("add", lambda x, y: x + y)
    async with websockets.connect(WS, ssl=SSL) as ws:
        async def ask(**m):
            await ws.send(json.dumps({"jsonrpc": "2.0", **m}))
            return json.loads(await asyncio.wait_for(ws.recv(), 30))

        r = await ask(id=1, method="__identity__", params={"type": 0, "cid": "j"})
        assert r["id"] == 1 and r["result"]["sts"] == 0, r
        r = await ask(id="2", method="add", params=[1, 2])
        assert r == {"jsonrpc": "2.0", "id": "2", "result": {"type": 4, "__type__": 4, "sts": 0, "data": 3}}, r
        r = await ask(id=3, method="add", params=[1, "x"])
        assert r["error"]["sts"] == 40, r
        assert (await ask(id=4, method="t", params={"type": 3, "cmd": "subscribe"}))["result"]["sts"] == 0
        assert (await ask(id=5, method="__config__", params={"type": 3, "cmd": "reactive", "status": True}))["result"]["sts"] == 0
        await b.publish("t", {"a": [1, None]}, "x")
        assert json.loads(await ws.recv()) == {"jsonrpc": "2.0", "method": "t", "params": [{"a": [1, None]}, "x"]}
        await ask(id=6, method="t", params={"type": 3, "cmd": "unsubscribe"})
    await b.admin("add", "unexpose")
    await b.close()


async def bad_input():
    a = await connect(WS, "a")
    for b in [b"\x01", b"\x81\x19\x03\xe7", b"\x81\x07", b"\x9f\x05\x48" + b"\x01" * 8 + b"\xff", b"\x83\x01\x61t\x9b\x00\x00\x01" + b"\x00" * 5, b"\x83\x01\x61t" + b"\x81" * 100000]:
        async with websockets.connect(WS, ssl=SSL) as ws:
            await ws.send(b)
            try:
                await asyncio.wait_for(ws.recv(), 30)
                raise AssertionError(f"{b[:20]!r} is answered")
            except websockets.ConnectionClosed:
                pass
    assert await a.rpc("rid") == "hub"
    await a.close()


async def check(name, awaited):
    await asyncio.wait_for(awaited, 120)
    print(name, flush=True)


async def main():
    await check("built-in methods", built_ins())
    for pub in WS, TCP:
        for sub in WS, TCP:
            for qos in 0, QOS1, QOS2:
                await check(f"publish {pub[:2]} to {sub[:2]} qos {qos:#x}", publish(pub, sub, qos))
    await check("requests", calls())
    await check("ids of 16 bytes", wide_ids())
    await check("500 requests at once", many_at_once())
    await check("topic spaces", spaces())
    await check("sent again without acks", again())
    await check("QoS 2 once", once())
    await check("registered, RSA", registered(rsa.generate_private_key(65537, 2048)))
    await check("registered, ECDSA", registered(ec.generate_private_key(ec.SECP256R1())))
    await check("private topics", private_topics())
    await check("flooded commands", floods())
    await check("JSON", as_json())
    await check("bad input", bad_input())
    print("done", flush=True)


asyncio.run(main())
