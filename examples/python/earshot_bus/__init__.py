"""Client of the Earshot download bus, for asyncio.

    async with earshot_bus.connect() as bus, bus.handler("gallery") as gallery:
        result = await gallery.fetch("https://example.org/")
        print(result.status, result.read())

`earshot_bus.blocking` offers the same names without `await`, for scripts and threads. `earshot_bus.worker` serves URL schemes.
Exceptions derive from `EarshotError`; wrong arguments raise `ValueError` or `TypeError`.
"""

from ._bus import Bus, connect
from ._handler import Handler, Transfer
from ._messages import Bodies, CacheMode, FetchOptions, Headers, Priority, Progress
from ._results import Closed, EarshotError, FetchFailed, NoBroker, Refused, Result, Terminal
from ._watch import Watch

__all__ = ["Bodies", "Bus", "CacheMode", "Closed", "EarshotError", "FetchFailed", "FetchOptions", "Handler", "Headers",
           "NoBroker", "Priority", "Progress", "Refused", "Result", "Terminal", "Transfer", "Watch", "connect"]
