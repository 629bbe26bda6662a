"""Asks a router by HTTP, with a component behind it: each line printed is one check that held. Arguments: the URL of a WebSocket listener, that of HTTP, and the
secret of the component keeper."""

import asyncio
import json
import sys
import urllib.error
import urllib.request
from base64 import b64encode

from component import Component

WS, HTTP, SECRET = sys.argv[1:4]


def request(method, path, body=None, user=None):
    q = urllib.request.Request(HTTP + path, method=method, data=None if body is None else json.dumps(body).encode())
    if user is not None:
        q.add_header("Authorization", "Basic " + b64encode(user.encode()).decode())
    try:
        with urllib.request.urlopen(q, timeout=30) as w:
            status, text = w.status, w.read()
    except urllib.error.HTTPError as e:
        status, text = e.code, e.read()
    return status, json.loads(text) if text else None


async def ask(*args):
    return await asyncio.to_thread(request, *args)


async def main():
    c = await Component.connect(WS, "sensor")
    await c.subscribe("news")
    await c.reactive()
    await c.expose("add", lambda x, y: x + y)

    assert await ask("POST", "/news", [1, {"two": 2.5}]) == (200, None)
    assert await c.next() == ("news", [1, {"two": 2.5}])
    assert await ask("POST", "/news") == (200, None)
    assert await c.next() == ("news", [])
    print("publishes")

    assert await ask("GET", "/add", [1, 2]) == (200, 3)
    status, why = await ask("GET", "/add", [1])
    assert status == 403 and "argument" in why, why
    assert (await ask("GET", "/add", [1, 2], "sensor"))[0] == 404
    print("requests")

    assert await ask("POST", "/", {"jsonrpc": "2.0", "id": 7, "method": "sensor/add", "params": [3, 4]}) == (200, {"jsonrpc": "2.0", "id": 7, "result": 7})
    got = await ask("POST", "/", [{"jsonrpc": "2.0", "method": "news", "params": ["note"]}, {"jsonrpc": "2.0", "id": "b", "method": "add", "params": [5, 6]}])
    assert got == (200, [{"jsonrpc": "2.0", "id": "b", "result": 11}]), got
    assert await c.next() == ("news", ["note"])
    print("JSON-RPC")

    assert (await ask("POST", "/private_topic/news", None, "keeper:no"))[0] == 403
    assert await ask("POST", "/private_topic/news", None, "keeper:" + SECRET) == (200, None)
    assert (await ask("POST", "/news", [1]))[0] == 403
    assert await ask("GET", "/admin/private_topics_config", None, "keeper:" + SECRET) == (200, {"news": []})
    print("commands")

    assert await ask("POST", "/subscribe/later/newcomer") == (200, None)
    n = await Component.connect(WS, "newcomer")
    await n.reactive()
    assert await ask("POST", "/later", ["here"]) == (200, None)
    assert await n.next() == ("later", ["here"])
    print("configuration")

    for x in c, n:
        await x.close()
    print("done")


asyncio.run(main())
