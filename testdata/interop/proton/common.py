"""What the proton clients share: events as lines of JSON, bodies, and messages in words."""

import argparse
import base64
import hashlib
import json
import os
import sys
import uuid

from proton import Described, Message, SSLDomain
from proton.handlers import MessagingHandler


def emit(event, **fields):
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def flags(about, **defaults):
    """Reads --name VALUE; a default of False makes a flag without a value."""
    p = argparse.ArgumentParser(description=about)
    p.add_argument("--url", default="amqp://127.0.0.1:5672")
    for name, default in defaults.items():
        if default is False:
            p.add_argument("--" + name, action="store_true")
        else:
            p.add_argument("--" + name, type=type(default), default=default)
    return p.parse_args()


def login(url):
    """How to log in: by TLS where the URL says amqps, with the certificate of INTEROP_CERT where there is one."""
    if not url.startswith("amqps:"):
        return {"allow_insecure_mechs": True}
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(os.environ["INTEROP_CA"])
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER)  # the name is an address, which proton does not look for in a certificate
    if os.environ.get("INTEROP_CERT"):
        domain.set_credentials(os.environ["INTEROP_CERT"], os.environ["INTEROP_KEY"], None)
        return {"ssl_domain": domain, "allowed_mechs": "EXTERNAL"}
    return {"ssl_domain": domain}


def body(n, size):
    """The data of message number n: byte i is (i mod 251) * 7 + n."""
    block = bytes((i * 7 + n) & 0xFF for i in range(251))
    return (block * (size // 251 + 1))[:size]


def plain(v):
    if isinstance(v, (bytes, memoryview)):
        return {"base64": base64.b64encode(bytes(v)).decode()}
    if isinstance(v, uuid.UUID):
        return str(v)
    if isinstance(v, Described):
        return [plain(v.descriptor), plain(v.value)]
    if isinstance(v, dict):
        return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if v is None or isinstance(v, (bool, float)):
        return v
    if isinstance(v, int):
        return int(v)
    return str(v)


def describe(event):
    """A message that came in: where, and every section."""
    m, link = event.message, event.receiver
    data = bytes(m.body) if isinstance(m.body, (bytes, memoryview)) else None
    if m.body is None and m.inferred:
        data = b""
    return {
        "link": link.name, "target": link.remote_target.address, "source": link.remote_source.address,
        "to": m.address, "id": plain(m.id), "n": plain((m.properties or {}).get("n")), "subject": m.subject,
        "reply_to": m.reply_to, "correlation_id": plain(m.correlation_id), "settled": event.delivery.settled,
        "header": {"durable": m.durable, "priority": int(m.priority), "ttl": m.ttl, "delivery_count": int(m.delivery_count)},
        "delivery_annotations": plain(m.instructions), "message_annotations": plain(m.annotations),
        "application_properties": plain(m.properties),
        "size": None if data is None else len(data), "sha": None if data is None else hashlib.sha256(data).hexdigest(),
        "body": plain(m.body) if data is None else None,
    }


def message(n, size, **fields):
    return Message(body=body(n, size), inferred=True, properties={"n": n}, **fields)


class Client(MessagingHandler):
    """Says what goes wrong on any level as an event "error", and ends."""

    def __init__(self, **options):
        super().__init__(**options)
        self.status = 0
        self.connection = None

    def broken(self, where, endpoint):
        c = endpoint.remote_condition if endpoint is not None else None
        emit("error", where=where, condition=c.name if c else None, description=c.description if c else None)
        self.status = 1

    def on_transport_error(self, event):
        self.broken("transport", None)
        sys.stderr.write(str(event.transport.condition) + "\n")

    def on_connection_error(self, event):
        self.broken("connection", event.connection)
        event.connection.close()

    def on_session_error(self, event):
        self.broken("session", event.session)
        event.connection.close()

    def on_link_error(self, event):
        self.broken("sender" if event.link.is_sender else "receiver", event.link)
        event.connection.close()


def outcome_condition(delivery):
    c = delivery.remote.condition
    return (c.name, c.description) if c else (None, None)
