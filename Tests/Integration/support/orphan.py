"""Client that leaves behind a child holding its connection: `support orphan RUNTIME HANDLER URL`.

Requests URL and prints `requested CHILD` when the broker has read the request. The child, a fork without exec, lives until its
input ends.
"""

import os
import sys

from .client import Client


def main():
    runtime, handler, url = sys.argv[1:]
    client = Client(runtime)
    client.fetch(handler, 0, url)
    client.query("ping")
    child = os.fork()
    if child:
        print(f"requested {child}", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
