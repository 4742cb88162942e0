#!/usr/bin/env python3
"""gcs_fake.py PORT [CERTIFICATE KEY]: a FAKE of Google Cloud Storage's XML API on loopback, for want of a real one.

The part of it that a run needs, from its documentation: objects with x-goog-if-generation-match,
ranges with If-Match, list-type=2, multipart uploads, and GOOG4-HMAC-SHA256 signatures. Every
signature is verified against $GS_ACCESS_KEY_ID and $GS_SECRET_ACCESS_KEY. It proves that the store
speaks as the documentation says, not that Google does. One bucket: "bucket". Python's standard
library only."""
import hashlib
import hmac
import os
import re
import ssl
import sys
import threading
import time
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

objects = {}  # name: (bytes, ETag, ISO time)
uploads = {}  # id: (name, {number: bytes}, ISO time)
lock = threading.Lock()


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def etag(data):
    return '"' + hashlib.md5(data).hexdigest() + '"'


class Refusal(Exception):
    """(status, code)"""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def verify(self, path, query, body):
        match = re.fullmatch(
            r"GOOG4-HMAC-SHA256 Credential=([^/]+)/((\d{8})/([^/]+)/storage/goog4_request),"
            r"SignedHeaders=([^,]+),Signature=([0-9a-f]{64})",
            self.headers.get("Authorization", ""),
        )
        if not match or match[1] != os.environ["GS_ACCESS_KEY_ID"]:
            raise Refusal(403, "InvalidAccessKeyId" if match else "AccessDenied")
        _, scope, day, region, names, signature = match.groups()
        if any(n.startswith("x-goog-") and n not in names.split(";") for n in map(str.lower, self.headers)):
            raise Refusal(403, "AccessDenied")
        sha = self.headers["x-goog-content-sha256"]
        if sha not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()):
            raise Refusal(400, "XAmzContentSHA256Mismatch")
        pairs = sorted(
            (urllib.parse.quote(k, "-._~"), urllib.parse.quote(v, "-._~"))
            for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True)
        )
        canonical = "\n".join(
            [self.command, path, "&".join(f"{k}={v}" for k, v in pairs)]
            + [f"{n}:{' '.join(self.headers[n].split())}" for n in names.split(";")]
            + ["", names, sha]
        )
        date = self.headers["x-goog-date"]
        text = f"GOOG4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = ("GOOG4" + os.environ["GS_SECRET_ACCESS_KEY"]).encode()
        for part in (day, region, "storage", "goog4_request"):
            key = mac(key, part)
        if mac(key, text).hex() != signature:
            raise Refusal(403, "SignatureDoesNotMatch")

    def send(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def xml(self, text):
        self.send(200, ("<?xml version='1.0' encoding='UTF-8'?>" + text).encode())

    # ---- the bucket

    def list(self, query):
        prefix, after = query.get("prefix", ""), query.get("start-after", "")
        with lock:
            names = sorted(n for n in objects if n.startswith(prefix) and n > after)
            shown = names[: int(query.get("max-keys", 1000))]
            items = "".join(
                f"<Contents><Key>{escape(n)}</Key><Generation>1</Generation>"
                f"<LastModified>{objects[n][2]}</LastModified><ETag>{escape(objects[n][1])}</ETag>"
                f"<Size>{len(objects[n][0])}</Size></Contents>"
                for n in shown
            )
        more = str(len(shown) < len(names)).lower()
        self.xml(
            "<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>"
            f"<IsTruncated>{more}</IsTruncated>{items}</ListBucketResult>"
        )

    def list_uploads(self, query):
        with lock:
            items = "".join(
                f"<Upload><Key>{escape(n)}</Key><UploadId>{i}</UploadId><Initiated>{t}</Initiated></Upload>"
                for i, (n, _, t) in uploads.items()
                if n.startswith(query.get("prefix", ""))
            )
        self.xml(f"<ListMultipartUploadsResult>{items}</ListMultipartUploadsResult>")

    # ---- objects

    def now(self):
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())

    def get(self, name):
        with lock:
            if name not in objects:
                raise Refusal(404, "NoSuchKey")
            data, tag, _ = objects[name]
        if self.headers.get("If-Match", tag) != tag:
            raise Refusal(412, "PreconditionFailed")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted:
            return self.send(200, data, [("ETag", tag)])
        begin, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
        if begin >= len(data):
            raise Refusal(416, "InvalidRange")
        place = f"bytes {begin}-{end - 1}/{len(data)}"
        return self.send(206, data[begin:end], [("ETag", tag), ("Content-Range", place)])

    def put(self, name, body):
        with lock:
            if self.headers.get("x-goog-if-generation-match") == "0" and name in objects:
                raise Refusal(412, "PreconditionFailed")
            objects[name] = (body, etag(body), self.now())
        self.send(200, b"", [("ETag", etag(body))])

    def post(self, name, query, body):
        with lock:
            if "uploads" in query:
                upload = uuid.uuid4().hex
                uploads[upload] = (name, {}, self.now())
                text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            else:
                if query["uploadId"] not in uploads:
                    raise Refusal(404, "NoSuchUpload")
                parts = uploads.pop(query["uploadId"])[1]
                listed = re.findall(rb"<PartNumber>(\d+)</PartNumber><ETag>([^<]+)</ETag>", body)
                if [(int(n), t.decode()) for n, t in listed] != [(n, etag(parts[n])) for n in sorted(parts)]:
                    raise Refusal(400, "InvalidPart")
                if any(len(parts[n]) < 5 << 20 for n in sorted(parts)[:-1]):
                    raise Refusal(400, "EntityTooSmall")
                data = b"".join(parts[n] for n in sorted(parts))
                objects[name] = (data, etag(data), self.now())
                text = "<CompleteMultipartUploadResult/>"
        self.xml(text)

    def handle_one(self):
        path, _, raw = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = dict(urllib.parse.parse_qsl(raw, keep_blank_values=True))
        try:
            self.verify(path, raw, body)
            bucket, _, name = urllib.parse.unquote(path[1:]).partition("/")
            if bucket != "bucket":
                raise Refusal(404, "NoSuchBucket")
            forbids = os.environ.get("NO_DELETE")  # a file: once it is there, no client may write
            if forbids and (self.command == "DELETE" or (self.command != "GET" and os.path.exists(forbids))):
                raise Refusal(403, "AccessDenied")
            if not name:
                return self.list_uploads(query) if "uploads" in query else self.list(query)
            if self.command in ("GET", "HEAD"):
                return self.get(name)
            if self.command == "POST":
                return self.post(name, query, body)
            if self.command == "DELETE":
                with lock:
                    found = uploads.pop(query["uploadId"], None) if query else objects.pop(name, None)
                return self.send(204 if found else 404)
            if "partNumber" in query:
                with lock:
                    uploads[query["uploadId"]][1][int(query["partNumber"])] = body
                return self.send(200, b"", [("ETag", etag(body))])
            return self.put(name, body)
        except Refusal as refusal:
            text = f"<Error><Code>{refusal.args[1]}</Code><Message>the fake says so</Message></Error>"
            return self.send(refusal.args[0], text.encode())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
