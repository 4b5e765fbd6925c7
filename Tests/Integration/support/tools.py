"""Programs of the machine that tests run."""

import shutil


def tool(name, package):
    """Returns the path of a program. A missing program fails the test, with the name of its Debian package."""
    path = shutil.which(name)
    if path is None:
        raise AssertionError(f"no program {name}: install the Debian package {package}, or run bin/setup --tests")
    return path
