"""Serves thumb:SIZE/URL: fetches a picture through the bus, and scales it to at most SIZE by SIZE pixels, as WebP.

    PYTHONPATH=examples/python:examples/python/programs python3 -m earshot_bus.worker thumbnail_worker:thumbnail --scheme thumb
    earshot get -o small.webp thumb:96/https://example.org/large.jpg

Needs Pillow (Debian: python3-pil).
"""

from __future__ import annotations

import asyncio
import io
import re

from PIL import Image

import earshot_bus
from earshot_bus.worker import Answer, Job, JobFailed

LARGEST_PIXELS = 2_048
LARGEST_PICTURE = 64 << 20
"""Maximum size of a fetched picture in bytes. Pillow limits its number of pixels."""

_bus: earshot_bus.Bus | None = None
_entering = asyncio.Lock()


async def thumbnail(job: Job) -> Answer:
    """Returns the thumbnail of the picture that the job names."""
    wanted = re.fullmatch(r"thumb:(\d{1,4})/(https?://.+)", job.url)
    if not wanted or not 1 <= (size := int(wanted[1])) <= LARGEST_PIXELS:
        raise JobFailed(f"the form is thumb:SIZE/URL, with a size from 1 to {LARGEST_PIXELS}", code="malformed-url")
    bus = await _connected()
    # A cancelled job cancels this fetch, too. The fetch has the priority of the job.
    async with bus.handler() as handler:
        try:
            result = await handler.fetch(wanted[2], priority=job.priority, max_bytes=LARGEST_PICTURE)
        except earshot_bus.FetchFailed as failure:
            raise JobFailed(f"the picture could not be fetched: {failure.code}") from failure
        data = await asyncio.to_thread(_shrink, result.read(), size)
    return Answer(data, (("content-type", "image/webp"),))


async def _connected() -> earshot_bus.Bus:
    """Returns the connection that all jobs share. It ends with the process."""
    global _bus
    async with _entering:
        if _bus is None:
            _bus = await earshot_bus.connect().__aenter__()
        return _bus


def _shrink(data: bytes, size: int) -> bytes:
    try:
        with Image.open(io.BytesIO(data)) as picture:
            picture.thumbnail((size, size))
            out = io.BytesIO()
            picture.convert("RGB").save(out, "WEBP")
            return out.getvalue()
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise JobFailed("the response is not a picture") from error
