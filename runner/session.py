# SPDX-License-Identifier: Apache-2.0
"""The main script of a session: runs one cell after the other, in one `__main__`.

CPython runs it like any script, by way of a file of one line that is gone when the first cell begins; cells find their own
names in `__main__` and nothing of ours. The interpreter belongs to the cells: whatever they do to it, or to the two descriptors
that are read and written here, can only cost their own session its life.

For each cell: the request is read, its files are placed, and when the supervisor asks, PLACED is reported; the gate opens, the
cell runs, DONE is reported with its exit code. Then the supervisor freezes everything while the files are read. What can go
wrong is done before PLACED: then no code has run, and the session is gone.
"""
import _io
import _signal
import linecache
import posix
import sys
import tokenize
import traceback
from fcntl import F_DUPFD_CLOEXEC, fcntl

from _weir_place import place_all, read_exactly, read_rest, report, set_stdin, set_variables

SCRIPT = "/box/main.py"
SIGINT = _signal.SIGINT

# As they are before any cell: one that replaces a function of `os` or `sys` does not replace it here.
_exit, _getpid, _read, _unlink = posix._exit, posix.getpid, posix.read, posix.unlink
_open, _dup2, _close = posix.open, posix.dup2, posix.close
_set_handler, _handler, _raise = _signal.signal, _signal.getsignal, _signal.raise_signal
_exec, _compile = exec, compile
_print_exception, _default_hook = traceback.print_exception, sys.__excepthook__
_settrace, _gettrace, _setprofile, _getprofile = sys.settrace, sys.gettrace, sys.setprofile, sys.getprofile

_prepared, _absent = [], object()
SOURCES = 16 << 20  # bytes, about, of cells whose lines are kept for tracebacks


def prepare(header, request, gate):
    """The script that CPython is to run. `header` is that of the first cell."""
    _prepared.append((header, _move(request, 0), _move(gate, 1), _Reserve(_move(_open("/dev/null", posix.O_RDONLY), 2))))
    sys.modules.pop("_weir_place")
    return b"raise SystemExit(__import__('_weir_session').run())\n"


def _move(fd, nth):
    """Out of the way of cells that count on low numbers, or close every one that they can think of."""
    moved = _above(fd, nth)
    _close(fd)
    return moved


def _above(fd, nth):
    for base in (1000, 200, 32):
        try:
            return fcntl(fd, F_DUPFD_CLOEXEC, base + nth)
        except OSError:
            pass  # above the limit of open files
    raise OSError


class _Reserve:
    """Two descriptors for us, when a cell has left none; and /dev/null."""

    def __init__(self, null):
        self.null, self.spare = null, []
        self.fill()

    def fill(self):
        try:
            while len(self.spare) < 2:
                self.spare.append(_above(self.null, 3))
        except OSError:
            pass

    def use(self):
        while self.spare:
            _close(self.spare.pop())


# ---- SIGINT: the cells' own handler while one runs, nothing in between ----


_missed = []


def _ignore(*_):
    """No SIG_IGN: that would be handed down to the programs that are started between two cells."""
    _missed.append(True)


def _take_handler_away(before):
    """The handler to give back to the next cell."""
    while True:
        try:
            now = _handler(SIGINT)
            if now is not None and now is not _ignore:
                before = now
            _set_handler(SIGINT, _ignore)
            return before
        except BaseException:
            pass  # out of a handler of the cell's, for a signal that came late


# ---- how a cell ended: what CPython says and does at the end of a script ----


def _say(text):
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
        else:
            posix.write(2, text.encode("utf-8", "backslashreplace"))
    except Exception:
        pass


def _without_our_frames(error):
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename == run.__code__.co_filename:
        tb = tb.tb_next
    error.__traceback__ = tb
    return tb


def _print(error):
    """The hook in C looks for source lines in files only, before 3.13; a cell is none."""
    tb = _without_our_frames(error)
    try:
        if sys.stderr is not None:
            _print_exception(type(error), error, tb)
    except Exception:
        pass


def _show(error):
    """Exit code of what nobody caught."""
    tb = _without_our_frames(error)
    sys.last_exc = sys.last_value = error
    sys.last_type, sys.last_traceback = type(error), tb
    hook = getattr(sys, "excepthook", _absent)
    if hook is _absent:
        _say("sys.excepthook is missing\n")
    if hook is _absent or hook is _default_hook:
        _print(error)
    else:
        try:
            hook(type(error), error, tb)
        except SystemExit as e:
            return _exit_code_of(e)
        except BaseException as e:
            _say("Error in sys.excepthook:\n")
            _print(e)
            _say("\nOriginal exception was:\n")
            _print(error)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _exit_code_of(error):
    if not isinstance(error, SystemExit):
        return _show(error)
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        if -(1 << 63) <= code < 1 << 63:
            return code & 0xFF
        _say("OverflowError: Python int too large to convert to C long\n")
        return 0xFF
    try:
        _say(str(code) + "\n")
    except Exception as e:
        _say("\n")
        _print(e)
    return 1


