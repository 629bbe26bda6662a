#!/usr/bin/python3
"""storm.py is many clients that come back. Its flags and what it tells are those of rhea/storm.js."""

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container

from common import emit, flags


class One(MessagingHandler):
    """A client: one message at a time, to itself."""

    def __init__(self, f, i, storm):
        super().__init__(prefetch=10)
        self.f, self.i, self.storm = f, i, storm
        self.address = f"{f.name}/{i}"
        self.received, self.sent = set(), {}
        self.n = 0
        self.sender = None

    def begin(self, container):
        # A heartbeat, for proton does not notice the end of a connection after the peer's close until it has something to write.
        c = container.connect(self.f.url, reconnect=Backoff(initial=0.02, max_delay=1), heartbeat=4, allow_insecure_mechs=True, handler=self)
        container.create_receiver(c, self.address, handler=self)
        self.sender = container.create_sender(c, self.address, handler=self)

    def on_connection_opened(self, event):
        self.storm.sum["connects"] += 1
        self.sent.clear()

    def on_disconnected(self, event):
        self.storm.fresh.discard(self.i)

    def send(self):
        if self.sender.credit > 0 and not self.sent and self.sender.connection.state & 16:  # the peer has opened
            d = self.sender.send(Message(id=str(self.n), address=self.address, body=str(self.n)))
            self.sent[d.tag] = str(self.n)
            self.n += 1

    def on_message(self, event):
        self.received.add(event.message.id)

    def on_accepted(self, event):
        n = self.sent.pop(event.delivery.tag, None)
        if n is None:
            return
        self.storm.sum["accepted"] += 1
        if n not in self.received:
            self.storm.sum["lost"] += 1
        self.received.discard(n)
        self.storm.fresh.add(self.i)

    def on_released(self, event):
        self.sent.pop(event.delivery.tag, None)

    on_rejected = on_modified = on_released

    def on_transport_error(self, event):
        pass

    on_connection_error = on_session_error = on_link_error = on_transport_error


class Storm(MessagingHandler):
    def __init__(self, f):
        super().__init__()
        self.f = f
        self.sum = {"connects": 0, "accepted": 0, "lost": 0}
        self.fresh = set()
        self.ones = [One(f, i, self) for i in range(f.count)]
        self.ticks = 0

    def on_start(self, event):
        self.container = event.container
        for one in self.ones:
            one.begin(event.container)
        event.container.schedule(0.2, self)

    def on_timer_task(self, event):
        for one in self.ones:
            one.send()
        self.ticks += 1
        if self.ticks % 5 == 0:
            emit("state", fresh=len(self.fresh), **self.sum)
        self.container.schedule(0.2, self)


Container(Storm(flags("many clients that come back", name="storm", count=1))).run()
