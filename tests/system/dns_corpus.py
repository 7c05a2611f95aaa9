# SPDX-License-Identifier: Apache-2.0
"""What a program can send as a DNS query to be seen in the record, and the text that must be seen.

CORPUS is a list of (label, message, text): `message` is the whole datagram; `text` is the name as the record, an export and a
report show it, or None when the message holds no question. Row i is sent to address_of(i), so that each is an attempt of its
own and can be found again; snippet() is a program that sends them all.

The text is ASCII letters, digits, `_`, `-` and the dots between labels; any other byte of a label is \\DDD, three decimal
digits. Where a name can't be read on, it ends with what stood there: @N is a compression pointer to byte N of the message (@?:
its second byte is missing), !N another reserved label type with that byte. MALFORMED has the labels of those rows whose
name is said to be malformed.
"""
import struct

MALFORMED = set()
CORPUS = []

A, NS, PTR, TXT, AAAA, SRV, OPT, ANY = 1, 2, 12, 16, 28, 33, 41, 255


def name_of(*labels):
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def message(name, qtype=A, counts=(1, 0, 0, 0), flags=0x0100, more=b""):
    tail = struct.pack("!HH", qtype, 1) if qtype is not None else b""
    return struct.pack("!HHHHHH", 0x5745, flags, *counts) + name + tail + more


def edns(size=1232, version=0, flags=0x8000, data=b""):
    return b"\0" + struct.pack("!HHBBHH", OPT, size, 0, version, flags, len(data)) + data


def add(label, wire, text, malformed=False):
    CORPUS.append((label, wire, text))
    if malformed:
        MALFORMED.add(label)


def add_label(label, content, text):
    """A name of `content` (bytes of one label) and the label `invalid`."""
    add(label, message(name_of(content, b"invalid")), text + ".invalid")


# ---- ordinary, and still not what one expects ----

add("plain", message(name_of(b"plain", b"example", b"com")), "plain.example.com")
add("case", message(name_of(b"SeCrEt", b"Example", b"COM"), AAAA), "SeCrEt.Example.COM")
add("root", message(name_of(), NS), ".")
add("service", message(name_of(b"_ldap", b"_tcp", b"example"), SRV), "_ldap._tcp.example")
add("punycode", message(name_of(b"xn--bcher-kva", b"example")), "xn--bcher-kva.example")
add("edns", message(name_of(b"edns", b"example"), A, (1, 0, 0, 1), more=edns()), "edns.example")
add(
    "edns options",
    message(name_of(b"edns-options", b"example"), TXT, (1, 0, 0, 1), more=edns(data=b"\0\x0a\0\x08cookie\n\x1b\0\x0c\0\x04\0\0\0\0")),
    "edns-options.example",
)
add("edns broken", message(name_of(b"edns-broken", b"example"), A, (1, 0, 0, 9), more=edns(65535, 255, 0xFFFF)[:-3]), "edns-broken.example")
add("two questions", message(name_of(b"first", b"example"), A, (2, 0, 0, 0), more=name_of(b"second", b"example") + b"\0\1\0\1"), "first.example")
add("many questions", message(name_of(b"many", b"example"), A, (65535, 65535, 65535, 65535)), "many.example")
add("an answer", message(name_of(b"answer", b"example"), A, flags=0x8580), "answer.example")
add("unknown type", message(name_of(b"unknown-type", b"example"), 65280), "unknown-type.example")
add("no type", message(name_of(b"no-type", b"example"), None), "no-type.example")
add("bytes behind", message(name_of(b"behind", b"example"), more=b"\x1b]0;title\x07\n<b>"), "behind.example")
add("smuggled data", message(name_of(b"mzxw6ytboi" * 6, b"mfrggzdfmztwq2lk", b"example")), "mzxw6ytboi" * 6 + ".mfrggzdfmztwq2lk.example")

# ---- as long as it gets ----

add("255 bytes", message(name_of(b"a" * 63, b"b" * 63, b"c" * 63, b"d" * 61)), ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61]))
add(
    "255 bytes escaped",
    message(name_of(b"\xff" * 63, b"\xff" * 63, b"\xff" * 63, b"\xff" * 61)),
    ".".join(["\\255" * 63, "\\255" * 63, "\\255" * 63, "\\255" * 61]),
)
add("127 labels", message(name_of(*[b"x"] * 127)), ".".join("x" * 127))
add(
    "256 bytes",
    message(name_of(b"e" * 63, b"f" * 63, b"g" * 63, b"h" * 62)),
    ".".join(["e" * 63, "f" * 63, "g" * 63, "h" * 62]),
    malformed=True,
)
add(
    "far too long",
    message(name_of(*[b"%02d" % i + b"z" * 61 for i in range(16)])),
    ".".join(["%02d" % i + "z" * 61 for i in range(3)] + ["03" + "z" * 60]),
    malformed=True,
)

# ---- malformed ----

add("label cut off", message(b"\x14short", None), "short", malformed=True)
add("no root", message(b"\5never\5ended", None), "never.ended", malformed=True)
add("only a length", message(b"\x3f", None), "", malformed=True)
add("pointer alone", message(b"\xc0\x0c"), "@12", malformed=True)
add("pointer to the header", message(b"\xc0\x00"), "@0", malformed=True)
add("pointer far away", message(b"\xff\xff"), "@16383", malformed=True)
add("pointer to itself behind a label", message(b"\4loop\xc0\x0c"), "loop.@12", malformed=True)
add("pointer to a later name", message(b"\4hide\xc0\x20", more=b"\0" * 10 + name_of(b"behind", b"pointer")), "hide.@32", malformed=True)
add("pointer cut off", message(b"\3cut\xc0", None), "cut.@?", malformed=True)
add("extended label", message(b"\3ext\x41\x08\xff\x00"), "ext.!65", malformed=True)
add("reserved label", message(b"\x80abc\0"), "!128", malformed=True)

