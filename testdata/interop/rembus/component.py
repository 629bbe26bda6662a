"""A component of Rembus, by the protocol's description: cbor2 and websockets do the bytes, nothing of the router is used."""

import asyncio
import hashlib
import itertools
import os
import socket
import ssl

import cbor2
import websockets
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

IDENTITY, PUBLISH, RPC, ADMIN, RESPONSE, ACK, ACK2, UNREGISTER, REGISTER, ATTESTATION = 0, 1, 2, 3, 4, 5, 6, 9, 10, 11
QOS1, QOS2 = 0x10, 0x30


class Failed(Exception):
    def __init__(self, status, data):
        super().__init__(f"{status} {data!r}")
        self.status, self.data = status, data


class WebSocket:
    @classmethod
    async def connect(cls, url, ca=None):
        self = cls()
        secure = ssl.create_default_context(cafile=ca) if ca else None
        self.ws = await websockets.connect(url, max_size=60 << 20, ssl=secure)
        return self

    async def send(self, b):
        await self.ws.send(b)

    async def recv(self):
        return await self.ws.recv()

    async def close(self):
        await self.ws.close()


class TCP:
    @classmethod
    async def connect(cls, url, ca=None):
        self = cls()
        host, port = url.split("://")[1].split(":")
        secure = ssl.create_default_context(cafile=ca) if ca else None
        self.r, self.w = await asyncio.open_connection(host, int(port), ssl=secure)
        return self

    async def send(self, b):
        n = len(b)
        head = bytes([0x81, n]) if n < 256 else b"\x8d" + n.to_bytes(2, "big") if n < 65536 else b"\x8f" + n.to_bytes(4, "big")
        self.w.write(head + b)
        await self.w.drain()

    async def recv(self):
        kind = (await self.r.readexactly(1))[0]
        n = int.from_bytes(await self.r.readexactly({0x81: 1, 0x8D: 2, 0x8F: 4}[kind]), "big")
        return await self.r.readexactly(n)

    async def close(self):
        self.w.close()


class Component:
    """One connection. publishes and floods collect what comes unasked; methods answer requests."""

    @classmethod
    async def connect(cls, url, name=None, key=None, secret=None, idlen=8, ca=None, tries=500):
        """Connects and says a name. One that is connected still, for it was just closed, is tried again."""
        while True:
            try:
                return await cls.connect_once(url, name, key, secret, idlen, ca)
            except Failed as e:
                tries -= 1
                if e.data != "already connected" or tries == 0:
                    raise
                await asyncio.sleep(0.01)

    @classmethod
    async def connect_once(cls, url, name, key, secret, idlen, ca):
        self = cls()
        self.name, self.idlen = name, idlen
        self.t = await (TCP if url.startswith("t") else WebSocket).connect(url, ca)
        self.waiting, self.methods, self.challenge = {}, {}, None
        self.publishes, self.floods, self.acks = asyncio.Queue(), asyncio.Queue(), asyncio.Queue()
        self.answers_acks = True
        self.reader = asyncio.create_task(self.read())
        if name is not None:
            try:
                await self.login(key, secret)
            except Exception:
                await self.close()
                raise
        return self

    def new_id(self):
        return os.urandom(self.idlen)

    async def login(self, key=None, secret=None):
        try:
            return await self.ask(IDENTITY, self.name)
        except Failed as e:
            if e.status != 11:
                raise
            plain = cbor2.dumps([e.data, secret if secret is not None else self.name])
        if secret is not None:
            proof = hashlib.sha256(plain).digest()
        elif isinstance(key, rsa.RSAPrivateKey):
            proof = key.sign(plain, padding.PKCS1v15(), hashes.SHA256())
        else:
            proof = key.sign(plain, ec.ECDSA(hashes.SHA256()))
        return await self.ask(ATTESTATION, self.name, proof)

    async def send(self, *frame):
        await self.t.send(cbor2.dumps(list(frame)))

    async def ask(self, kind, *rest, timeout=30):
        id = self.new_id()
        self.waiting[id] = asyncio.get_running_loop().create_future()
        await self.send(kind, id, *rest)
        status, data = await asyncio.wait_for(self.waiting[id], timeout)
        if status != 0:
            raise Failed(status, data)
        return data

    async def admin(self, topic, cmd, **more):
        return await self.ask(ADMIN, topic, {"cmd": cmd, **more})

    async def subscribe(self, topic, msg_from=0.0):
        return await self.admin(topic, "subscribe", msg_from=msg_from)

    async def reactive(self):
        return await self.admin("__config__", "reactive", status=True)

    async def expose(self, topic, method):
        self.methods[topic] = method
        return await self.admin(topic, "expose")

    async def rpc(self, topic, *args, target=None, timeout=30):
        return await self.ask(RPC, topic, target, list(args), timeout=timeout)

    async def publish(self, topic, *args, qos=0):
        if qos == 0:
            await self.send(PUBLISH, topic, list(args))
            return
        id = self.new_id()
        self.waiting[id] = asyncio.get_running_loop().create_future()
        await self.send(PUBLISH | qos, id, topic, list(args))
        await asyncio.wait_for(self.waiting[id], 30)
        if qos == QOS2:
            await self.send(ACK2, id)

    async def register(self, name, pin, key):
        public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return await self.ask(REGISTER, name, pin, public, 1 if isinstance(key, rsa.RSAPrivateKey) else 2)

    async def next(self, timeout=30):
        return await asyncio.wait_for(self.publishes.get(), timeout)

    async def read(self):
        try:
            while True:
                await self.take(cbor2.loads(await self.t.recv()))
        except (websockets.ConnectionClosed, asyncio.IncompleteReadError, ConnectionError):
            pass
        for f in self.waiting.values():
            if not f.done():
                f.set_exception(ConnectionError("closed"))

    async def take(self, m):
        kind, flags = m[0] & 15, m[0] & 0xF0
        if kind == PUBLISH:
            if flags & QOS1:
                await self.acks.put((m[0], m[1]))
                if self.answers_acks:
                    await self.send(ACK, m[1])
            await self.publishes.put((m[-2], m[-1]))
        elif kind == RPC:
            _, id, topic, target, args = m
            if topic not in self.methods:
                await self.send(RESPONSE, id, 42, topic)
                return
            try:
                await self.send(RESPONSE, id, 0, self.methods[topic](*args))
            except Exception as e:
                await self.send(RESPONSE, id, 40, str(e))
        elif kind == ADMIN:
            await self.floods.put((m[2], m[3]))
            await self.send(RESPONSE, m[1], 0, None)
        elif kind == RESPONSE:
            f = self.waiting.pop(m[1], None)
            if f is None and m[2] == 11:
                self.challenge = m[3]
            elif f and not f.done():
                f.set_result((m[2], m[3]))
        elif kind == ACK:
            f = self.waiting.pop(m[1], None)
            if f and not f.done():
                f.set_result(None)
        elif kind == ACK2:
            await self.acks.put((m[0], m[1]))

    async def close(self):
        await self.t.close()
        await self.reader
