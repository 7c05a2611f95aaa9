# SPDX-License-Identifier: Apache-2.0
"""Makes one tool call: the program that a tool's interpreter is started with.

It says that it is there and waits for a word; imports the agent's modules; says so and reads the request; waits for the gate;
calls; writes one frame with the result or the error, and ends the process. Layouts and words: userspace/ipc/ipc.h,
runner/plan.h. What can be in a result is decided in one place, _Plain.

The interpreter belongs to the tool: whatever its code does to it can only spoil that tool's own result. So that it does not do
so by accident, this file runs in a namespace that no module table leads to, with builtins of its own; what is needed after the
call is bound before the first import of the agent's, and the result's descriptor gets a number that nobody counts up to.

Runs on whatever Python an image brings, from 3.8 on.
"""
import builtins
import sys

if __name__ == "__main__":
    # The same code once more, elsewhere. It does not return.
    exec(sys._getframe().f_code, {"__name__": "weir-tool", "__builtins__": dict(builtins.__dict__)})

import _signal
import posix
from math import isfinite
from posix import _exit, close, dup2, getpid, open, read, stat, urandom, write

import_module = builtins.__import__
REQUEST, GATE, RESULT = 3, 4, 5  # PAYLOAD_FD_*
VALUE, ERROR, UNKNOWN = 1, 2, 3  # enum result_kind
RESULT_BYTES, RESULT_DEPTH, JSON_DIGITS = 8 << 20, 60, 4300  # LIMIT_*
ERROR_MESSAGE_BYTES, ERROR_TRACEBACK_BYTES = 8192, 65536
ERROR_TYPE_BYTES = 255
LOST = 124  # exit status when whoever calls is gone, or says what nobody says
CANCEL_SECONDS = 1  # for tasks that an async tool has left

OURS = sys._getframe().f_code.co_filename
Module, Function, Builtin, Method = type(sys), type(lambda: 0), type(len), type((lambda self: 0).__get__(0))
TAKES_ARGS, GENERATES, CAN_BE_AWAITED = 0x04, 0x220, 0x100  # flags of code: *args; a generator, an async one; @types.coroutine
settrace, setprofile, setrecursionlimit = sys.settrace, sys.setprofile, sys.setrecursionlimit
set_digits, get_digits = getattr(sys, "set_int_max_str_digits", None), getattr(sys, "get_int_max_str_digits", None)
get_handler, set_handler, signals = _signal.getsignal, _signal.signal, sorted(_signal.valid_signals())


class _Unknown(Exception):
    """There is no such tool; in words what is missing."""


class _Failed(Exception):
    """An error of the call that is not an exception of the tool's: a type, a message, and the exception behind it, if any."""

    def __init__(self, kind, message, behind=None):
        self.kind, self.message, self.behind = kind, message, behind


# ---- what classes and exceptions are, whatever they say of themselves ----

_type_name, _type_module = type.__dict__["__name__"].__get__, type.__dict__["__module__"].__get__
_type_mro, _type_dict = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__
_cause_of, _context_of = BaseException.__dict__["__cause__"].__get__, BaseException.__dict__["__context__"].__get__
_hushed, _trace_of = BaseException.__dict__["__suppress_context__"].__get__, BaseException.__dict__["__traceback__"].__get__
_set_trace = BaseException.with_traceback


def _name_of(kind):
    return _utf8(_type_name(kind)[:ERROR_TYPE_BYTES])[:ERROR_TYPE_BYTES].decode("utf-8", "ignore")


def _full_name_of(kind):
    module = _type_module(kind)
    name = _name_of(kind)
    return name if type(module) is not str or module == "builtins" else "%s.%s" % (module[:ERROR_TYPE_BYTES], name)


def _has(kind, attribute):
    return any(attribute in _type_dict(c) for c in _type_mro(kind))


