#!/usr/bin/env python3
"""hf_front.py FOLDER: the S3 gateway of Hugging Face's Storage Buckets on loopback, in front of the real S3 server
$S3_TEST_ENDPOINT.

From the documentation of the gateway: the owner is the first part of the path, keys begin with HFAK, the region is
us-east-1. Every signature is verified against HFAKTEST and $HF_TEST_SECRET. Reads of objects are redirected to a second
server, `localhost`, by an address that works once. That one refuses each request that has more than a range and a
condition. FOLDER/ports gets both ports. It shows that the store speaks as the documentation says, not that Hugging Face
does. Python's standard library only."""
import datetime
import hashlib
import hmac
import http.client
import os
import pathlib
import re
import secrets
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OWNER = "/alice"
addresses = {}  # token: path of an object
upstream = urllib.parse.urlsplit(os.environ["S3_TEST_ENDPOINT"]).netloc
theirs = (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
ours = ("HFAKTEST", os.environ["HF_TEST_SECRET"])


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(secret, verb, path, query, headers, names, sha):
    """Of a request whose `headers` have the names, all lower case and in order."""
    pairs = sorted((urllib.parse.quote(k, "-._~"), urllib.parse.quote(v, "-._~"))
                   for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
    canonical = "\n".join([verb, path, "&".join(f"{k}={v}" for k, v in pairs)]
                          + [f"{name}:{' '.join(headers[name].split())}" for name in names] + ["", ";".join(names), sha])
    date = headers["x-amz-date"]
    scope = f"{date[:8]}/us-east-1/s3/aws4_request"
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = mac(key, part)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    return scope, mac(key, f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}").hex()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def send(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD" or status >= 300:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.send(status, f"<Error><Code>{code}</Code><Message>hf_front</Message></Error>".encode())

    def forward(self, path, query, body):
        sha = hashlib.sha256(body).hexdigest()
        headers = {"host": upstream, "x-amz-content-sha256": sha,
                   "x-amz-date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")}
        names = sorted(headers)
        scope, signed = signature(theirs[1], self.command, path, query, headers, names, sha)
        headers["Authorization"] = (f"AWS4-HMAC-SHA256 Credential={theirs[0]}/{scope},SignedHeaders={';'.join(names)},"
                                    f"Signature={signed}")
        for name in ("Range", "If-Match", "If-None-Match", "Content-MD5", "Content-Type"):
            if name in self.headers:
                headers[name] = self.headers[name]
        connection = http.client.HTTPConnection(upstream, timeout=60)
        connection.request(self.command, path + ("?" + query if query else ""), body=body, headers=headers)
        answer = connection.getresponse()
        kept = [(n, v) for n, v in answer.getheaders()
                if n.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server")]
        if self.command == "HEAD" and answer.getheader("Content-Length"):
            kept.append(("Content-Length", answer.getheader("Content-Length")))
        self.send(answer.status, answer.read(), kept)
        connection.close()


class Gateway(Handler):
    def verify(self, path, query, body):
        match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]{64})",
                             self.headers.get("Authorization", ""))
        sha = self.headers.get("x-amz-content-sha256", "")
        if not match or match[1] != ours[0] or sha != hashlib.sha256(body).hexdigest():
            return False
        headers = {name.lower(): value for name, value in self.headers.items()}
        scope, signed = signature(ours[1], self.command, path, query, headers, match[3].split(";"), sha)
        return (match[2], match[4]) == (scope, signed)

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        if not self.verify(path, query, body):
            self.refuse(403, "SignatureDoesNotMatch")
        elif not path.startswith(OWNER + "/"):
            self.refuse(404, "NoSuchBucket")
        elif self.command == "GET" and path.count("/") > 2 and not query:
            token = secrets.token_urlsafe(16)
            addresses[token] = path[len(OWNER):]
            self.send(302, headers=[("Location", f"http://localhost:{content.server_port}/object?token={token}")])
        else:
            self.forward(path[len(OWNER):], query, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer


class Content(Handler):
    def do_GET(self):
        more = {name.lower() for name in self.headers} - {"host", "user-agent", "accept", "range", "if-match"}
        path = addresses.pop(self.path.rpartition("=")[2], None)
        if more or not path:
            print(f"refused: {sorted(more)}", file=sys.stderr, flush=True)
            self.refuse(400, "InvalidRequest")
        else:
            self.forward(path, "", b"")


gateway = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
content = ThreadingHTTPServer(("127.0.0.1", 0), Content)
threading.Thread(target=content.serve_forever, daemon=True).start()
ports = pathlib.Path(sys.argv[1]) / "ports"
ports.with_suffix(".part").write_text(f"{gateway.server_port} {content.server_port}\n", "ascii")
ports.with_suffix(".part").rename(ports)
gateway.serve_forever()
