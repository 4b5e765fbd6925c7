"""Small file systems, for tests of full disks."""

import os
import subprocess
import unittest

MIB = 1 << 20


class SmallDisk:
    """File system of some MiB at `path`, mounted for the duration of the test. It can grow."""

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
        """Enlarges the file system."""
        subprocess.run(["mount", "-o", f"remount,size={mebibytes}m", self.path], check=True)

    def limit_files(self, count):
        """Sets the maximum number of files and folders."""
        subprocess.run(["mount", "-o", f"remount,nr_inodes={count}", self.path], check=True)
