"""The disk of spool and cache: a small file system of its own where possible, so that tests can fill it."""

import os
import pathlib
import subprocess

BYTES = 192 << 20
LEFT = 64 << 10
"""Free bytes of a full disk."""


class Disk:
    """Context manager of the disk. Mounting needs privileges that not every machine grants; `is_own` states the
    result."""

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
        """Fills the disk up to the last bytes."""
        with open(self._filler, "wb", buffering=0) as file:
            piece = bytes(1 << 20)
            try:
                while True:
                    file.write(piece)
            except OSError:
                file.truncate(max(0, file.seek(0, os.SEEK_END) - LEFT))

    def clear(self):
        """Frees the bytes again."""
        self._filler.unlink(missing_ok=True)
