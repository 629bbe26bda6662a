#!/usr/bin/python3
"""serve.py is a receiver that listens: it takes any link and prints each message. Its flags are those of rhea/serve.js."""

import socket
import sys

from proton import Message
from proton.reactor import Container

from common import Client, describe, emit, flags
from recv import settle


class Serve(Client):
    def __init__(self, f):
        super().__init__(prefetch=f.window, auto_accept=False, auto_settle=True)
        self.f = f

    def on_start(self, event):
        self.acceptor = event.container.listen(f"amqp://127.0.0.1:{self.f.port}")
        emit("listening", port=self.f.port)

    def on_connection_opened(self, event):
        emit("connection", container=event.connection.remote_container)

    def on_link_opening(self, event):
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if link.is_receiver:
            emit("attached", link=link.name, address=link.remote_target.address)

    def on_message(self, event):
        m = event.message
        if not self.f.quiet:
            emit("message", **describe(event))
        if self.f.echo and m.reply_to:
            s = event.container.create_sender(event.connection, m.reply_to)
            s.send(Message(address=m.reply_to, correlation_id=m.correlation_id if m.correlation_id is not None else m.id,
                           body=bytes(m.body or b""), inferred=True))
        settle(self.f.outcome, event.delivery)

    # A peer that goes is no failure of a listener.
    def on_transport_error(self, event):
        emit("disconnected")

    def on_connection_error(self, event):
        self.broken("connection", event.connection)
        event.connection.close()


def free_port():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
    s.close()
    return port


f = flags("listen", port=0, window=100, outcome="accept", echo=False, quiet=False)
f.port = f.port or free_port()
Container(Serve(f)).run()
sys.exit(0)
