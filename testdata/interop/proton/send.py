#!/usr/bin/python3
"""send.py sends messages and prints what became of each. Its flags are those of rhea/send.js."""

import sys

from proton import Delivery
from proton.reactor import AtLeastOnce, AtMostOnce, Container

from common import Client, emit, flags, login, message, outcome_condition

NAMES = {Delivery.ACCEPTED: "accepted", Delivery.REJECTED: "rejected", Delivery.RELEASED: "released", Delivery.MODIFIED: "modified"}


class Send(Client):
    def __init__(self, f):
        super().__init__(auto_settle=True)
        self.f = f
        self.sizes = [int(s) for s in f.sizes.split(",")]
        self.allowed = 0 if f.rate else f.count
        self.sum = {"sent": 0, "accepted": 0, "rejected": 0, "released": 0, "modified": 0}
        self.ended = 0
        self.names = {}
        self.senders = []
        self.finished = False

    def on_start(self, event):
        f = self.f
        self.container = event.container
        self.connection = event.container.connect(f.url, reconnect=False, heartbeat=0, **login(f.url))
        sessions = [self.connection.session() for _ in range(f.sessions)]
        for s in sessions:
            s.open()
        for i in range(f.links):
            self.senders.append(event.container.create_sender(
                sessions[i % f.sessions], f.address or None, name=f"proton-{id(self)}-{i}", options=AtMostOnce() if f.settled else AtLeastOnce()))
        if f.rate:
            event.container.schedule(0.01, self)

    def on_timer_task(self, event):
        self.allowed += max(1, self.f.rate // 100)
        self.more()
        if not self.finished:
            self.container.schedule(0.01, self)

    def on_sendable(self, event):
        self.more()

    def more(self):
        moved = True
        while moved:
            moved = False
            for s in self.senders:
                n = self.sum["sent"]
                if n >= min(self.f.count, self.allowed) or s.credit <= 0 or s.queued > 100:
                    continue
                moved = True
                m = message(n, self.sizes[n % len(self.sizes)], id=f"{self.f.id}-{n}")
                if self.f.to:
                    m.address = self.f.to
                d = s.send(m, tag=f"{n}")
                self.sum["sent"] += 1
                if self.f.settled:
                    self.ended += 1
                else:
                    self.names[f"{s.name} {d.tag}"] = {"id": m.id, "n": n}
        self.finish()

    def on_delivery(self, event):
        d = event.delivery
        if event.link.is_sender and d.updated and d.remote_state in NAMES:
            known = self.names.pop(f"{event.link.name} {d.tag}", None)
            if known is not None:
                state = NAMES[d.remote_state]
                self.sum[state] += 1
                self.ended += 1
                if not self.f.quiet:
                    condition, description = outcome_condition(d)
                    emit("outcome", **known, state=state, condition=condition, description=description)
        self.finish()

    def finish(self):
        if self.ended >= self.f.count and not self.finished:
            self.finished = True
            emit("done", **self.sum)
            self.connection.close()


f = flags("send messages", address="", to="", count=1, sizes="100", settled=False, rate=0, links=1, sessions=1, id="m", quiet=False)
h = Send(f)
Container(h).run()
sys.exit(h.status)
