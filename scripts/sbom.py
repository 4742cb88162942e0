#!/usr/bin/env python3
"""sbom.py VERSION PACKAGES FILE… : the bill of materials of a release, as SPDX 2.3 in JSON, on stdout.

PACKAGES is the table that libraries.sh keeps: the name and version of each library in the wheel. FILE…
are the files of the release. SOURCE_DATE_EPOCH dates the document; equal inputs give equal bytes."""
import datetime
import hashlib
import json
import os
import pathlib
import sys
import urllib.parse
import uuid

# name: the licence of what is used of it, and how it is in the wheel
LIBRARIES = {
    "zlib": ("Zlib", "STATIC_LINK"),
    "libzstd": ("BSD-3-Clause", "STATIC_LINK"),
    "xxhash": ("BSD-2-Clause", "STATIC_LINK"),
    "expat": ("MIT", "STATIC_LINK"),
    "openssl": ("Apache-2.0", "STATIC_LINK"),
    "curl": ("curl", "STATIC_LINK"),
    "gmp": ("LGPL-3.0-or-later OR GPL-2.0-or-later", "DYNAMIC_LINK"),
    "nettle": ("LGPL-3.0-or-later OR GPL-2.0-or-later", "DYNAMIC_LINK"),
    "gnutls28": ("LGPL-2.1-or-later", "DYNAMIC_LINK"),
    "libmicrohttpd": ("LGPL-2.1-or-later", "DYNAMIC_LINK"),
    "tomlplusplus": ("MIT", "STATIC_LINK"),
    "ziglang": ("Apache-2.0 WITH LLVM-exception", "STATIC_LINK"),  # its libc++ and libunwind
}


def package(name, version, licence, **more):
    return {"SPDXID": f"SPDXRef-{name}", "name": name, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": licence,
            "copyrightText": "NOASSERTION", **more}


def library(name, version):
    exact = urllib.parse.quote(version, safe="")
    registry = (f"pkg:pypi/{name}@{exact}" if name == "ziglang"
                else f"pkg:deb/debian/{name}@{exact}?arch=source")
    return package(name, version, LIBRARIES[name][0], externalRefs=[
        {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
         "referenceLocator": registry}])


def released(path, number):
    data = path.read_bytes()
    sums = [{"algorithm": kind.upper(), "checksumValue": hashlib.new(kind, data).hexdigest()}
            for kind in ("sha1", "sha256")]
    return {"SPDXID": f"SPDXRef-File-{number}", "fileName": f"./{path.name}", "checksums": sums,
            "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"}


def relation(one, kind, other):
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def document(version, bundled, files):
    date = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]),
                                           datetime.timezone.utc)
    entries = [released(path, n) for n, path in enumerate(files, 1)]
    content = json.dumps([version, bundled, entries])
    relations = [relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-diloco")]
    for entry in entries:
        relations.append(relation(entry["SPDXID"], "GENERATED_FROM", "SPDXRef-diloco"))
    wheels = [e["SPDXID"] for e in entries if e["fileName"].endswith(".whl")]
    relations += [relation(wheel, LIBRARIES[name][1], f"SPDXRef-{name}")
                  for wheel in wheels for name, _ in bundled]
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"diloco-{version}",
            "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
            "creationInfo": {"created": date.strftime("%Y-%m-%dT%H:%M:%SZ"),
                             "creators": ["Organization: the diloco maintainers", "Tool: sbom.py"]},
            "packages": [package("diloco", version, "Apache-2.0"),
                         *(library(name, at) for name, at in bundled)],
            "files": entries, "relationships": relations}


def main(version, table, *files):
    bundled = [line.split("\t") for line in pathlib.Path(table).read_text().splitlines()]
    json.dump(document(version, bundled, sorted(map(pathlib.Path, files))), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
