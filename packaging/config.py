"""Prints a configuration file with all settings as comments: config.py PROGRAM

Names, meanings and defaults come from PROGRAM.
"""

import pathlib
import re
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "docs/man"))

from program import Program  # noqa: E402

HEAD = """\
# Settings of Earshot for all users of this machine: earshot.toml(5).
#
# A user's own file, ~/.config/earshot/config.toml, overrides this one. `earshot config` shows the result.
# Remove the `#` of a line to change its setting. `kill -HUP` of `earshot serve`, or `systemctl reload`, reads the file again.
"""
#: Defaults of lists in TOML, and an example of each.
LISTS = {
    "users": ("[]", '["www-data", "@staff"]'),
    "listen": ("[]", '["tcp://0.0.0.0:5765", "tcp://[::1]:5765"]'),
    "http": ("[]", '["127.0.0.1:5768"]'),
    "http-users": ("[]", '["_apt"]'),
    "http-api": ("[]", '["127.0.0.1:5769"]'),
    "http-origins": ("[]", '["https://console.example.org"]'),
    "http-tokens": ("[]", '["/etc/earshot/http-token"]'),
    "http-rewrite": ("[]", '["pypi.org", "registry.npmjs.org"]'),
}
TABLES = """
# Rules for an origin, a host, or all hosts below a name.
#[origin."https://example.org"]
#limit = 2
#spacing = 0.5
#http2 = "off"
#rate = "500K"

# Exceptions of the address policy: a network, an address, a host, or all hosts below a name.
#[address]
#"10.1.0.0/16" = "allow"
"""


def main():
    text = HEAD
    for name, meaning, default in Program(sys.argv[1]).settings():
        sentence = meaning[0].upper() + meaning[1:].rstrip(".") + "."
        value = default if re.fullmatch(r"[0-9.]+", default) else f'"{default}"'
        text += "\n" + "\n".join(textwrap.wrap(sentence, 100, initial_indent="# ", subsequent_indent="# "))
        # The number of cores of the machine that writes this file is no default of other machines.
        if name in LISTS:
            value, example = LISTS[name]
            text += f"\n# Example: {name} = {example}"
        text += "\n" + (f"#{name} = {value}" if name != "workers" else "#workers = 4") + "\n"
    print(text + TABLES, end="")


if __name__ == "__main__":
    main()