def _utf8(text):
    """Two halves of a surrogate pair become what they stand for, a lone one U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


# ---- JSON in and out: the interpreter's own parts in C, which nothing in Python can be put in the place of ----


def _no_default(value):
    raise TypeError  # another thread has changed the result meanwhile


try:
    from _json import encode_basestring, make_encoder, make_scanner

    class _Context:
        strict, object_hook, object_pairs_hook, array_hook, parse_constant, memo = True, None, None, None, None, {}
        parse_float, parse_int = float, int

    _encode_parts = make_encoder(None, _no_default, encode_basestring, None, ":", ",", False, False, False)
    _scan = make_scanner(_Context)

    def _encode(value):
        return "".join(_encode_parts(value, 0))

    def _decode(text):
        text = text.strip(" \t\r\n")
        value, end = _scan(text, 0)
        if end != len(text):
            raise ValueError("more than one JSON value")
        return value

except (ImportError, AttributeError, TypeError):  # another interpreter than CPython, or one of a later day
    from json import JSONDecoder, JSONEncoder

    _encode = JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
    _decode = JSONDecoder().decode


# ---- what can be in a result ----

_LEAVES = frozenset((str, int, float, bool, type(None)))
_STRING = frozenset((str,))
_LONGEST = 10**JSON_DIGITS
_LONGEST_BITS = _LONGEST.bit_length()
_WORDS = {True: "true", False: "false", None: "null"}
# What is said beside the type and the place.
_ADVICE = {
    "bytes": "return text, for instance base64",
    "bytearray": "return text, for instance base64",
    "datetime.datetime": "return .isoformat()",
    "datetime.date": "return .isoformat()",
    "datetime.time": "return .isoformat()",
    "decimal.Decimal": "return str() or float() of it",
    "uuid.UUID": "return str() of it",
    "set": "return a list",
    "frozenset": "return a list",
    "range": "return a list",
    "complex": "return two numbers",
    "numpy.ndarray": "return .tolist()",
    "pandas.core.frame.DataFrame": "return .to_dict('records')",
    "pandas.DataFrame": "return .to_dict('records')",
}


def _advice(kind):
    name = _full_name_of(kind)
    if name in _ADVICE:
        return _ADVICE[name]
    for attribute, text in (
        ("__next__", "a tool returns its values, for instance as a list"),
        ("__anext__", "a tool returns its values, for instance as a list"),
        ("__enter__", "a context manager is no value"),
        ("__aenter__", "a context manager is no value"),
        ("__dataclass_fields__", "return dataclasses.asdict() of it"),
        ("model_dump", "return .model_dump() of it"),
        ("_member_map_", "return its .value"),
        ("__fspath__", "return str() of it"),
        ("tolist", "return .tolist() of it"),
    ):
        if _has(kind, attribute):
            return text
    return "a result is None, bool, int, float, str, list, tuple or dict"


def _by_value(value, kind):
    """What a subclass of a JSON type holds, read past whatever the subclass has put before it; else None."""
    for base, take in (
        (str, str.__str__),
        (int, int.__int__),
        (float, float.__float__),
        (dict, lambda v: dict(dict.items(v))),
        (list, lambda v: list(list.__iter__(v))),
        (tuple, lambda v: list(tuple.__iter__(v))),
    ):
        if issubclass(kind, base):
            return take(value)
    return None


class _Plain:
    """Makes of a result what the encoder takes as it is, or raises _Failed with the type and the place that it can't.

    While it goes it counts what the text will take at least, so that nothing is made that is too large anyway: of every element
    its comma and one character, and what strings and long numbers have beyond that. Lists and dicts that are fine stay what
    they are, and are looked at by functions in C.
    """

    def __init__(self, clean):
        self.clean = clean  # surrogates are replaced; else that is left to the encoding, which knows whether there are any
        self.left = RESULT_BYTES
        self.open = set()

    def spend(self, size):
        self.left -= size
        if self.left < 0:
            raise _Failed("ToolResultError", "the result is too large (more than %d bytes)" % RESULT_BYTES)

    @staticmethod
    def refuse(path, what):
        parts, shown = [], 0
        while path and shown < 400:
            path, key = path
            if type(key) is int:
                part = "[%d]" % key
            elif key.isidentifier() and len(key) <= 80:
                part = "." + key
            else:
                part = "[%s]" % _encode(key[:80])
            parts.append(part)
            shown += len(part)
        where = "$" + ("…" if path else "") + "".join(reversed(parts))
        raise _Failed("ToolResultError", "the result can't be JSON: %s: %s" % (where, what))

    def refuse_kind(self, path, kind):
        self.refuse(path, "%s (%s)" % (_full_name_of(kind), _advice(kind)))

    def number(self, value, path):
        """Checks an int or float, both exactly."""
        if type(value) is float:
            if not isfinite(value):
                self.refuse(path, "%s is no number in JSON" % float.__repr__(value))
        elif not -_LONGEST < value < _LONGEST:
            self.refuse(path, "an int of more than %d digits" % JSON_DIGITS)

    def leaves(self, values, kinds, path):
        """The same for many at once; `path` is that of what holds them."""
        if str in kinds:
            self.spend(sum(map(len, values if len(kinds) == 1 else [v for v in values if type(v) is str])))
        if int in kinds:
            whole = values if len(kinds) == 1 else [v for v in values if type(v) is int]
            most = max(map(int.bit_length, whole))
            if most >= _LONGEST_BITS:
                return False
            if most > 64:
                self.spend(sum([v.bit_length() * 3 // 10 - 1 for v in whole if v.bit_length() > 64]))
        if float in kinds:
            return all(map(isfinite, values if len(kinds) == 1 else [v for v in values if type(v) is float]))
        return True

    def convert(self, value, path, depth):
        kind, identity = type(value), id(value)
        if kind not in _LEAVES and kind is not dict and kind is not list and kind is not tuple:
            value = _by_value(value, kind)
            if value is None:
                self.refuse_kind(path, kind)
            kind = type(value)
        if kind in _LEAVES:
            return self.leaf(value, kind, path)
        if identity in self.open:
            self.refuse(path, "%s that contains itself" % kind.__name__)
        if depth == RESULT_DEPTH:
            raise _Failed("ToolResultError", "the result can't be JSON: it is nested more than %d levels deep" % RESULT_DEPTH)
        self.open.add(identity)
        value = self.object(value, path, depth) if kind is dict else self.array(value, path, depth)
        self.open.discard(identity)
        return value

    def leaf(self, value, kind, path):
        if kind is str:
            self.spend(len(value))
            return _utf8(value).decode() if self.clean else value
        if kind is int:
            self.spend(value.bit_length() * 3 // 10)
            self.number(value, path)
        elif kind is float:
            self.number(value, path)
        return value

    def array(self, value, path, depth):
        self.spend(2 * len(value))
        kinds = set(map(type, value))
        if kinds <= _LEAVES and not (self.clean and str in kinds) and self.leaves(value, kinds, path):
            return value
        return [self.convert(item, (path, index), depth + 1) for index, item in enumerate(value)]

    def object(self, value, path, depth):
        self.spend(5 * len(value))
        names = set(map(type, value)) <= _STRING and not self.clean
        if names:
            self.spend(sum(map(len, value)))
            kinds = set(map(type, value.values()))
            if kinds <= _LEAVES and self.leaves(list(value.values()), kinds, path):
                return value
        made = {}
        for key, item in list(value.items()):
            name = key if names else self.name(key, path)
            if name in made:
                self.refuse(path, "two keys become the name %s" % _encode(name[:80]))
            made[name] = self.convert(item, (path, name), depth + 1)
        return made

    def name(self, key, path):
        kind = type(key)
        if kind is not str and kind is not int and kind is not float:
            if kind is bool or key is None:
                return _WORDS[key]
            key = None if kind is tuple else _by_value(key, kind)
            kind_now = type(key)
            if kind_now is not str and kind_now is not int and kind_now is not float:
                self.refuse(path, "a key is %s" % _full_name_of(kind))
            kind = kind_now
        if kind is str:
            self.spend(len(key))
            return _utf8(key).decode() if self.clean else key
        self.number(key, path)
        return int.__repr__(key) if kind is int else float.__repr__(key)


def _value_text(value):
    """A result as UTF-8, of at most RESULT_BYTES."""
    try:
        try:
            text = _encode(_Plain(False).convert(value, (), 0)).encode()
        except UnicodeEncodeError:
            text = _encode(_Plain(True).convert(value, (), 0)).encode()
    except _Failed:
        raise
    except BaseException as e:
        raise _Failed("ToolResultError", "the result can't be made JSON: %s" % _one_line(e))
    if len(text) > RESULT_BYTES:
        raise _Failed("ToolResultError", "the result is too large (%d bytes; the limit is %d)" % (len(text), RESULT_BYTES))
    return text


# ---- errors: every step has something to fall back on, and a bound ----


def _cut(text, limit, tail=0):
    """At most `limit` bytes as UTF-8: the beginning, and `tail` bytes of the end."""
    total = len(text)
    if total > 2 * limit:
        text = text[:limit] + text[-limit:] if tail else text[:limit]
    data = _utf8(text)
    if len(data) <= limit and len(text) == total:
        return data.decode()
    head = data[: limit - tail - 80].decode("utf-8", "ignore")
    rest = data[-tail:].decode("utf-8", "ignore") if tail else ""
    return "%s… [cut: %d characters in all] …%s" % (head, total, "\n" + rest if rest else "")


def _message_of(error):
    """(message, whether it is what the exception says)."""
    try:
        text = str(error)
        if type(text) is not str:
            text = str.__str__(text)
        return _cut(text, ERROR_MESSAGE_BYTES), len(text) <= ERROR_MESSAGE_BYTES
    except BaseException as e:
        return "<no message: making it raised %s>" % _name_of(type(e)), False


def _one_line(error):
    message, _ = _message_of(error)
    return "%s: %s" % (_name_of(type(error)), " ".join(message[:400].split())) if message else _name_of(type(error))


def _below(error):
    """(label, exception) of what stands before it in a traceback, or None."""
    cause, context = _cause_of(error), _context_of(error)
    if cause is not None:
        return "\nThe above exception was the direct cause of the following exception:\n\n", cause
    if context is not None and not _hushed(error):
        return "\nDuring handling of the above exception, another exception occurred:\n\n", context
    return None


def _all_of(error):
    """It and all that its traceback will show, each once; at most a thousand."""
    found, seen, waiting = [], set(), [error]
    while waiting and len(found) < 1000:
        e = waiting.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        found.append(e)
        waiting += [x for x in (_cause_of(e), _context_of(e)) if x is not None]
        if _has(type(e), "derive") and _has(type(e), "split"):
            try:
                waiting += [x for x in tuple(e.exceptions) if isinstance(x, BaseException)]
            except BaseException:
                pass
    return found


def _without_ours(trace):
    kept = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != OURS:
            kept.append(trace)
        trace = trace.tb_next
    below = None
    for trace in reversed(kept):
        trace.tb_next = below
        below = trace
    return below


def _source_line(frame, number):
    try:
        import linecache

        return linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
    except BaseException:
        return ""


def _plain_traceback(error):
    """What Python prints, for exceptions that its own way of making it can't cope with."""
    chain, seen, parts = [("", error)], set(), []
    while len(chain) < 50 and id(chain[-1][1]) not in seen:
        seen.add(id(chain[-1][1]))
        below = _below(chain[-1][1])
        if not below:
            break
        chain[-1] = below[0], chain[-1][1]
        chain.append(("", below[1]))
    for label, e in reversed(chain):
        parts.append(label)
        trace, frames = _trace_of(e), []
        while trace is not None:
            frames.append((trace.tb_frame, trace.tb_lineno))
            trace = trace.tb_next
        if frames:
            parts.append("Traceback (most recent call last):\n")
        if len(frames) > 100:
            frames[20:-80] = [None]
        for at in frames:
            if at is None:
                parts.append("  [… more frames …]\n")
                continue
            frame, number = at
            code = frame.f_code
            parts.append('  File "%s", line %s, in %s\n' % (code.co_filename, number, code.co_name))
            line = _source_line(frame, number)
            if line:
                parts.append("    %s\n" % line[:400])
        if issubclass(type(e), SyntaxError):
            place = _attribute(e, "filename"), _attribute(e, "lineno"), _attribute(e, "text")
            if [type(p) for p in place] == [str, int, str]:
                parts.append('  File "%s", line %d\n    %s\n' % (place[0], place[1], place[2].strip()[:400]))
        parts.append("%s: %s\n" % (_full_name_of(type(e)), _message_of(e)[0]))
    return "".join(parts)


