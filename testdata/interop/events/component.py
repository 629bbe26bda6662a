"""A component of an event router, in Python: all that another language needs is a WebSocket library and JSON.

    python3 component.py --url ws://127.0.0.1:8080/router/manager --name Mail --answer SendMail --listen Log

It answers requests of the types of --answer, and prints what it gets, a JSON object a line, as well as what it is told when it has subscribed.
Where the connection is lost it comes again, and goes on where it was: at the time of the last event that it finished.
"""

import argparse
import asyncio
import json
import sys

import websockets


class Component:
    def __init__(self, options):
        self.options = options
        self.last = {}  # (type, direction) -> (time of the last event that was finished, ids finished at that time)

    async def run(self):
        while True:
            try:
                async with websockets.connect(self.options.url, max_size=None, extra_headers=self.headers()) as ws:
                    await self.session(ws)
            except (OSError, websockets.WebSocketException) as e:
                print(f"the connection is lost: {e}", file=sys.stderr)
            await asyncio.sleep(0.1)

    def headers(self):
        return {"Authorization": "Bearer " + self.options.token} if self.options.token else {}

    async def session(self, ws):
        await ws.send(json.dumps({"op": "hello", "name": self.options.name, "protocol": 1, "restart": self.options.restart}))
        welcome = json.loads(await ws.recv())
        if welcome["op"] != "welcome":
            raise OSError(welcome)
        if self.options.shareable:
            await ws.send(json.dumps({"op": "types", "shareable": self.options.shareable}))
        wanted = [(t, "request") for t in self.options.answer + self.options.listen] + [(t, "response") for t in self.options.response]
        for kind in wanted:
            time, _ = self.last.get(kind, ("restart", None))
            await ws.send(json.dumps({"op": "subscribe", "ref": list(kind), "type": kind[0], "direction": kind[1], "from_time": time}))
        async for text in ws:
            await self.frame(ws, json.loads(text))

    async def frame(self, ws, f):
        if f["op"] == "health_check":
            await ws.send(json.dumps({"op": "health", "check": f["check"], "status": "OK", "exceptions": []}))
            return
        if f["op"] != "event":
            print(json.dumps(f), flush=True)
            return
        kind = (f["type"], f["direction"])
        time, finished = self.last.get(kind, ("", set()))
        if f["time"] == time and f["id"] in finished:
            return  # a replay from there has it again
        print(json.dumps(f), flush=True)
        if f["type"] in self.options.answer and "response" not in f:
            answer = {k: f[k] for k in ("id", "type", "data", "context") if k in f}
            await ws.send(json.dumps({"op": "event", **answer, "response": {"status": "OK", "data": {"by": self.options.name}}}))
        self.last[kind] = (f["time"], finished | {f["id"]} if f["time"] == time else {f["id"]})


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--url", required=True)
    p.add_argument("--name", required=True)
    p.add_argument("--token", default="")
    p.add_argument("--restart", default="self")
    for name in ("answer", "listen", "response", "shareable"):
        p.add_argument("--" + name, action="append", default=[], metavar="TYPE")
    try:
        asyncio.run(Component(p.parse_args()).run())
    except KeyboardInterrupt:
        pass


main()
