"""Fetches one URL and writes the body to standard output: fetch_one.py URL"""

import sys

import earshot_bus.blocking

with earshot_bus.blocking.connect() as bus, bus.handler() as handler:
    try:
        result = handler.fetch(sys.argv[1], priority="high")
    except earshot_bus.FetchFailed as failure:
        sys.exit(f"{failure.code}: {failure.detail}")
    sys.stdout.buffer.write(result.read())