def _traceback_of(error):
    honest = True
    for e in _all_of(error):
        _set_trace(e, _without_ours(_trace_of(e)))
        honest = honest and _message_of(e)[1]
    text = None
    if honest:
        try:
            from traceback import format_exception

            text = "".join(format_exception(type(error), error, _trace_of(error)))
        except BaseException:
            pass
    return _cut(text or _plain_traceback(error), ERROR_TRACEBACK_BYTES, ERROR_TRACEBACK_BYTES * 3 // 4)


def _error_text(kind, message, behind):
    """The frame's object. `behind` is an exception or None."""
    trace = ""
    if behind is not None:
        try:
            trace = _traceback_of(behind)
        except BaseException as e:
            trace = "<no traceback: making it raised %s>" % _name_of(type(e))
    return _utf8(_encode({"type": kind, "message": _cut(message, ERROR_MESSAGE_BYTES), "traceback": trace}))


def _exit_status(error):
    """What CPython ends with after a SystemExit."""
    try:
        code = error.code
        if code is None:
            return 0
        return int.__int__(code) & 0xFF if issubclass(type(code), int) else 1
    except BaseException:
        return 1


# ---- which tool ----


def _is_name(name):
    """Of something that a tool can be reached by: nothing of Python's own."""
    return name.isidentifier() and not (name.startswith("__") and name.endswith("__"))


class _Tools:
    """The agent's modules, and what can be called in them."""

    def __init__(self, names):
        self.names, self.modules, self.failed = names, {}, {}

    def load(self, name):
        """None, or the exception."""
        try:
            import_module(name)
            self.modules[name] = sys.modules[name]
            return None
        except BaseException as e:
            self.failed[name] = e
            return e

    def module(self, name):
        """A registered one, or one below a registered package."""
        if name in self.failed:
            raise self.failure(name)
        if name in self.modules:
            return self.modules[name]
        if not any(name.startswith(n + ".") for n in self.names) or not all(map(_is_name, name.split("."))):
            raise _Unknown("module %s is none of the agent's (%s)" % (name, self._named()))
        for n in self.names:
            if name.startswith(n + ".") and n in self.failed:
                raise self.failure(n)
        error = self.load(name)
        if error is None:
            return self.modules[name]
        if type(error) is ModuleNotFoundError and type(error.name) is str and (name + ".").startswith(error.name + "."):
            raise _Unknown("there is no module %s in the image" % error.name)
        raise self.failure(name)

    def _named(self):
        """Its modules, and why one is not to be had: that is often why a tool is looked for elsewhere."""
        return ", ".join(n + " (which can't be imported: %s)" % _one_line(self.failed[n]) if n in self.failed else n for n in self.names)

    def failure(self, name):
        error = self.failed[name]
        return _Failed("ToolLoadError", "module %s could not be imported: %s" % (name, _one_line(error)), error)

    @staticmethod
    def walk(module, path):
        """The attribute there, or _Unknown. Modules lead to everything that is installed, so no way goes through one."""
        value = module
        for name in path.split("."):
            if not _is_name(name):
                raise _Unknown("%s is no name that a tool can have" % (path or "nothing"))
            try:
                value = getattr(value, name)
            except AttributeError:
                raise _Unknown("module %s of the image has no %s" % (_attribute(module, "__name__"), path)) from None
            if issubclass(type(value), Module):
                raise _Unknown("%s is a module" % path)
        return value

    def find(self, name):
        """What a tool's name stands for, be it callable or not."""
        module, colon, path = name.partition(":")
        if colon:
            return self.walk(self.module(module), path)
        for module in self.names:
            # An earlier module might have it, if it could be imported: then it would not be this one that is meant.
            loaded = self.module(module)
            try:
                return self.walk(loaded, name)
            except _Unknown:
                pass
        raise _Unknown("none of the agent's modules (%s) has %s" % (self._named(), name))

    def callable(self, name):
        tool = _unwrapped(self.find(name))
        if not callable(tool):
            raise _Failed("ToolLoadError", "%s is no tool: it is of type %s" % (name, _full_name_of(type(tool))))
        return tool


def _attribute(value, name):
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _closed_over(function, name, levels=3):
    """The variable of that name that a function, or one that it has closed over, holds; else None."""
    code, cells = _attribute(function, "__code__"), _attribute(function, "__closure__")
    if not code or not cells:
        return None
    held = []
    for variable, cell in zip(code.co_freevars, cells):
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # not set yet
        if variable == name:
            return value
        held.append(value)
    for value in held:
        if levels and type(value) is Function:
            found = _closed_over(value, name, levels - 1)
            if found is not None:
                return found
    return None


def _unwrapped(tool):
    """The function behind an object that a framework has put in its place."""
    for _ in range(4):
        kind = type(tool)
        if kind in (Function, Builtin, Method) or issubclass(kind, type) or _full_name_of(kind) == "functools.partial":
            return tool
        # An object that can be called is to be called, unless a framework runs it in a way of its own: a decorator may be a
        # class.
        if callable(tool) and not callable(_attribute(tool, "invoke")) and not callable(_attribute(tool, "run_async")):
            return tool
        found = [_attribute(tool, name) for name in ("func", "coroutine", "fn", "function")]
        inner = next((f for f in found if callable(f)), None)
        if inner is None:
            invoke = _attribute(tool, "on_invoke_tool")
            inner = _closed_over(_attribute(invoke, "_invoke_tool_impl") or invoke, "the_func")
        if inner is None and not callable(tool):
            inner = _attribute(tool, "__wrapped__")
        if inner is None:
            return tool
        tool = inner
    return tool


def _generates(tool):
    function = tool.__func__ if type(tool) is Method else tool
    if type(function) is not Function:
        return False
    flags = function.__code__.co_flags
    return flags & GENERATES and not flags & CAN_BE_AWAITED


# ---- calling it ----


def _parameters(tool):
    """Of whatever can be called. Annotations are none of our business: they may name what is not there."""
    import inspect

    more = {}
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        more = {"annotation_format": Format.STRING}
    return list(inspect.signature(tool, **more).parameters.values())


def _positional_names(tool):
    """Names, and defaults by name, of the parameters that can't be given by name."""
    bound = type(tool) is Method
    function = tool.__func__ if bound else tool
    # A decorator that hands everything on takes what the function behind it does.
    for _ in range(20):
        if type(function) is not Function or not function.__code__.co_flags & TAKES_ARGS:
            break
        behind = _attribute(function, "__wrapped__")
        if type(behind) is not Function:
            break
        function = behind
    if type(function) is Function:
        code = function.__code__
        if not code.co_posonlyargcount:
            return (), {}
        names = code.co_varnames[: code.co_argcount]
        return names[bound : code.co_posonlyargcount], dict(zip(reversed(names), reversed(function.__defaults__ or ())))
    try:
        found = [p for p in _parameters(tool) if p.kind is p.POSITIONAL_ONLY]
    except Exception:
        return (), {}
    return tuple(p.name for p in found), {p.name: p.default for p in found if p.default is not p.empty}


def _split_arguments(tool, arguments):
    """JSON names every argument: those that Python takes by position only, and the rest."""
    names, defaults = _positional_names(tool)
    given = max([n for n, name in enumerate(names, 1) if name in arguments], default=0)
    positional, rest = [], dict(arguments)
    for name in names[:given]:
        if name not in rest and name not in defaults:
            # Python says which one is missing, when it gets none of those that follow.
            for later in names:
                rest.pop(later, None)
            break
        positional.append(rest.pop(name) if name in rest else defaults[name])
    return positional, rest


async def _held(awaitable, outcome):
    """Awaits in a frame of ours, so that no event loop's stand in a traceback, and an exit does not stop the loop."""
    try:
        outcome.append(await awaitable)
    except BaseException as e:
        outcome.append(None)
        outcome.append(e)


def _run_async(awaitable):
    import asyncio

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    outcome = []
    loop.run_until_complete(_held(awaitable, outcome))
    try:
        left = asyncio.all_tasks(loop)
        if left:
            loop.set_exception_handler(lambda *_: None)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_SECONDS))
        loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), CANCEL_SECONDS))
    except BaseException:
        pass  # what is left is killed
    if len(outcome) > 1:
        raise outcome[1]
    return outcome[0]


