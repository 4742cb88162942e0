#!/usr/bin/env python3
"""sshd_front.py CONFIG PORT-FILE: OpenSSH's sshd on a port of 127.0.0.1 that the kernel chose.

Each connection is served by a `sshd -i` of its own. The port is written into PORT-FILE once it
listens. SIGUSR1 cuts all connections, SIGUSR2 stops listening as well; SIGTERM ends it, and so does
the end of its parent. CONFIG.cut-upload, while it exists, makes the next connection that has received
more than a megabyte break; the file is removed then."""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading

config, port_file = sys.argv[1:]
sshd = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
cut_file = config + ".cut-upload"
listener = socket.create_server(("127.0.0.1", 0))
pairs = set()
lock = threading.Lock()


def close_pair(pair):
    with lock:
        pairs.discard(pair)
    for end in pair:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def carry(client):
    ours, theirs = socket.socketpair()
    child = subprocess.Popen([sshd, "-i", "-f", config], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
    theirs.close()
    pair = (client, ours)
    with lock:
        pairs.add(pair)
    received = 0
    try:
        while True:
            ready, _, _ = select.select(pair, [], [])
            for end in ready:
                data = end.recv(1 << 16)
                if not data:
                    return
                if end is client:
                    received += len(data)
                    if received > 1 << 20 and os.path.exists(cut_file):
                        os.unlink(cut_file)
                        return
                (ours if end is client else client).sendall(data)
    except OSError:
        pass
    finally:
        close_pair(pair)
        ours.close()
        client.close()
        child.wait()


def accept():
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=carry, args=(client,), daemon=True).start()


def cut(_signal, _frame):
    for pair in list(pairs):
        close_pair(pair)


def deaf(signal_, frame):
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    listener.close()
    cut(signal_, frame)


def end(_signal, _frame):
    os._exit(0)


signal.signal(signal.SIGUSR1, cut)
signal.signal(signal.SIGUSR2, deaf)
signal.signal(signal.SIGTERM, end)
threading.Thread(target=accept, daemon=True).start()
with open(port_file + ".tmp", "w", encoding="ascii") as file:
    file.write(f"{listener.getsockname()[1]}\n")
os.rename(port_file + ".tmp", port_file)
parent = os.getppid()
while os.getppid() == parent:  # signals are handled here
    signal.sigtimedwait([], 0.5)
