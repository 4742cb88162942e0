#!/usr/bin/env python3
"""az_admin.py: make the container "bucket" at $AZ_TEST_ENDPOINT with $AZURE_STORAGE_ACCOUNT and its key,
and print a SAS token for the account. A signer of its own. Python's standard library only."""
import base64
import datetime
import hashlib
import hmac
import os
import urllib.parse
import urllib.request

account = os.environ["AZURE_STORAGE_ACCOUNT"]
key = base64.b64decode(os.environ["AZURE_STORAGE_KEY"])
endpoint = os.environ["AZ_TEST_ENDPOINT"]
now = datetime.datetime.now(datetime.timezone.utc)


def sign(text):
    return base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()


path = urllib.parse.urlsplit(endpoint).path + "/bucket"
date = now.strftime("%a, %d %b %Y %H:%M:%S GMT")
text = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:2021-12-02\n/{account}{path}\nrestype:container"
request = urllib.request.Request(endpoint + "/bucket?restype=container", method="PUT")
request.add_header("x-ms-date", date)
request.add_header("x-ms-version", "2021-12-02")
request.add_header("Authorization", f"SharedKey {account}:{sign(text)}")
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30)

sas = {
    "sv": "2020-08-04",
    "ss": "b",
    "srt": "sco",
    "sp": "rwdlac",
    "se": (now + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
}
sas["sig"] = sign(f"{account}\n{sas['sp']}\n{sas['ss']}\n{sas['srt']}\n\n{sas['se']}\n\n\n{sas['sv']}\n")
print(urllib.parse.urlencode(sas))
