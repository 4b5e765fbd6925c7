"""Common parts of the tests: paths of the package and of `support` in Tests/Integration, and a test case with a bus."""

import asyncio
import functools
import logging
import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent
CHECKOUT = PACKAGE.parent.parent
PROGRAMS = PACKAGE / "programs"
sys.path.insert(0, str(PACKAGE))
sys.path.append(str(CHECKOUT / "Tests/Integration"))  # Last, because it has test modules with the same names.

logging.getLogger("asyncio").setLevel(logging.ERROR)  # No warnings about steps of more than 0.1 s.

TIMEOUT = 60
"""Time limit of one test in seconds, reached only by a test that hangs."""


def timed(test):
    """Decorates a test, so that it fails instead of hanging."""
    @functools.wraps(test)
    async def within(*arguments):
        await asyncio.wait_for(test(*arguments), TIMEOUT)
    return within


class BusTestCase(unittest.IsolatedAsyncioTestCase):
    """Test case with a bus and an origin, `self.bus` and `self.origin`, common to the tests of a class."""

    @classmethod
    def setUpClass(cls):
        from support.harness import Bus
        from support.origin import Origin
        cls.origin = cls.enterClassContext(Origin())
        cls.bus = cls.enterClassContext(Bus(workers=1))

    @property
    def url(self):
        return self.origin.url

    def connect(self, **options):
        import earshot_bus
        return earshot_bus.connect(self.bus.runtime, **options)

    async def in_thread(self, await_something, *arguments):
        """Awaits an event of the origin or of a process without blocking the event loop."""
        return await asyncio.to_thread(await_something, *arguments)


def environment(**more):
    """Returns the environment of the programs."""
    return {**os.environ, "PYTHONPATH": str(PACKAGE), **{name: str(value) for name, value in more.items()}}