def _is_awaitable(value):
    kind = type(value)
    if _has(kind, "__await__"):
        return True
    return _full_name_of(kind) == "generator" and value.gi_code.co_flags & CAN_BE_AWAITED


_HOOKS = ((setprofile, None), (settrace, None), (setrecursionlimit, 1000))


def _call(tool, arguments):
    if _generates(tool):
        raise _Failed("ToolResultError", "the tool is a generator function: a tool returns its values, for instance as a list")
    positional, named = _split_arguments(tool, arguments)
    value = tool(*positional, **named)
    for function, argument in _HOOKS:  # here: the next call of a function would meet them
        try:
            function(argument)
        except BaseException:
            pass
    return _run_async(value) if _is_awaitable(value) else value


# ---- weir:describe ----


def _signature_of(tool):
    """Names, kinds, and which have a default: what a caller has to know. None of a builtin that does not say."""
    try:
        parameters = _parameters(tool)
    except (TypeError, ValueError):
        return None
    parts, kinds = [], [p.kind for p in parameters]
    for n, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and p.VAR_POSITIONAL not in kinds and "*" not in parts:
            parts.append("*")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(star + p.name + ("" if p.default is p.empty else "="))
        if p.kind is p.POSITIONAL_ONLY and kinds[n + 1 : n + 2] != [p.POSITIONAL_ONLY]:
            parts.append("/")
    return "(%s)" % ", ".join(parts)


