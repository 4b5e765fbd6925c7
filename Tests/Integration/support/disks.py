"""Small disks, which fill up."""

import os
import subprocess
import unittest

MIB = 1 << 20


class SmallDisk:
    """A file system of some MiB at `path`, as long as the test runs. It can grow."""

    def __init__(self, test, path, mebibytes=1):
        if os.geteuid():
            raise unittest.SkipTest("only root mounts a file system")
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs", path], capture_output=True,
            text=True)
        if mounted.returncode:
            raise unittest.SkipTest(f"no file system can be mounted here: {mounted.stderr.strip()}")
        test.addCleanup(subprocess.run, ["umount", "-l", path], check=True)

    def grow(self, mebibytes):
        """Makes room."""
        subprocess.run(["mount", "-o", f"remount,size={mebibytes}m", self.path], check=True)
