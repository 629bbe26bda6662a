#!/usr/bin/python3
"""messenger.py is Qpid Messenger (in C, by ctypes): it sends requests with a reply-to of its own name, and prints each answer.

Its flags: --name NAME (the container id)  --to NAME  --reply-to '~/replies'  --count N. Each request carries correlation id r-n.
"""

import ctypes as c
import sys

from common import emit, flags

lib = c.CDLL("libqpid-proton.so.11")


class Bytes(c.Structure):
    _fields_ = [("size", c.c_size_t), ("start", c.c_char_p)]


for name, result, *args in (
    ("pn_messenger", c.c_void_p, c.c_char_p), ("pn_messenger_set_timeout", c.c_int, c.c_void_p, c.c_int),
    ("pn_messenger_start", c.c_int, c.c_void_p), ("pn_messenger_stop", c.c_int, c.c_void_p),
    ("pn_messenger_set_outgoing_window", c.c_int, c.c_void_p, c.c_int),
    ("pn_messenger_put", c.c_int, c.c_void_p, c.c_void_p), ("pn_messenger_send", c.c_int, c.c_void_p, c.c_int),
    ("pn_messenger_recv", c.c_int, c.c_void_p, c.c_int), ("pn_messenger_get", c.c_int, c.c_void_p, c.c_void_p),
    ("pn_messenger_incoming", c.c_int, c.c_void_p), ("pn_messenger_error", c.c_void_p, c.c_void_p), ("pn_error_text", c.c_char_p, c.c_void_p),
    ("pn_messenger_outgoing_tracker", c.c_int64, c.c_void_p), ("pn_messenger_status", c.c_int, c.c_void_p, c.c_int64),
    ("pn_message", c.c_void_p), ("pn_message_clear", None, c.c_void_p),
    ("pn_message_set_address", c.c_int, c.c_void_p, c.c_char_p), ("pn_message_get_address", c.c_char_p, c.c_void_p),
    ("pn_message_set_reply_to", c.c_int, c.c_void_p, c.c_char_p), ("pn_message_get_reply_to", c.c_char_p, c.c_void_p),
    ("pn_message_correlation_id", c.c_void_p, c.c_void_p), ("pn_message_body", c.c_void_p, c.c_void_p),
    ("pn_data_put_string", c.c_int, c.c_void_p, Bytes), ("pn_data_get_string", Bytes, c.c_void_p),
    ("pn_data_rewind", None, c.c_void_p), ("pn_data_next", c.c_bool, c.c_void_p),
):
    f = getattr(lib, name)
    f.restype, f.argtypes = result, args


def text(data):
    lib.pn_data_rewind(data)
    if not lib.pn_data_next(data):
        return None
    b = lib.pn_data_get_string(data)
    return c.string_at(b.start, b.size).decode() if b.start else None


def put_text(data, s):
    b = s.encode()
    lib.pn_data_put_string(data, Bytes(len(b), b))


f = flags("Qpid Messenger", name="messenger", to="", **{"reply-to": "~/replies"}, count=1)
m, msg = lib.pn_messenger(f.name.encode()), lib.pn_message()
lib.pn_messenger_set_timeout(m, 30000)
lib.pn_messenger_set_outgoing_window(m, 100)


def check(what, code):
    if code < 0:
        emit("error", where=what, description=(lib.pn_error_text(lib.pn_messenger_error(m)) or b"").decode(), code=code)
        sys.exit(1)


check("start", lib.pn_messenger_start(m))
for n in range(f.count):
    lib.pn_message_clear(msg)
    lib.pn_message_set_address(msg, f"{f.url}/{f.to}".encode())
    lib.pn_message_set_reply_to(msg, f.reply_to.encode())
    put_text(lib.pn_message_correlation_id(msg), f"r-{n}")
    check("put", lib.pn_messenger_put(m, msg))
    reply_to = lib.pn_message_get_reply_to(msg).decode()
check("send", lib.pn_messenger_send(m, -1))
emit("sent", reply_to=reply_to, status=lib.pn_messenger_status(m, lib.pn_messenger_outgoing_tracker(m)))
got = 0
while got < f.count:
    check("recv", lib.pn_messenger_recv(m, -1))
    while lib.pn_messenger_incoming(m) > 0:
        check("get", lib.pn_messenger_get(m, msg))
        emit("reply", to=(lib.pn_message_get_address(msg) or b"").decode(), correlation_id=text(lib.pn_message_correlation_id(msg)))
        got += 1
emit("done", received=got)
lib.pn_messenger_stop(m)