def _describe_one(tools, name, wanted):
    """(reason that it can't be called or None, its signature or None)."""
    try:
        tool = tools.callable(name)
        signature = _signature_of(tool)
    except _Unknown as e:
        return e.args[0], None
    except _Failed as e:
        return e.message, None
    except BaseException as e:
        return _one_line(e), None
    if _generates(tool):
        return "it is a generator function: a tool returns its values, for instance as a list", signature
    if wanted and signature and wanted != signature:
        text = "its parameters are %s in the image, and %s here: is the image made of this source?"
        return text % (signature, wanted), signature
    return None, signature


def _describe(tools, arguments):
    described = []
    for row in arguments.get("tools", ()):
        reason, signature = _describe_one(tools, str(row["name"]), row.get("signature"))
        described.append({"name": row["name"], "ok": reason is None, "reason": reason, "signature": signature})
    return {"tools": described, "python": "%d.%d.%d" % sys.version_info[:3], "modules": list(tools.names)}


# ---- the life of this process ----


def _report(gate, word, value=0):
    """struct gate_report."""
    write(gate, word + b"\0\0\0" + value.to_bytes(4, "little") + b"\0\0\0\0")


def _read_exactly(fd, count):
    parts = []
    while count:
        part = read(fd, min(count, 1 << 20))
        if not part:
            _exit(LOST)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _read_request(fd):
    """(name, text of the arguments). struct request_header, with REQUEST_CALL."""
    header = _read_exactly(fd, 64)
    if header[:4] != b"WEIR" or header[4:8] != b"\4\0\0\0" or header[16:32] != bytes(16):
        _exit(LOST)
    name = _read_exactly(fd, int.from_bytes(header[8:12], "little"))
    return name.decode(), _read_exactly(fd, int.from_bytes(header[12:16], "little")).decode()


