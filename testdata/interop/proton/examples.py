#!/usr/bin/python3
"""examples.py is what the examples of qpid-proton's documentation show, one for each name."""

import sys

from proton import Message
from proton.handlers import TransactionHandler
from proton.reactor import AtLeastOnce, Container, Copy, Selector
from proton.utils import BlockingConnection, SyncRequestResponse

from common import Client, emit, flags, login

COLOURS = ["green", "red", "green"]


class Receive(Client):
    """Sends three messages to itself: helloworld, selected_recv, queue_browser."""

    def __init__(self, f):
        super().__init__()
        self.f = f
        self.got = []
        self.options = {"helloworld": [], "selector": [Selector("colour = 'green'")], "browser": [Copy()]}[f.example]
        self.sent = False

    def on_start(self, event):
        self.connection = event.container.connect(self.f.url, reconnect=False, **login(self.f.url))
        self.receiver = event.container.create_receiver(self.connection, self.f.address, options=self.options)

    def on_link_opened(self, event):
        if event.receiver == self.receiver:
            data = event.receiver.remote_source.filter
            emit("source", filter=str(data.get_object()) if data.next() else None)
            event.container.create_sender(self.connection, self.f.address)

    def on_sendable(self, event):
        if not self.sent:
            self.sent = True
            for n, colour in enumerate(COLOURS):
                event.sender.send(Message(id=n, body=colour, properties={"colour": colour}))

    def on_message(self, event):
        self.got.append(event.message.body)
        if len(self.got) == len(COLOURS):
            emit("done", got=" ".join(self.got))
            self.connection.close()


class Transaction(Client, TransactionHandler):
    """tx_send: the router has no transactions, and says so."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def on_start(self, event):
        self.connection = event.container.connect(self.f.url, reconnect=False, **login(self.f.url))
        event.container.declare_transaction(self.connection, handler=self)


def blocking(f):
    """helloworld_blocking."""
    c = BlockingConnection(f.url, **login(f.url))
    receiver = c.create_receiver(f.address)
    sender = c.create_sender(f.address, options=AtLeastOnce())
    got = []
    receiver.link.flow(len(COLOURS))
    for n, colour in enumerate(COLOURS):
        sender.link.send(Message(id=n, body=colour))
        got.append(receiver.receive(timeout=30).body)
        receiver.accept()
    emit("done", got=" ".join(got))
    c.close()


def sync(f):
    """sync_client: requests, each with a correlation id, to a service that answers with the same body."""
    c = BlockingConnection(f.url, **login(f.url))
    client = SyncRequestResponse(c, f.address)
    got = [bytes(client.call(Message(body=colour.encode(), inferred=True)).body).decode() for colour in COLOURS]
    emit("done", got=" ".join(got))
    c.close()


f = flags("examples", example="", address="examples")
if f.example in ("blocking", "sync"):
    {"blocking": blocking, "sync": sync}[f.example](f)
else:
    h = (Transaction if f.example == "transaction" else Receive)(f)
    Container(h).run()
    sys.exit(h.status)
