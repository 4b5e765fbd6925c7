"""Files that the origin serves, created once. Their names determine their contents."""

import hashlib
import shutil

from bench import folders

BLOCK = 1 << 20


def content(name, size):
    """Returns the bytes of a file: SHAKE-128 of its name, so contents are distinct and incompressible."""
    return hashlib.shake_128(name.encode()).digest(size)


class Files:
    """`count` files of `size` bytes in a folder of the origin's root: `1024/000000.bin` …"""

    def __init__(self, count, size):
        self.count = count
        self.size = size
        self.names = [f"{number:06}.bin" for number in range(count)]
        self.folder = folders.DATA / str(size)
        self._make()

    def size_of(self, name):
        return self.size

    def paths(self):
        """Returns the paths of the files in URLs, without the leading slash."""
        return [f"{self.folder.name}/{name}" for name in self.names]

    def expected(self, name):
        return content(f"{self.folder.name}/{name}", self.size_of(name))

    def sha256(self, name):
        return hashlib.sha256(self.expected(name)).hexdigest()

    def _make(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            path = self.folder / name
            if not path.exists():
                part = path.with_suffix(".part")
                part.write_bytes(self.expected(name))
                part.rename(path)

    def check(self, folder, whole):
        """Returns the first fault of the copies in `folder`, or None. `whole`: compares all bytes, otherwise names
        and sizes."""
        found = {entry.name: entry for entry in folder.iterdir()}
        if len(found) != self.count:
            return f"{len(found)} files instead of {self.count}"
        for name in self.names:
            if name not in found:
                return f"{name} is missing"
            if found[name].stat().st_size != self.size_of(name):
                return f"{name} has {found[name].stat().st_size} bytes"
            if whole and found[name].read_bytes() != self.expected(name):
                return f"{name} has other bytes"
        return None


class Pictures(Files):
    """`count` files of 20 to 60 KiB, in no order of size."""

    def __init__(self, count):
        super().__init__(count, "pictures")

    def size_of(self, name):
        return 20_480 + int(name.partition(".")[0]) * 7_919 % 40_960


class LargeFile:
    """One file of `size` bytes, a multiple of a MiB."""

    def __init__(self, size):
        self.size = size
        self.path = f"large-{size >> 20}.bin"
        self.file = folders.DATA / self.path
        if not self.file.exists():
            folders.DATA.mkdir(parents=True, exist_ok=True)
            part = self.file.with_suffix(".part")
            with part.open("wb") as out:
                for number in range(size // BLOCK):
                    out.write(content(f"{self.path}/{number}", BLOCK))
            part.rename(self.file)

    def sha256(self, copy=None):
        """Returns the hash of the file, or of a copy of it."""
        with (copy or self.file).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def empty_folder(name):
    """Creates an empty folder for outputs, in place of an earlier one."""
    folder = folders.outputs() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