def _write_frame(fd, kind, data):
    """struct result_header and what follows it. A handler of a signal of the tool's may raise in between."""
    view = memoryview(b"WRES" + kind.to_bytes(4, "little") + len(data).to_bytes(8, "little") + data)
    tries = 0
    while view and tries < 100:
        try:
            view = view[write(fd, view) :]
        except BaseException:
            tries += 1


def _move(fd):
    """To a number that nobody counts up to, closed in programs that are started."""
    most = posix.sysconf("SC_OPEN_MAX")  # as low as a policy may say; -1: no limit
    most = min(most, 4096) if most > 0 else 4096
    for _ in range(20):
        to = most // 2 + int.from_bytes(urandom(4), "little") % (most - most // 2)
        try:
            posix.fstat(to)
        except OSError:
            dup2(fd, to, False)
            close(fd)
            return to
    return fd


def _is_directory(path):
    try:
        return stat(path).st_mode & 0o170000 == 0o040000
    except OSError:
        return False


def _add_user_sites():
    """Packages that an image's author has installed with --user. HOME is another here, so site.py has not found them."""
    import site

    try:
        homes = ["/root"] + ["/home/" + name for name in sorted(posix.listdir("/home"))[:8]]
    except OSError:
        homes = ["/root"]
    for home in homes:
        folder = "%s/.local/lib/python%d.%d/site-packages" % (home, sys.version_info[0], sys.version_info[1])
        if folder in sys.path or not _is_directory(folder):
            continue
        before = len(sys.path)
        site.addsitedir(folder)
        added = sys.path[before:]
        # They come before those of the interpreter, as in the container.
        first = [n for n, p in enumerate(sys.path[:before]) if p.endswith(("/site-packages", "/dist-packages"))]
        if first:
            del sys.path[before:]
            sys.path[first[0] : first[0]] = added


