#!/usr/bin/env python3
"""s3_admin.py VERB PATH[?query]: one signed request to $S3_TEST_ENDPOINT, the answer's body on stdout.

For the tests to set up a store and look into it directly. It has a signer of its own, so that two
have to agree. Python's standard library only."""
import datetime
import hashlib
import hmac
import http.client
import os
import sys
import urllib.parse


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def request(verb, target, body=b""):
    endpoint = urllib.parse.urlsplit(os.environ["S3_TEST_ENDPOINT"])
    path, _, query = target.partition("?")
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    query = "&".join(f"{urllib.parse.quote(k, '')}={urllib.parse.quote(v, '')}" for k, v in pairs)
    region = os.environ.get("AWS_REGION", "us-east-1")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    sha = hashlib.sha256(body).hexdigest()
    canonical = (
        f"{verb}\n{urllib.parse.quote(path)}\n{query}\nhost:{endpoint.netloc}\nx-amz-content-sha256:{sha}\n"
        f"x-amz-date:{now}\n\nhost;x-amz-content-sha256;x-amz-date\n{sha}"
    )
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in (now[:8], region, "s3", "aws4_request"):
        key = mac(key, part)
    headers = {
        "x-amz-date": now,
        "x-amz-content-sha256": sha,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope},"
        f"SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature={mac(key, text).hex()}",
    }
    connection = http.client.HTTPConnection(endpoint.netloc, timeout=30)
    connection.request(verb, path + ("?" + query if query else ""), body=body, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


if __name__ == "__main__":
    status, text = request(sys.argv[1], sys.argv[2])
    sys.stdout.buffer.write(text)
    if status >= 300:
        print(f"{sys.argv[1]} {sys.argv[2]}: {status}", file=sys.stderr)
        sys.exit(1)
