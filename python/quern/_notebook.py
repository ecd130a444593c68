# SPDX-License-Identifier: Apache-2.0
"""What notebooks show: a module's text with colours, an engine's cache as a table, an error with its carets in place.

Everything from outside is escaped. Colours are those of Jupyter's editor, by its variables, with colours for other front ends.
"""
import html
import re
import time

from ._grammar import PATTERNS
from .errors import Error

# Scopes of the grammar by their beginnings, the longest first: a variable of Jupyter's theme, and a colour without it.
_COLOURS = (("comment", "comment", "#408080"), ("string", "string", "#ba2121"), ("constant", "number", "#666666"),
            ("entity.name.function", "def", "#0000c0"), ("support.function", "builtin", "#008080"),
            ("storage.type.dtype", "variable-3", "#7d5b00"), ("keyword.operator", None, None), ("keyword", "keyword", "#008000"),
            ("storage", "keyword", "#008000"), ("invalid", "error", "#ff0000"))
_MAX_LINES = 1000
_MAX_ENTRIES = 20
_PRE = "white-space: pre; overflow-x: auto; font-family: var(--jp-code-font-family, monospace); text-align: left"


def _compiled(rules):
    return [(rule, re.compile(rule.get("match") or rule["begin"])) for rule in rules]


_TOP = _compiled(PATTERNS)


def parts(line):
    """The parts of a line with their scopes, in order; "" for what has none. They join to the line."""
    found, at, rules, end = [], 0, _TOP, None
    while at < len(line):
        matches = [(m.start(), i, m, rule) for i, (rule, pattern) in enumerate(rules) if (m := pattern.search(line, at))]
        if end and (m := end.search(line, at)):
            matches.append((m.start(), -1, m, None))
        if not matches:
            break
        start, _, match, rule = min(matches, key=lambda one: one[:2])
        found.append((line[at:start], "string" if end else ""))
        at = match.end()
        if rule is None:
            found.append((match.group(), "string"))
            rules, end = _TOP, None
        elif "begin" in rule:
            found.append((match.group(), rule["name"]))
            rules, end = _compiled(rule["patterns"]), re.compile(rule["end"])
        elif "name" in rule:
            found.append((match.group(), rule["name"]))
        else:
            place = start
            for group, capture in rule["captures"].items():
                if match.group(int(group)):
                    found.append((line[place:match.start(int(group))], ""))
                    found.append((match.group(int(group)), capture["name"]))
                    place = match.end(int(group))
            found.append((line[place:at], ""))
        if match.end() == start:  # an empty match: the end of a string at the end of the line
            found.append((line[at:at + 1], ""))
            at += 1
    found.append((line[at:], "string" if end else ""))
    return [one for one in found if one[0]]


def _coloured(text, scope):
    for beginning, variable, colour in _COLOURS:
        if scope.startswith(beginning):
            if variable is None:
                break
            return f'<span style="color: var(--jp-mirror-editor-{variable}-color, {colour})">{html.escape(text)}</span>'
    return html.escape(text)


def of_text(text):
    """A program of the language."""
    lines = text.splitlines()
    shown = ["".join(_coloured(*part) for part in parts(line)) for line in lines[:_MAX_LINES]]
    if len(lines) > _MAX_LINES:
        shown.append(f"... {len(lines) - _MAX_LINES} more lines")
    return f'<pre style="{_PRE}">' + "\n".join(shown) + "</pre>"


def of_error(error):
    """An error's message, in which carets stand below what they mean."""
    return f'<pre style="{_PRE}">{html.escape(str(error))}</pre>'


def _table(head, rows):
    cells = "".join(f"<th style='text-align: left'>{html.escape(one)}</th>" for one in head)
    body = "".join("<tr>" + "".join(f"<td style='text-align: left'>{html.escape(str(one))}</td>" for one in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _time(seconds):
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _size(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def of_engine(engine):
    """An engine: where its lookups found code, and the newest entries of its directory."""
    try:
        stats = engine.stats()
        directory = engine.config()["cache_dir"][0]
        entries = sorted(engine.entries(), key=lambda one: -one.created)
    except Error as error:
        return of_error(error)
    counts = _table(("lookups", "memory", "directory", "bundles", "remote", "compiled", "time compiling"),
                    [[stats[name] for name in ("lookups", "memory_hits", "directory_hits", "bundle_answers", "remote_answers", "compiles")]
                     + [f"{stats['compile_ns'] * 1e-9:.3f} s"]])
    if not directory:
        return counts + "<p>no cache directory</p>"
    rows = [(one.key[:12], one.target, one.options, _size(one.size_bytes), f"{one.compile_s * 1e3:.1f} ms", _time(one.created))
            for one in entries[:_MAX_ENTRIES]]
    newest = f", the newest {_MAX_ENTRIES}" if len(entries) > _MAX_ENTRIES else ""
    title = f"<p><code>{html.escape(directory)}</code>: {len(entries)} entries, {_size(sum(one.size_bytes for one in entries))}{newest}</p>"
    return counts + title + (_table(("key", "target", "options", "size", "compiled in", "created"), rows) if rows else "")