def _prepare_interpreter(workdir):
    """What an agent's modules find: themselves by their names, and a main module that is nobody's."""
    sys._xoptions["weir"] = "call"
    sys.argv[:] = ["weir-tool"]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [sys.executable, "weir-tool"]
    main = Module("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    # "/" is where a container starts that names no directory.
    first = workdir if workdir and _is_directory(workdir) else "/"
    if getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, first)
    else:
        sys.path[:1] = [first]
    _add_user_sites()


def _flush(streams):
    for stream in streams:
        try:
            stream.flush()
        except BaseException:
            pass


def _load(tools, own):
    """Imports the modules. Nobody reads what they print: it is no call's."""
    null, out, err = open("/dev/null", posix.O_WRONLY), _move(posix.dup(1)), _move(posix.dup(2))
    dup2(null, 1)
    dup2(null, 2)
    close(null)
    for name in tools.names:
        tools.load(name)
    if getpid() != own:
        _exit(0)  # a child that a module has made, and that fell off its end
    _flush((sys.stdout, sys.stderr))
    for kept, to in ((out, 1), (err, 2)):
        dup2(kept, to)
        close(kept)


def _run_tool(tools, name, text):
    digits = get_digits() if get_digits else 0
    if set_digits:
        set_digits(0)
    arguments = _decode(text)
    if set_digits:
        set_digits(digits)
    if type(arguments) is not dict:
        raise TypeError("the arguments are no JSON object")
    return _describe(tools, arguments) if name == "weir:describe" else _call(tools.callable(name), arguments)


