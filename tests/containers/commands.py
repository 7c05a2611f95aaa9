# SPDX-License-Identifier: Apache-2.0
"""Calls of `weir` in files that people copy from: does each command and option exist?"""
import functools
import re
import subprocess

from lib import WEIR

# `weir` as a word of its own, behind whatever path, and not the name of something else: a unit, a namespace, a directory.
CALL = re.compile(r"(?:^|(?<=[\s`'\"(+=$|;&]))(?<!-n )(?:sudo )?(?:/usr/local/bin/|/usr/local/libexec/|build/)?weir (?P<rest>[a-z][a-z-]*(?:[ \t]+[^\s`'\"|;&)>]+)*)")
SUB = re.compile(r"^  (?:weir )?([a-z][a-z-]+)\b", re.M)


@functools.lru_cache(None)
def says(*args):
    """What `weir ARGS --help` prints, or None when there is no such command."""
    done = subprocess.run([WEIR, *args, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30)
    return done.stdout.decode() if done.returncode == 0 else None


@functools.lru_cache(None)
def names():
    return set(re.findall(r"^  ([a-z-]+) ", subprocess.run([WEIR, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode().split("examples:")[0], re.M))


def in_text(text):
    """What stands behind `weir` wherever it is called with a command that looks like one. Lines that go on are joined."""
    for match in CALL.finditer(re.sub(r"\\\n\s*#?\s*", " ", text)):
        rest = match["rest"].rstrip(".,:")
        # Prose has "weir serve looks after"; only what begins with a command, and then has options or operands of one, counts.
        if rest.split()[0] in names() or re.search(r" --[a-z]", rest):
            yield rest


def problem(call):
    """What is wrong with `weir CALL`, or None."""
    words = call.split()
    if words[0] not in names():
        return "no command %r" % words[0]
    text = says(words[0])
    if text is None:
        return "%r has no --help" % words[0]
    for word in words[1:]:
        option = re.match(r"--[a-z][a-z-]*", word)
        if option and option[0] not in ("--help", "--version") and not re.search(r"(?<![\w-])%s(?![\w-])" % option[0], text + (says(*words[:2]) or "")):
            return "%s: no option %s" % (words[0], option[0])
    # A command of commands: the next word is one of them.
    inner = re.search(r"usage: weir %s (COMMAND|[a-z]+\|)" % words[0], text, re.I)
    if inner and (len(words) < 2 or not re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(words[1]), text)):
        return "%s: no command %r" % (words[0], words[1] if len(words) > 1 else "")
    return None


def of_container(container):
    """A container's whole command line, as words in a row; the image's own program is `weir`."""
    return " ".join((container.get("command") or ["weir"]) + container.get("args", []))
