#!/usr/bin/env python3
"""free_port.py: prints a port of loopback without a listener.

The port is outside the range from which the system assigns ports. Other tests get such ports all
the time, also between this and the start of the server, or while that is down.
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
