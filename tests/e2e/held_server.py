#!/usr/bin/env python3
"""held_server.py FOLDER: a data set of Hugging Face on loopback, whose bytes a test holds back.

The files are those of FOLDER/data, at hf://datasets/a/b/ with HF_ENDPOINT=http://127.0.0.1:PORT; FOLDER/port gets PORT.
While FOLDER/hold exists, a request for bytes of the part that it names ("NAME BEGIN END") is not answered, and
FOLDER/held has a line for it. FOLDER/requests has a line "NAME BEGIN END" for each answer. A file's ETag follows from
its bytes, and If-Match is obeyed."""
import hashlib
import json
import pathlib
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

root = pathlib.Path(sys.argv[1])


def is_held(name, begin, end):
    try:
        held, first, last = (root / "hold").read_text("ascii").split()
    except FileNotFoundError:
        return False
    return name == held and begin < int(last) and int(first) < end


def note(what, line):
    with open(root / what, "a", encoding="ascii") as file:
        file.write(line + "\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def send(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        files = sorted((root / "data").iterdir())
        if self.path == "/api/datasets/a/b/tree/main":
            entries = [{"type": "file", "path": f.name, "size": f.stat().st_size} for f in files]
            return self.send(200, json.dumps(entries).encode())
        name = self.path.rpartition("/")[2]
        if self.path != "/datasets/a/b/resolve/main/" + name or name not in [f.name for f in files]:
            return self.send(404)
        data = (root / "data" / name).read_bytes()
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(match[1]), min(int(match[2]) + 1, len(data))) if match else (0, len(data))
        if is_held(name, begin, end):
            note("held", f"{name} {begin} {end}")
            while is_held(name, begin, end):
                time.sleep(0.05)
            data = (root / "data" / name).read_bytes()
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        if self.headers.get("If-Match", etag) != etag:
            return self.send(412)
        note("requests", f"{name} {begin} {end}")
        if not match:
            return self.send(200, data, [("ETag", etag)])
        return self.send(206, data[begin:end], [("ETag", etag), ("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")])


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
(root / "port.part").write_text(str(server.server_port), "ascii")
(root / "port.part").rename(root / "port")
server.serve_forever()
