"""Conversion of text and of a part of Markdown to mdoc(7), the language of manual pages.

Markdown: headings, paragraphs, lists with `-` or numbers, code blocks, links, code, emphasis, and tables, which become lists whose
tags are the first column.
"""

import itertools
import re
import textwrap

MOST_COLUMNS = 78
"""Length of a line of text, which mandoc limits to 80 bytes."""
NAME = re.compile(r"\w[-._/:]+\w|[A-Z]{2}")
"""Part of a word that is not hyphenated at the end of a line."""
SHORT_TAG = 3
"""Length of tags up to which a list has no space between its items."""
MARKUP = re.compile(r"`(?P<code>[^`]+)`|\[(?P<text>[^]]+)\]\((?P<target>[^)\s]+)\)|\*(?P<emphasis>[^*\s][^*]*)\*"
                    r"|(?<![\w'])'(?P<quoted>[^\s'](?:[^']*[^\s'])?)'(?!\w)|(?<![\w/.-])(?P<option>--?[A-Za-z][\w-]*)")
SENTENCE_END = re.compile(r"(?<=[^\s.][.!?]) +(?=[A-Z`'(\[])")
PAGE = re.compile(r"([\w.-]+)\((\d)\)")
ITEM = re.compile(r"(?:-|\d+\.) +")
SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "^": "\\(ha", "~": "\\(ti", "…": "..."}


def escaped(text):
    """Returns plain text in which no character has a meaning for the formatter."""
    return "".join(SPECIAL.get(character, character) for character in text)


def argument(text):
    """Returns plain text as one argument of a macro."""
    return '"' + escaped(text).replace('"', "\\(dq") + '"'


def unbroken(text, is_code=False):
    """Returns escaped text without hyphenation of names, paths and numbers, or of code."""
    return "".join(("\\%" if is_code or NAME.search(word) else "") + escaped(word) if word.strip() else word
                   for word in re.split(r"(\s+)", text) if word)


def inline(text):
    """Returns a sentence with its markup as fonts. Options, and words in single quotes, are bold as code is."""
    parts, end = [], 0
    for match in MARKUP.finditer(text):
        parts.append(unbroken(text[end:match.start()]))
        end = match.end()
        if match["text"]:
            parts.append(inline(match["text"]))
            if "://" in match["target"]:
                parts.append(" " + unbroken(f"<{match['target']}>"))
        elif match["emphasis"]:
            parts.append(f"\\fI{escaped(match['emphasis'])}\\fR")
        else:
            word = match["code"] or match["quoted"] or match["option"]
            page = PAGE.fullmatch(word)
            parts.append(f"\\fB\\%{escaped(page[1])}\\fR({page[2]})" if page else f"\\fB{unbroken(word, True)}\\fR")
    return "".join([*parts, unbroken(text[end:])])


def sentence(text):
    """Returns a text as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


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
    is_short = all(len(name.strip("`")) <= SHORT_TAG for name, _ in items)
    lines = [f".Bl -tag -width {SHORT_TAG + 1}n -compact" if is_short else ".Bl -tag -width Ds"]
    for name, text in items:
        lines += [tag(name), *sentences(text)]
    return [*lines, ".El"]


def literal(lines):
    """Returns lines that keep their form."""
    return [".Bd -literal -offset indent", *(line(escaped(text)) for text in lines), ".Ed"]


def plain(text):
    """Returns a help text: paragraphs, and indented lines as a list of two columns or as they are."""
    lines = []
    for paragraph in re.split(r"\n{2,}", text.strip("\n")):
        for is_indented, rows in itertools.groupby(paragraph.split("\n"), key=lambda row: row.startswith(" ")):
            lines = joined(lines, indented(list(rows)) if is_indented else unindented(list(rows)))
    return lines


def examples(text):
    """Splits the examples, which are indented commands, from a help text. Returns the rest and the examples."""
    paragraphs = text.split("\n\n")
    found = [one for one in paragraphs if all(re.match(r" +earshot(-web)?(?= )", row) for row in one.split("\n"))]
    return "\n\n".join(one for one in paragraphs if one not in found), "\n\n".join(found)


def indented(rows):
    """Returns a list if each row has two columns, else the rows as they are. A comment is not a column."""
    pairs = [re.fullmatch(r" +(\S.*?) {2,}([^\s#].*)", row) for row in rows]
    return tagged([(f"`{pair[1]}`", pair[2]) for pair in pairs]) if all(pairs) else literal(textwrap.dedent("\n".join(rows)).split("\n"))


def unindented(rows):
    """Returns a list if each of several rows, perhaps below a title, is `TERM: TEXT`, else a paragraph."""
    title, rows = (rows[:1], rows[1:]) if len(rows) > 1 and rows[0].endswith(":") else ([], rows)
    pairs = [re.fullmatch(r"(\S(?:[^:]|:(?! ))*): (\S.*)", row) for row in rows]
    if len(rows) > 1 and all(pairs):
        return sentences(" ".join(title)) + tagged([(f"`{pair[1]}`", pair[2]) for pair in pairs])
    return sentences(" ".join(title + rows))


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
            block = tagged([(first, sentence("; ".join(rest))) for first, *rest in cells])
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
