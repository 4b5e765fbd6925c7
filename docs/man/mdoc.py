"""Conversion of text and of a part of Markdown to mdoc(7), the language of manual pages.

Markdown: headings, paragraphs, lists with `-` or numbers, code blocks, links, code, emphasis, and tables, which become lists whose
tags are the first column.
"""

import re
import textwrap

MOST_COLUMNS = 78
"""Length of a line of text, which mandoc limits to 80 bytes."""
MARKUP = re.compile(r"`(?P<code>[^`]+)`|\[(?P<text>[^]]+)\]\((?P<target>[^)\s]+)\)|\*(?P<emphasis>[^*\s][^*]*)\*"
                    r"|(?<![\w/.-])(?P<option>--?[A-Za-z][\w-]*)")
SENTENCE_END = re.compile(r"(?<=[^\s.][.!?]) +(?=[A-Z`(\[])")
PAGE = re.compile(r"([\w.-]+)\((\d)\)")
ITEM = re.compile(r"(?:-|\d+\.) +")
SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "^": "\\(ha", "~": "\\(ti", "…": "..."}


def escaped(text):
    """Returns plain text in which no character has a meaning for the formatter."""
    return "".join(SPECIAL.get(character, character) for character in text)


def argument(text):
    """Returns plain text as one argument of a macro."""
    return '"' + escaped(text).replace('"', "\\(dq") + '"'


def inline(text):
    """Returns a sentence with its markup as fonts. Options are bold also without backquotes."""
    parts, end = [], 0
    for match in MARKUP.finditer(text):
        parts.append(escaped(text[end:match.start()]))
        end = match.end()
        if match["text"]:
            parts.append(inline(match["text"]))
            if "://" in match["target"]:
                parts.append(f" <{escaped(match['target'])}>")
        elif match["emphasis"]:
            parts.append(f"\\fI{escaped(match['emphasis'])}\\fR")
        else:
            word = match["code"] or match["option"]
            page = PAGE.fullmatch(word)
            parts.append(f"\\fB{escaped(page[1])}\\fR({page[2]})" if page else f"\\fB{escaped(word)}\\fR")
    return "".join([*parts, escaped(text[end:])])


def line(text):
    """Returns a line of text that the formatter cannot read as a macro."""
    return "\\&" + text if text.startswith(".") else text


def sentences(text):
    """Returns the lines of a paragraph; each sentence starts a line."""
    return [line(row) for part in SENTENCE_END.split(" ".join(text.split()))
            for row in textwrap.wrap(inline(part), MOST_COLUMNS, break_long_words=False, break_on_hyphens=False)]


def tag(text):
    """Returns the tag of a list item."""
    code = re.fullmatch(r"`([^`]+)`", text)
    return f".It Cm {argument(code[1])}" if code else f".It {argument(text)}" if "`" not in text else f".It {inline(text)}"


def tagged(items):
    """Returns the list of the pairs of tag and text."""
    lines = [".Bl -tag -width Ds"]
    for name, text in items:
        lines += [tag(name), *sentences(text)]
    return [*lines, ".El"]


def literal(lines):
    """Returns lines that keep their form."""
    return [".Bd -literal -offset indent", *(line(escaped(text)) for text in lines), ".Ed"]


def plain(text):
    """Returns a help text: paragraphs, and lists of lines with `NAME: TEXT` or columns."""
    lines = []
    for paragraph in re.split(r"\n{2,}", text.strip("\n")):
        rows = paragraph.split("\n")
        pairs = [re.fullmatch(r" *(\S(?:[^:]|:(?! ))*?)(?:: | {2,})(\S.*)", row) for row in rows]
        if len(rows) == 1:
            block = sentences(paragraph)
        elif all(pairs):
            block = tagged([(f"`{pair[1]}`", pair[2]) for pair in pairs])
        else:
            block = literal(rows)
        lines = joined(lines, block)
    return lines


def joined(lines, more):
    """Returns two blocks, separated by vertical space."""
    return [*lines, ".Pp", *more] if lines and more and not more[0].startswith((".Ss", ".Bl", ".Bd")) else [*lines, *more]


def markdown(text):
    """Returns Markdown; its headings become those of subsections."""
    lines, rows = [], text.strip("\n").split("\n")
    while rows:
        row = rows.pop(0)
        if not row.strip():
            continue
        if row.startswith("#"):
            lines.append(f".Ss {escaped(row.lstrip('# '))}")
            continue
        if row.startswith("```"):
            end = rows.index("```")
            lines = joined(lines, literal(rows[:end]))
            rows = rows[end + 1:]
            continue
        block = [row]
        while rows and rows[0].strip() and not rows[0].startswith(("```", "#")):
            block.append(rows.pop(0))
        if row.startswith("|"):
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in block[2:]]
            block = tagged([(first, "; ".join(rest) + ".") for first, *rest in cells])
        elif ITEM.match(row):
            block = items(block)
        else:
            block = sentences(" ".join(block))
        lines = lines + block if lines and lines[-1].startswith(".Ss") else joined(lines, block)
    return lines


def items(block):
    """Returns the list of a block of Markdown."""
    lines = [".Bl -enum -compact" if block[0][0].isdigit() else ".Bl -bullet -compact"]
    texts = []
    for row in block:
        if ITEM.match(row):
            texts.append(ITEM.sub("", row, count=1))
        else:
            texts[-1] += " " + row.strip()
    for text in texts:
        lines += [".It", *sentences(text)]
    return [*lines, ".El"]
