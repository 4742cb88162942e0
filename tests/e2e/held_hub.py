#!/usr/bin/env python3
"""held_hub.py HUB-PORT FOLDER: a hub of loopback by another port, which is written to FOLDER/port.

While FOLDER/hold exists, requests that list the generations of a run are not passed on, and FOLDER/held exists."""
import os
import pathlib
import socket
import sys
import threading
import time

hub, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])


def carry(source, sink):
    try:
        while data := source.recv(1 << 16):
            while b"GET /list?" in data and b"gen" in data.split(b"\r\n", 1)[0] and (folder / "hold").exists():
                (folder / "held").touch()
                time.sleep(0.02)
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


listener = socket.create_server(("127.0.0.1", 0))
(folder / "port.tmp").write_text(str(listener.getsockname()[1]), "ascii")
os.rename(folder / "port.tmp", folder / "port")
while True:
    client, _ = listener.accept()
    server = socket.create_connection(("127.0.0.1", hub))
    for pair in ((client, server), (server, client)):
        threading.Thread(target=carry, args=pair, daemon=True).start()