def _flushed():
    """Whether nothing that was printed is lost."""
    fine = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception as e:
            fine = False
            if name == "stdout":
                _say("Exception ignored in: %r\n" % (stream,))
                _print(e.with_traceback(None))
    return fine


# ---- a cell ----


class _Sources:
    """Lines of cells, where tracebacks and inspect look for them. The oldest go when they become too many."""

    def __init__(self):
        self.kept, self.total = [], 0

    def add(self, name, source):
        try:
            text = source.decode(tokenize.detect_encoding(_io.BytesIO(source).readline)[0])
        except (SyntaxError, UnicodeDecodeError, LookupError):
            return  # then it does not compile either
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        linecache.cache[name] = len(source), None, [line + "\n" for line in lines], name
        self.kept.append((name, len(source) + 64 * len(lines)))
        self.total += self.kept[-1][1]
        while self.total > SOURCES and len(self.kept) > 1:
            old, size = self.kept.pop(0)
            self.total -= size
            linecache.cache.pop(old, None)


def _renew_stdin(data, null):
    if data is None:
        _dup2(null, 0)
    else:
        set_stdin(data)
    stdin = _io.open(0, encoding="utf-8", errors="strict", closefd=False)
    stdin.buffer.raw.name = "<stdin>"
    sys.stdin = sys.__stdin__ = stdin


def _run(source, name, names, handler, hooks):
    """What it did not catch, or None. `hooks`: the tracing that an earlier cell has switched on; none of it sees us."""
    error = None
    try:
        _set_handler(SIGINT, handler)
        if _missed:  # it came when the gate was open and the handler still ours
            _raise(SIGINT)
        code = _compile(source, name, "exec", 0, True)
        if hooks[1]:
            _setprofile(hooks[1])
        if hooks[0]:
            _settrace(hooks[0])
        _exec(code, names)
    except BaseException as e:
        error = e
        if isinstance(e, SyntaxError) and e.filename == name and e.text is None and e.lineno:
            # Of errors that it finds late, the compiler looks the line up in the file.
            e.text = linecache.getline(name, e.lineno) or None
    hooks[:] = _gettrace(), _getprofile()
    if hooks[1]:
        _setprofile(None)
    if hooks[0]:
        _settrace(None)
    return error


def _next_header(request):
    while True:
        try:
            return read_exactly(request, 64)
        except EOFError:
            _exit(0)
        except BaseException as error:  # out of a cell's signal handler
            _exit_code_of(error)


def _word(gate):
    word = _read(gate, 1)
    if not word:
        _exit(0)
    return word


def _serve(header, request, gate, reserve):
    names = sys.modules["__main__"].__dict__
    names["__loader__"] = sys.modules["_frozen_importlib"].BuiltinImporter  # as without a file
    for name in ("__file__", "__cached__"):
        names.pop(name, None)
    own_pid, number, hooks, sources = _getpid(), 0, [None, None], _Sources()
    handler = _take_handler_away(_signal.default_int_handler)
    while True:
        header = header or _next_header(request)
        if header[:4] != b"WEIR" or not header[4] & 1:
            _exit(124)
        source, stdin, variables, files = read_rest(request, header)
        header, number = None, number + 1
        name = "<cell %d>" % number
        reserve.use()
        refused = place_all(files)
        if not refused:
            _renew_stdin(stdin, reserve.null)
            set_variables(variables)
            sources.add(name, source)
            names.pop("__warningregistry__", None)  # else a warning of line 1 is shown for the first of all lines 1
        reserve.fill()
        if _word(gate) != b"A":
            _exit(124)
        if refused:
            report(gate, "E", *refused)
            continue
        _missed.clear()
        report(gate, "P")
        word = _word(gate)
        if word == b"X":  # withdrawn
            report(gate, "D")
            continue
        if word != b"G":
            _exit(124)
        status = 130
        try:
            error = _run(source, name, names, handler, hooks)
            status = 0 if error is None else _exit_code_of(error)
            if not _flushed():
                status = 120
        except BaseException:
            pass  # interrupted at the very last moment
        error = source = stdin = files = None
        if _getpid() != own_pid:
            return status  # a child that fell off the end of its cell: it ends here, as in a script
        handler = _take_handler_away(handler)
        try:
            report(gate, "D", status)
        except OSError:
            _exit(status)  # the cell has closed the gate: there is no other after it


def run():
    """Returns in a process that a cell has forked, and then what that process is to exit with."""
    try:
        sys.modules.pop("_weir_session", None)
        _unlink(SCRIPT)
        sys.argv = [""]
        return _serve(*_prepared.pop())
    except BaseException:
        _exit(124)
