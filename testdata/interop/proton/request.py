#!/usr/bin/python3
"""request.py sends requests with a dynamic reply address, and prints each answer. Its flags are those of rhea/request.js."""

import sys

from proton.reactor import Container

from common import Client, describe, emit, flags, message, outcome_condition


class Request(Client):
    def __init__(self, f):
        super().__init__(prefetch=20)
        self.f = f
        self.sizes = [int(s) for s in f.sizes.split(",")]
        self.sent = 0
        self.answered = 0
        self.sender = None

    def on_start(self, event):
        self.connection = event.container.connect(self.f.url, reconnect=False, heartbeat=0)
        self.receiver = event.container.create_receiver(self.connection, None, dynamic=True)

    def on_link_opened(self, event):
        if event.receiver == self.receiver and self.receiver.remote_source.address:
            emit("attached", address=self.receiver.remote_source.address)
            self.sender = event.container.create_sender(self.connection, self.f.to)

    def on_sendable(self, event):
        while self.sent < self.f.count and self.sender.credit:
            n = self.sent
            self.sent += 1
            self.sender.send(message(n, self.sizes[n % len(self.sizes)], address=self.f.to, id=f"r-{n}", correlation_id=f"r-{n}",
                                     reply_to=self.receiver.remote_source.address))

    def on_rejected(self, event):
        self.failed("rejected", event)

    def on_released(self, event):
        self.failed("released", event)

    def failed(self, state, event):
        condition, description = outcome_condition(event.delivery)
        emit("outcome", state=state, condition=condition, description=description)

    def on_message(self, event):
        emit("reply", **describe(event))
        self.answered += 1
        if self.answered >= self.f.count:
            emit("done", received=self.answered)
            self.connection.close()


h = Request(flags("request", to="", count=1, sizes="100"))
Container(h).run()
sys.exit(h.status)