# ---- bytes that do something to whoever prints them ----

add_label("control characters", bytes(range(32)), "".join("\\%03d" % i for i in range(32)))
add_label("delete and C1", b"\x7f\x80\x85\x9b\x9f", "\\127\\128\\133\\155\\159")
add_label("NUL in the middle", b"before\0after", "before\\000after")
add_label("lines of a log", b"x\r\n2026-01-01 ALLOWED by policy\n", "x\\013\\0102026-01-01\\032ALLOWED\\032by\\032policy\\010")
add_label("colours", b"\x1b[31;5mred\x1b[0m", "\\027\\09131\\0595mred\\027\\0910m")
add_label("clear screen", b"\x1b[2J\x1b[H\x9b2J", "\\027\\0912J\\027\\091H\\1552J")
add_label("window title", b"\x1b]0;owned\x07\x1b]8;;file:///\x1b\\", "\\027\\0930\\059owned\\007\\027\\0938\\059\\059file\\058\\047\\047\\047\\027\\092")
add_label("backspaces", b"denied\x08\x08\x08\x08\x08\x08allowed", "denied" + "\\008" * 6 + "allowed")
add_label("UTF-8", "b\u00fccher".encode(), "b\\195\\188cher")
add_label("look-alikes", "\u0440\u0430ypal".encode(), "\\209\\128\\208\\176ypal")
add_label("not UTF-8", b"\xff\xfe\xc3\x28\xe2\x82", "\\255\\254\\195\\040\\226\\130")
add_label("overlong and surrogates", b"\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80", "\\192\\175\\237\\160\\128\\244\\144\\128\\128")
add_label("right to left", "\u202egnp.\u2066exe\u2069\u200f".encode(), "\\226\\128\\174gnp\\046\\226\\129\\166exe\\226\\129\\169\\226\\128\\143")
add_label("invisible", "\ufeffa\u200bb\u00ad".encode(), "\\239\\187\\191a\\226\\128\\139b\\194\\173")
add_label("line separators", "a\u2028b\u2029c\u0085".encode(), "a\\226\\128\\168b\\226\\128\\169c\\194\\133")

# ---- text of somebody else's language ----

add_label("script", b"<script>alert(1)</script>", "\\060script\\062alert\\0401\\041\\060\\047script\\062")
add_label("attribute", b"\" onmouseover='x()' a=\"", "\\034\\032onmouseover\\061\\039x\\040\\041\\039\\032a\\061\\034")
add_label("entities", b"&lt;b&gt;&#x202e;", "\\038lt\\059b\\038gt\\059\\038\\035x202e\\059")
add_label("comment", b"--><!--]]>", "--\\062\\060\\033--\\093\\093\\062")
add_label("JSON", b'","verdict":"allowed","x":"', "\\034\\044\\034verdict\\034\\058\\034allowed\\034\\044\\034x\\034\\058\\034")
add_label("SQL", b"'; DROP TABLE run; --", "\\039\\059\\032DROP\\032TABLE\\032run\\059\\032--")
add_label("shell", b"$(id)`id`|id;&", "\\036\\040id\\041\\096id\\096\\124id\\059\\038")
add_label("formula", b"=1+1|' /C calc'!A0", "\\0611\\0431\\124\\039\\032\\047C\\032calc\\039\\033A0")
add_label("format", b"%s%n%x{0}${jndi:x}", "\\037s\\037n\\037x\\1230\\125\\036\\123jndi\\058x\\125")
add_label("markdown", b"[x](javascript:1)", "\\091x\\093\\040javascript\\0581\\041")

# ---- what is meant to be taken for something else ----

add_label("a dot in a label", b"www.bank", "www\\046bank")
add_label("an escape as text", b"www\\046bank", "www\\092046bank")
add_label("a pointer as text", b"@12", "\\06412")
add_label("a reserved label as text", b"!128", "\\033128")
add_label("spaces", b" . ", "\\032\\046\\032")
add_label("an option", b"--help", "--help")
add_label("a path", b"../../etc/passwd", "\\046\\046\\047\\046\\046\\047etc\\047passwd")

# ---- no question to be read ----

add("no question", message(name_of(b"not", b"counted"), counts=(0, 0, 0, 0)), None)
add("header alone", message(b"", None), None)
add("half a header", message(b"", None)[:5], None)
add("empty", b"", None)


def address_of(i):
    """The address that row `i` is sent to, port 53: of a documentation prefix, RFC 5737."""
    return "198.51.100.%d" % (i + 1)


def snippet():
    """Python that sends each row from a socket of its own, and prints how many were refused."""
    rows = [(address_of(i), wire) for i, (_, wire, _) in enumerate(CORPUS)]
    return (
        "import socket\nrefused = 0\nfor to, wire in %r:\n"
        "    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n"
        "        try:\n            s.sendto(wire, (to, 53))\n"
        "        except PermissionError:\n            refused += 1\nprint(refused)\n" % rows
    )
