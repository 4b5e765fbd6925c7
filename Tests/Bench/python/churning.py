"""A list that scrolls fast: at each tick some handlers replace their requests, answered or not."""

import argparse
import asyncio
import json
import resource


class Churn:
    """Counts of requests and of timely responses."""

    BURST_TICKS = 25

    def __init__(self, plan):
        self.plan = plan
        self.requested = 0
        self.wanted = 0
        self.rows = set()
        self.seconds = 0.0

    def url(self, row):
        return f"{self.plan.prefix}{row:06}"

    def came(self, row, body):
        if len(body) != self.plan.size:
            raise SystemExit(f"an answer of {len(body)} bytes")
        self.wanted += 1
        self.rows.add(row)

    @staticmethod
    async def _until(time):
        reached = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_at(time, reached.set_result, None)
        await reached

    def _moves(self, tick):
        """Returns the handlers that replace at this tick, and their new rows."""
        count = self.plan.handlers
        if not self.plan.positions:
            # A row that appears takes the handler of one that disappeared.
            first = tick * self.plan.rows
            return [((first + number) % count, first + number) for number in range(self.plan.rows)]
        # A handler is a place in the window, which scrolls for half a second and rests as long.
        turn, rest = divmod(tick, self.BURST_TICKS * 2)
        if rest >= self.BURST_TICKS:
            return []
        first = turn * self.BURST_TICKS + rest
        return [(number, first + number) for number in range(count)]

    async def scroll(self, replace):
        """Calls `replace(handler, row)` as due at each tick, late ticks at once, until the time is over."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for tick in range(int(self.plan.seconds * 1000 / self.plan.tick)):
            await self._until(began + tick * self.plan.tick / 1000)
            for handler, row in self._moves(tick):
                self.requested += 1
                replace(handler, row)
        await self._until(began + self.plan.seconds)
        self.seconds = loop.time() - began


def main(run):
    """Runs `run(churn)` and prints one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--handlers", type=int, default=50)
    parser.add_argument("--rows", type=int, default=1, help="how many are replaced at each tick")
    parser.add_argument("--positions", action="store_true", help="all are, each time by one row")
    parser.add_argument("--tick", type=float, default=20, help="milliseconds")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", type=int, default=65536)
    parser.add_argument("--connections", type=int, default=100)
    churn = Churn(parser.parse_args())
    asyncio.run(run(churn))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"asked": churn.requested, "wanted": churn.wanted, "rows": len(churn.rows), "seconds": churn.seconds,
                      "cpu": used.ru_utime + used.ru_stime}))
