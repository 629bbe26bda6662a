#!/usr/bin/python3
"""recv.py receives messages and prints each. Its flags are those of rhea/recv.js."""

import sys

from proton import Condition, Delivery, Endpoint, Message, symbol
from proton.reactor import AtMostOnce, Container, LinkOption, ReceiverOption

from common import Client, describe, emit, flags, login


class Capability(ReceiverOption):
    def __init__(self, name):
        self.name = name

    def apply(self, receiver):
        receiver.source.capabilities.put_array(False, 21)  # symbols
        receiver.source.capabilities.enter()
        receiver.source.capabilities.put_symbol(symbol(self.name))
        receiver.source.capabilities.exit()


class Recv(Client):
    def __init__(self, f):
        super().__init__(prefetch=0 if f.credit else f.window, auto_accept=False, auto_settle=True)
        self.f = f
        self.got = 0
        self.attached = 0
        self.receivers = []
        self.replier = None

    def on_start(self, event):
        f = self.f
        self.connection = event.container.connect(f.url, reconnect=False, heartbeat=0, **login(f.url))
        sessions = [self.connection.session() for _ in range(f.sessions)]
        for s in sessions:
            s.open()
        options = [AtMostOnce()] if f.settled else []
        if f.capability:
            options.append(Capability(f.capability))
        for i in range(f.links):
            r = event.container.create_receiver(sessions[i % f.sessions], None if f.dynamic else f.address, name=f"proton-{id(self)}-{i}",
                                                dynamic=f.dynamic, options=options)
            self.receivers.append(r)
            if f.credit:
                if f.drain:
                    r.drain(f.credit)
                else:
                    r.flow(f.credit)
        if f.reply:
            self.replier = event.container.create_sender(self.connection, None)

    def on_link_opened(self, event):
        if event.link.is_receiver and event.link.remote_source.address:
            emit("attached", link=event.link.name, address=event.link.remote_source.address)
            self.attached += 1
            if self.attached == self.f.links:
                emit("ready")

    def on_message(self, event):
        f, d, m = self.f, event.delivery, event.message
        self.got += 1
        if not f.quiet:
            emit("message", **describe(event))
        if f.reply and m.reply_to:
            self.replier.send(Message(address=m.reply_to, correlation_id=m.correlation_id if m.correlation_id is not None else m.id,
                                      properties=m.properties, body=bytes(m.body or b""), inferred=True))
        settle(f.outcome, d)
        if f.count and self.got >= f.count and not f.drain:
            self.end()

    def on_link_flow(self, event):
        if event.link.is_receiver and self.f.drain and event.link.credit == 0 and not event.link.draining():
            emit("drained", link=event.link.name, received=self.got)
            if not self.f.count or self.got >= self.f.count:
                self.end()

    def end(self):
        if self.connection.state & Endpoint.LOCAL_CLOSED:
            return
        emit("done", received=self.got)
        self.connection.close()


def settle(outcome, delivery):
    states = {"accept": Delivery.ACCEPTED, "release": Delivery.RELEASED, "reject": Delivery.REJECTED, "modify": Delivery.MODIFIED}
    if outcome not in states:
        return
    if outcome == "modify":
        delivery.local.failed = True
    if outcome == "reject":
        delivery.local.condition = Condition("amqp:precondition-failed", "as the test asked")
    delivery.update(states[outcome])
    delivery.settle()


if __name__ == "__main__":
    f = flags("receive messages", address="", dynamic=False, count=0, credit=0, drain=False, window=100, links=1, sessions=1, capability="",
              outcome="accept", settled=False, reply=False, quiet=False)
    h = Recv(f)
    Container(h).run()
    sys.exit(h.status)
