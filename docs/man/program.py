"""What the program says about its commands, options, settings and exit codes."""

import json
import re
import subprocess
import sys
import tempfile


class Program:
    """The program, asked for its help. It runs without environment and configuration files."""

    def __init__(self, path):
        self.path = path
        self.root = Command(json.loads(self.output("--experimental-dump-help"))["command"])
        self.version = self.output("--version").splitlines()[0].split()[-1]

    def output(self, *arguments, **environment):
        """Returns the standard output of one run."""
        done = subprocess.run([self.path, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            sys.exit(f"docs: {self.path} {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def settings(self):
        """Returns name, meaning and default of each setting."""
        with tempfile.TemporaryDirectory() as folder:
            rows = [row.split() for row in self.output("config", HOME=folder).splitlines()]
        texts = dict(re.findall(r"^ *([a-z][a-z0-9-]*): (.+)$", self.root.command("set").discussion, re.MULTILINE))
        if missing := [row[0] for row in rows if row[0] not in texts]:
            sys.exit(f"docs: the help of `set` has no line `NAME: MEANING` for {', '.join(missing)}")
        return [(name, texts[name], value) for name, value, *_ in rows]

    def topic(self, name):
        """Returns paragraphs, and pairs of term and meaning, of `earshot help NAME`."""
        title, *rows = self.output("help", name).splitlines()
        paragraphs, entries = [[]], []
        for row in rows:
            if found := re.fullmatch(r"  (\S.*?)(?: {2,}(\S.*))?", row):
                entries.append([found[1], found[2] or ""])
            elif row.startswith("  ") and entries:
                entries[-1][1] = f"{entries[-1][1]} {row.strip()}".strip()
            elif row:
                paragraphs[-1].append(row)
            else:
                paragraphs.append([])
        return [" ".join(paragraph) for paragraph in paragraphs if paragraph], entries


class Command:
    """A command as the argument parser describes it, without hidden parts."""

    def __init__(self, description):
        self.name = description["commandName"]
        self.abstract = description.get("abstract") or ""
        self.discussion = description.get("discussion") or ""
        self.arguments = [Argument(one) for one in description.get("arguments", []) if one["shouldDisplay"]]
        self.commands = [Command(one) for one in description.get("subcommands", [])
                         if one["shouldDisplay"] and one["commandName"] != "help"]

    def command(self, name):
        """Returns the subcommand of this name."""
        return next(command for command in self.commands if command.name == name)


    def common(self):
        """Returns the arguments that all subcommands have."""
        first, *others = self.commands
        return [one for one in first.arguments if all(one in other.arguments for other in others)]


def groups(arguments):
    """Returns arguments by the title of their group in the help."""
    found = {}
    for one in arguments:
        found.setdefault("Arguments" if one.is_positional else one.group, []).append(one)
    return found


class Argument:
    """A positional argument, an option or a flag. Arguments with equal descriptions are equal."""

    def __init__(self, description):
        self.description = description
        self.is_positional = description["kind"] == "positional"
        self.has_value = description["kind"] == "option"
        self.is_optional, self.is_repeating = description["isOptional"], description["isRepeating"]
        self.follows_dashes = description["parsingStrategy"] == "postTerminator"
        self.group = description.get("sectionTitle") or ""
        self.value = description.get("valueName") or ""
        # The short name first.
        self.names = sorted((("-" if name["kind"] == "short" else "--") + name["name"] for name in description.get("names", [])),
                            key=lambda name: (name.startswith("--"), name))
        # Options of the argument parser.
        self.is_everywhere = self.names in (["--version"], ["-h", "--help"])
        self.text = " ".join(filter(None, (description.get("abstract"), description.get("discussion"))))

    def __eq__(self, other):
        return self.description == other.description
