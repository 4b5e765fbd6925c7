"""Parser of scenarios, files of `protocols/scenarios`. protocols/scenarios/README.md describes the form."""

import copy
import pathlib
import re

SCENARIOS = pathlib.Path(__file__).resolve().parent.parent.parent / "protocols" / "scenarios"
INDENT = "    "
_BLOCK = re.compile(r"(\d+) times:|until it is so:")
_HEADER = re.compile(r"for libraries that (reconnect|give up)")


class Fault(Exception):
    """A malformed scenario."""


class Step:
    """`party action text`, and the indented lines below it."""

    def __init__(self, location, line):
        self.location = location
        self.line = line
        words = line.split(" ", 2)
        if len(words) < 2:
            raise Fault(f"{location}: '{line}' is no step")
        self.party, self.action, self.text = (*words, "")[:3]
        self.below = []

    def expecting(self, text):
        """Returns this step with another first line to expect."""
        step = copy.copy(self)
        step.text = text
        return step


class Block:
    """Steps repeated `times` times, with `$n` counting from 1; without `times`, until all pass."""

    def __init__(self, times, steps):
        self.times = times
        self.steps = steps


class Scenario:
    """One file. `title` is its first line; `only_for` names the kind of library that can play it, None for all."""

    def __init__(self, path):
        self.path = path
        self.folder = path.parent.name
        self.name = path.stem
        lines = path.read_text().splitlines()
        if not lines or not lines[0].startswith("# "):
            raise Fault(f"{path.name}: it begins with '# ' and what it shows")
        self.title = lines[0][2:]
        self.only_for = None
        numbered = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
        if numbered and (header := _HEADER.fullmatch(numbered[0][1])):
            self.only_for = header[1]
            numbered = numbered[1:]
        self.steps = list(self._steps(numbered))

    def __repr__(self):
        return f"{self.folder}/{self.name}"

    def _steps(self, lines):
        index = 0
        while index < len(lines):
            number, line = lines[index]
            end = index + 1
            while end < len(lines) and lines[end][1].startswith(INDENT):
                end += 1
            below = [(at, text[len(INDENT):]) for at, text in lines[index + 1:end]]
            location = f"{self.folder}/{self.path.name}:{number}"
            if line.startswith(" "):
                raise Fault(f"{location}: indented by something else than four spaces")
            if block := _BLOCK.fullmatch(line):
                yield Block(int(block[1]) if block[1] else None, list(self._steps(below)))
            else:
                step = Step(location, line)
                step.below = [text for _, text in below]
                yield step
            index = end


def all_scenarios(folder=None):
    """Returns the scenarios of one folder, or all, by name."""
    return [Scenario(path) for path in sorted(SCENARIOS.glob(f"{folder or '*'}/*.txt"))]
