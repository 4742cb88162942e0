#!/bin/sh
# azurite.sh COMMAND…: start Microsoft's Azurite on loopback. Run the command with CLOUD_TEST_URL (a
# container, made) and the emulator's account, whose key is published. Then run it once more, in
# short, with a SAS token instead of the key. Exit 77 when it is not installed.
set -eu
. "$(dirname "$0")/lib.sh"
npm_program azurite-blob

port=$(free_port)
"$program" --silent --inMemoryPersistence --disableTelemetry --skipApiVersionCheck \
    --blobHost 127.0.0.1 --blobPort "$port" >"$dir/azurite.log" 2>&1 &
pids=$!
started
export AZURE_STORAGE_ACCOUNT=devstoreaccount1
export AZURE_STORAGE_KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
export AZ_TEST_ENDPOINT="http://127.0.0.1:$port/$AZURE_STORAGE_ACCOUNT"
export CLOUD_TEST_URL="az://bucket?endpoint=$AZ_TEST_ENDPOINT"
AZURE_STORAGE_SAS_TOKEN=$(python3 "$(dirname "$0")/az_admin.py")
"$@"
unset AZURE_STORAGE_KEY
export AZURE_STORAGE_SAS_TOKEN CLOUD_TEST_SHORT=1
"$@"
