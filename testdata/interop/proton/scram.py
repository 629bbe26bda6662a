#!/usr/bin/python3
"""scram.py logs in by SCRAM over TLS with nothing but Python's own library, and opens a connection: "opened", or "refused".

  --url amqps://host:port  --user U  --password P  --mechanism SCRAM-SHA-256
"""

import argparse
import base64
import hashlib
import hmac
import os
import socket
import ssl
import struct
import sys
from urllib.parse import urlparse

from common import emit

p = argparse.ArgumentParser()
for name in ("url", "user", "password", "mechanism"):
    p.add_argument("--" + name, required=True)
f = p.parse_args()
hash_name = f.mechanism.removeprefix("SCRAM-").replace("-", "").lower()

u = urlparse(f.url)
context = ssl.create_default_context(cafile=os.environ["INTEROP_CA"])
conn = context.wrap_socket(socket.create_connection((u.hostname, u.port), timeout=30), server_hostname=u.hostname)


def exactly(n):
    data = b""
    while len(data) < n:
        more = conn.recv(n - len(data))
        if not more:
            emit("refused", at="the connection is closed")
            sys.exit(0)
        data += more
    return data


def binary(b):
    return b"\xb0" + struct.pack(">I", len(b)) + b


def symbol(s):
    return b"\xa3" + bytes([len(s)]) + s.encode()


def send(kind, descriptor, *fields):
    items = b"".join(fields)
    body = b"\x00\x53" + bytes([descriptor]) + b"\xd0" + struct.pack(">II", len(items) + 4, len(fields)) + items
    conn.sendall(struct.pack(">IBBH", len(body) + 8, 2, kind, 0) + body)


def receive():
    """Gives the descriptor of a frame and the bytes of its list."""
    size, offset, _, _ = struct.unpack(">IBBH", exactly(8))
    body = exactly(size - 8)[(offset - 2) * 4:]
    code = body[3]
    if code == 0x45:
        return body[2], b""
    return body[2], body[6:] if code == 0xC0 else body[12:]


def read_binary(b):
    if b[:1] == b"\xa0":
        return b[2:2 + b[1]]
    if b[:1] == b"\xb0":
        return b[5:5 + struct.unpack(">I", b[1:5])[0]]
    return b""


def expect(descriptor):
    got, fields = receive()
    if got == 0x44 and descriptor != 0x44:
        emit("refused", at="outcome %d" % fields[1])
        sys.exit(0)
    if got != descriptor:
        emit("error", where="frame", description="got 0x%x, want 0x%x" % (got, descriptor))
        sys.exit(1)
    return fields


def mac(key, text):
    return hmac.new(key, text, hash_name).digest()


conn.sendall(b"AMQP\x03\x01\x00\x00")
exactly(8)
offered = expect(0x40)
if f.mechanism.encode() not in offered:
    emit("refused", at="not offered")
    sys.exit(0)
nonce = base64.b64encode(os.urandom(18)).decode()
bare = "n=%s,r=%s" % (f.user.replace("=", "=3D").replace(",", "=2C"), nonce)
send(1, 0x41, symbol(f.mechanism), binary(("n,," + bare).encode()))
first = read_binary(expect(0x42)).decode()
parts = dict(x.split("=", 1) for x in first.split(","))
assert parts["r"].startswith(nonce) and len(parts["r"]) > len(nonce)
salted = hashlib.pbkdf2_hmac(hash_name, f.password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
client_key = mac(salted, b"Client Key")
final = "c=biws,r=" + parts["r"]
signed = ",".join((bare, first, final)).encode()
signature = mac(hashlib.new(hash_name, client_key).digest(), signed)
proof = bytes(a ^ b for a, b in zip(client_key, signature))
send(1, 0x43, binary((final + ",p=" + base64.b64encode(proof).decode()).encode()))
outcome = expect(0x44)
code, additional = outcome[1], read_binary(outcome[2:])
if code != 0:
    emit("refused", at="outcome %d" % code)
    sys.exit(0)
assert additional == b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), signed)), additional
conn.sendall(b"AMQP\x00\x01\x00\x00")
exactly(8)
send(0, 0x10, b"\xa1\x05scram")
expect(0x10)
emit("opened", mechanism=f.mechanism)
