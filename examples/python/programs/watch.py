"""Prints the results of a handler, also those of other programs' requests: watch.py HANDLER [COUNT]

A trailing slash selects all handlers below it.
"""

import sys

import earshot_bus.blocking

count = int(sys.argv[2]) if len(sys.argv) > 2 else None
with earshot_bus.blocking.connect() as bus, bus.watch(sys.argv[1]) as watch:
    bus.ping()
    print("listening", flush=True)
    for number, terminal in enumerate(watch, 1):
        if terminal.ok:
            print(terminal.handler, terminal.status, terminal.length, terminal.url, flush=True)
            terminal.release()
        else:
            print(terminal.handler, terminal.code, terminal.detail, flush=True)
        if number == count:
            break
