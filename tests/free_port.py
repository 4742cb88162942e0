#!/usr/bin/env python3
"""free_port.py: prints a port of loopback without a listener.

It is none that the system gives to whoever asks for any: other tests do that all the time, also
between this and the start of the server that is to have the port, or while that is down.
"""
import random
import socket

while True:
    port = random.randrange(12000, 32000)
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break
