#!/bin/sh
# fetch.sh URL: Writes the body of a URL to standard output.
set -eu

if [ $# != 1 ]; then
    echo "usage: fetch.sh URL" >&2
    exit 64
fi
# Without --no-spawn, `get` starts a private bus if none runs.
exec earshot get --no-spawn -- "$1"