def _outcome(tools, name, text):
    """(kind of frame, its content, exit status)."""
    value = error = None
    ended = False
    for _ in range(100):  # a handler of the tool's may raise until it is settled
        try:
            if not ended:
                value = _run_tool(tools, name, text)
            ended = True
            _settle()
            break
        except BaseException as e:
            error, ended = error if ended else e, True
    try:
        return _outcome_of(error) if error is not None else (VALUE, _value_text(value), 0)
    except BaseException as e:
        return _outcome_of(e)


def _outcome_of(error):
    kind = type(error)
    if kind is _Unknown:
        return UNKNOWN, b"", 1
    if kind is _Failed:
        return ERROR, _error_text(error.kind, error.message, error.behind), 1
    message, _ = _message_of(error)
    if issubclass(kind, SystemExit):
        status = _exit_status(error)
        return ERROR, _error_text("SystemExit", "tool ended without returning a value (sys.exit(%s))" % message, error), status
    return ERROR, _error_text(_name_of(kind), message, error), 1


_SETTLED = ((_signal.pthread_sigmask, _signal.SIG_BLOCK, signals), *_HOOKS, *(((set_digits, 0),) if set_digits else ()))


def _settle():
    """The tool has returned. What it has set up in its thread ends here: hooks, handlers, narrow limits."""
    for function, *arguments in _SETTLED:
        try:
            function(*arguments)
        except BaseException:
            pass
    for number in signals:
        try:
            if type(get_handler(number)) is not int:
                set_handler(number, _signal.SIG_IGN)
        except BaseException:
            pass


def _main(ours):
    own, streams = getpid(), (sys.stdout, sys.stderr)
    word, names, workdir = sys._xoptions.get("weir", "").split(":", 2)
    if word != "call":
        _exit(LOST)
    _report(ours["gate"], b"R")
    if read(ours["gate"], 1) != b"L":
        _exit(LOST)
    ours["gate"] = gate = _move(GATE)
    request, result = _move(REQUEST), _move(RESULT)
    _prepare_interpreter(workdir)
    tools = _Tools([n for n in names.split(",") if n])
    _load(tools, own)
    _report(gate, b"L", 1 if tools.failed else 0)
    name, text = _read_request(request)
    close(request)
    if read(gate, 1) != b"G":
        _exit(LOST)
    close(gate)
    kind, data, status = _outcome(tools, name, text)
    if getpid() == own:
        _write_frame(result, kind, data)
    elif kind == ERROR:
        write(2, data + b"\n")  # a child that fell off the tool's end: it has no result to tell
    _flush((sys.stdout, sys.stderr) + streams)
    _exit(status)


def _run():
    ours = {"gate": GATE}
    try:
        _main(ours)
    except BaseException as e:
        # Nothing that was asked for has run, or its frame is there already.
        try:
            write(ours["gate"], b"X\0\0\0" + (getattr(e, "errno", None) or 0).to_bytes(4, "little") + bytes(4))
        finally:
            _exit(LOST)


_run()
