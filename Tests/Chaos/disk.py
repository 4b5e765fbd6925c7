"""The disk that spool and cache are on: a small one of their own where that can be had, so that it can be full."""

import pathlib
import subprocess

BYTES = 192 << 20
LEFT = 64 << 10
"""What a full one has left, in bytes."""


class Disk:
    """`with Disk(folder) as disk:`. Mounting it takes rights that not every machine gives; `is_own` tells."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder)
        self.is_own = False

    def __enter__(self):
        self.path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={BYTES},mode=0700", "chaos", str(self.path)]
        self.is_own = subprocess.run(command, capture_output=True).returncode == 0
        return self

    def __exit__(self, *_):
        if self.is_own:
            subprocess.run(["umount", "-l", str(self.path)], capture_output=True)

    @property
    def _filler(self):
        return self.path / "filler"

    def fill(self):
        """Leaves next to nothing of it."""
        with open(self._filler, "wb", buffering=0) as file:
            piece = bytes(1 << 20)
            try:
                while True:
                    file.write(piece)
            except OSError:
                file.truncate(max(0, file.tell() - LEFT))

    def clear(self):
        """As much room as before."""
        self._filler.unlink(missing_ok=True)
