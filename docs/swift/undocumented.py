"""undocumented.py SYMBOLS: fails if a public symbol of a symbol graph has no doc comment.

SYMBOLS is the file that swift-symbolgraph-extract writes. Prints one line per symbol.
"""

import json
import pathlib
import sys
import urllib.parse


def undocumented(symbols):
    """Returns a line for each symbol without a doc comment."""
    return [f"{source_of(symbol)}: {'.'.join(symbol['pathComponents'])} has no doc comment"
            for symbol in symbols if not symbol.get("docComment", {}).get("lines")]


def source_of(symbol):
    """Returns the file and line of a symbol."""
    location = symbol.get("location")
    if location is None:
        return "unknown file"
    path = urllib.parse.unquote(urllib.parse.urlsplit(location["uri"]).path)
    return f"{path}:{location['position']['line'] + 1}"


if __name__ == "__main__":
    lines = undocumented(json.loads(pathlib.Path(sys.argv[1]).read_text())["symbols"])
    print("\n".join(lines), end="\n" if lines else "", file=sys.stderr)
    sys.exit(1 if lines else 0)
