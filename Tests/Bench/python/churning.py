"""A list that is scrolled fast: at each tick some handlers, in turn, replace what they want, come or not."""

import argparse
import asyncio
import json
import resource


class Churn:
    """What was asked for, and what came while it was still wanted."""

    def __init__(self, plan):
        self.plan = plan
        self.asked = 0
        self.wanted = 0
        self.seconds = 0.0

    def next(self):
        """The URL of the next row, which nobody asked for before."""
        self.asked += 1
        return f"{self.plan.prefix}{self.asked:06}"

    def came(self, body):
        if len(body) != self.plan.size:
            raise SystemExit(f"an answer of {len(body)} bytes")
        self.wanted += 1

    @staticmethod
    async def _until(time):
        reached = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_at(time, reached.set_result, None)
        await reached

    async def scroll(self, replace):
        """Calls `replace(handler)` for `rows` handlers at each tick, late ticks at once, until the time is over."""
        loop = asyncio.get_running_loop()
        began, handler = loop.time(), 0
        for tick in range(int(self.plan.seconds * 1000 / self.plan.tick)):
            await self._until(began + tick * self.plan.tick / 1000)
            for _ in range(self.plan.rows):
                replace(handler % self.plan.handlers)
                handler += 1
        await self._until(began + self.plan.seconds)
        self.seconds = loop.time() - began


def main(run):
    """Runs `run(churn)` and prints one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", default="")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--handlers", type=int, default=50)
    parser.add_argument("--rows", type=int, default=1, help="how many are replaced at each tick")
    parser.add_argument("--tick", type=float, default=20, help="milliseconds")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", type=int, default=65536)
    parser.add_argument("--connections", type=int, default=100)
    churn = Churn(parser.parse_args())
    asyncio.run(run(churn))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"asked": churn.asked, "wanted": churn.wanted, "seconds": churn.seconds,
                      "cpu": used.ru_utime + used.ru_stime}))
