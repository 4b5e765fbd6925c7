"""Client in its own process, to be killed: `support peer RUNTIME HANDLER COUNT URL`.

Requests URL with `i=0`, `i=1`, … added, COUNT times under HANDLER; URL itself if COUNT is 0. Prints `requested` when the broker has
read all requests, and then only waits.
"""

import sys

from .client import Client


def main():
    runtime, handler, count, url = sys.argv[1:]
    with Client(runtime, window=4096) as client:
        if int(count) == 0:
            client.fetch(handler, 0, url)
        for index in range(int(count)):
            client.fetch(handler, index, f"{url}{'&' if '?' in url else '?'}i={index}")
        client.query("ping", timeout=60)
        print("requested", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
