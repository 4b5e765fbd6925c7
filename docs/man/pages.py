"""Writes the manual pages: pages.py PROGRAM WEB FOLDER

Names, help texts, settings and exit codes come from PROGRAM, `earshot`, and WEB, `earshot-web`. The `.md` files beside this script add further sections. In them,
`<!-- settings -->` stands for the settings of the program, and `<!-- FILE#HEADING -->` for a section of another document.
"""

import datetime
import os
import pathlib
import re
import subprocess
import sys

import mdoc
from program import Program, groups

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
FIRST = ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "ARGUMENTS", "OPTIONS"]
LAST = ["ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
"""Conventional order of sections. All others stand between."""
TOPICS = {"EXIT STATUS": "exit-codes", "ENVIRONMENT": "environment", "FILES": "files"}
"""Sections of earshot(1) that are help topics of the program."""
MOST_IN_SYNOPSIS = 8
"""Number of options up to which a synopsis lists them."""
COMMENT = re.compile(r"^<!-- (.+) -->$", re.MULTILINE)


class Page:
    """A page: its sections, each a list of lines, by their names."""

    def __init__(self, name, number, program):
        self.name, self.number, self.program = name, number, program
        self.sections = {}

    def add(self, title, lines):
        """Appends lines to a section."""
        if lines:
            self.sections[title.upper()] = mdoc.joined(self.sections.get(title.upper(), []), lines)

    def add_name(self, text):
        """Adds the section NAME. `text` is a sentence."""
        text = text.rstrip(".")
        # "URL" keeps its form.
        text = text if text[1:2].isupper() else text[:1].lower() + text[1:]
        self.add("name", [f".Nm {mdoc.escaped(self.name)}", f".Nd {mdoc.inline(text)}"])

    def add_document(self, path):
        """Adds the sections of a document."""
        for title, text in headed(path.read_text()):
            self.add(title, self.converted(text))

    def add_topic(self, title, name):
        """Adds a help topic of the program."""
        paragraphs, entries = self.program.topic(name)
        for paragraph in paragraphs:
            self.add(title, mdoc.sentences(paragraph))
        self.add(title, mdoc.tagged([(f"`{term}`", mdoc.sentence(meaning)) for term, meaning in entries]))

    def converted(self, text):
        """Returns Markdown as mdoc, its comments replaced."""
        lines = []
        for index, part in enumerate(COMMENT.split(text)):
            if index % 2 == 0:
                lines += mdoc.markdown(part)
            elif part == "settings":
                lines += mdoc.tagged([(f"`{name}`", with_default(meaning, default))
                                      for name, meaning, default in self.program.settings()])
            else:
                path, heading = part.split("#")
                found = dict(headed((ROOT / path).read_text())).get(heading)
                lines += self.converted(found or sys.exit(f"docs: {path} has no section '{heading}' for {self.name}.md"))
        return lines

    def text(self):
        """Returns the page in mdoc."""
        day = date()
        lines = [f".Dd {day:%B} {day.day}, {day.year}", f".Dt {mdoc.escaped(self.name.upper())} {self.number}",
                 f".Os Earshot {self.program.version}"]
        between = [title for title in self.sections if title not in FIRST + LAST]
        for title in FIRST + between + LAST:
            if title in self.sections:
                lines += [f".Sh {mdoc.escaped(title)}", *self.sections[title]]
        return "\n".join(lines) + "\n"


def headed(text):
    """Returns title and text of each section of the second level."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2]))


def with_default(meaning, default):
    """Returns the meaning of a setting, and its default unless it depends on the machine."""
    return mdoc.sentence(meaning) + ("" if "default" in meaning else f" Default: {default}.")


def date():
    """Returns the day of the last commit, or the present day outside a checkout."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if not seconds:
        done = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False)
        seconds = done.stdout.strip() if done.returncode == 0 else ""
    moment = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc) if seconds else datetime.datetime.now()
    return moment.date()


def command_page(program, command, name):
    """Returns the page of a command; its own subcommands are sections of it."""
    page = Page(name, 1, program)
    is_whole = command is program.root
    has_commands = is_whole and command.commands
    abstract, _, rest = command.abstract.partition(". ")
    page.add_name(abstract)
    for words, one in [(name, command)] if is_whole else leaves(command_words(name), command):
        page.add("synopsis", synopsis(words, one))
    page.add("description", mdoc.plain(rest))
    description, examples = mdoc.examples(command.discussion)
    page.add("description", mdoc.plain(description))
    page.add("examples", mdoc.plain(examples))
    if has_commands:
        page.add("commands", mdoc.tagged([(f"`{name}-{one.name}(1)`", one.abstract) for one in command.commands]))
        for title, topic in TOPICS.items():
            page.add_topic(title, topic)
    arguments = command.arguments
    if command.commands and not is_whole:
        arguments = command.common()
        for one in command.commands:
            page.add("commands", [f".Ss {mdoc.escaped(one.name)}", *mdoc.sentences(one.abstract)])
            page.add("commands", mdoc.plain(one.discussion))
            page.add("commands", listed([other for other in one.arguments if other not in arguments]))
    found = groups(arguments)
    is_grouped = len(found.keys() - {"", "Arguments"}) > 0
    for title, arguments in found.items():
        heading = [f".Ss {mdoc.escaped(title or 'General')}"] if is_grouped and title != "Arguments" else []
        page.add("arguments" if title == "Arguments" else "options", heading + listed(arguments))
    path = HERE / f"{name}.md"
    if path.exists():
        page.add_document(path)
    if not is_whole:
        text = f"`{command_words(name)}` ends with 0 after success. `earshot(1)` lists all exit codes."
        page.add("exit status", mdoc.sentences(text))
    return page


def command_words(name):
    """Returns the words of the command that a page describes."""
    return name.replace("-", " ", 1)


def leaves(words, command):
    """Returns words and description of a command, or of each of its subcommands."""
    return [(f"{words} {one.name}", one) for one in command.commands] or [(words, command)]


def synopsis(words, command):
    """Returns the lines that show how a command is called."""
    lines = [f".Nm {mdoc.argument(words)}"]
    options = [one for one in command.arguments if not one.is_positional and not one.is_everywhere]
    if len(options) > MOST_IN_SYNOPSIS:
        lines.append(".Op Ar option ...")
    else:
        lines += [optional(one, f"Fl {mdoc.escaped(one.names[0][1:])}" + value(one)) for one in options]
    for one in command.arguments:
        if one.is_positional:
            lines += [".Fl -"] if one.follows_dashes else []
            lines.append(optional(one, value(one).strip()))
    return lines + ([".Ar command", ".Op Ar argument ..."] if command.commands else [])


def optional(argument, macros):
    """Returns the macros of an argument, in brackets if it is optional."""
    return f".Op {macros}" if argument.is_optional else f".{macros}"


def value(argument):
    """Returns the macros for the value of an argument, after a space."""
    if not argument.has_value and not argument.is_positional:
        return ""
    return f" Ar {mdoc.argument(argument.value)}" + (" ..." if argument.is_repeating else "")


def listed(arguments):
    """Returns the list of arguments with their help."""
    lines = [".Bl -tag -width Ds"]
    for one in arguments:
        names = " , ".join(f"Fl {mdoc.escaped(name[1:])}" for name in one.names)
        lines += [f".It {names}{value(one)}".replace("It  ", "It "), *mdoc.sentences(one.text)]
    return [*lines, ".El"] if arguments else []


def pages(program, web):
    """Returns all pages."""
    yield command_page(program, program.root, "earshot")
    yield command_page(web, web.root, "earshot-web")
    for command in program.root.commands:
        yield command_page(program, command, f"earshot-{command.name}")
    for path in sorted(HERE.glob("*.md")):
        # The pages of other sections: # NAME(SECTION): MEANING
        if found := re.match(r"# ([\w.-]+)\(([57])\): (.+)\n", path.read_text()):
            page = Page(found[1], int(found[2]), program)
            page.add_name(found[3])
            page.add_document(path)
            yield page


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: pages.py PROGRAM WEB FOLDER")
    folder = pathlib.Path(sys.argv[3])
    for page in pages(Program(sys.argv[1]), Program(sys.argv[2])):
        path = folder / f"man{page.number}" / f"{page.name}.{page.number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page.text())


if __name__ == "__main__":
    main()
