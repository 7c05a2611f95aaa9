# SPDX-License-Identifier: Apache-2.0
"""Puts what a request brings beside its code into place: files, standard input, variables.

Functions of the system are bound here, before there is a snippet: a session keeps using them, whatever its cells put into
`os`.
"""
import os
import sys
from errno import EEXIST, ELOOP
from posix import O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR, O_TMPFILE, O_WRONLY
from posix import _exit, close, dup2, fchmod, fstat, lseek, mkdir, open, read, rename, stat, umask, unlink, urandom, write
from time import tzset

_WORK, _DIRECTORY = "/box", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
_NEW = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
_OLD = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
_KIND, _REGULAR, _LINK = 0o170000, 0o100000, 0o120000
_environment = os.environb


def number(data, at, size=4):
    return int.from_bytes(data[at : at + size], "little")


def read_exactly(fd, count):
    """Raises EOFError when the client goes away in between."""
    parts = []
    while count:
        part = read(fd, min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_rest(fd, header):
    """The request behind a header: code, standard input (None: not given), variables, files."""
    sizes = [number(header, at) for at in (8, 12, 16)]
    body = memoryview(read_exactly(fd, sum(sizes) + number(header, 24, 8)))
    at, parts, files = 0, [], []
    for size in sizes:
        parts.append(bytes(body[at : at + size]))
        at += size
    for _ in range(number(header, 20)):
        path_len, size = number(body, at), number(body, at + 4)
        at += 8 + path_len
        files.append((bytes(body[at - path_len : at]), body[at : at + size]))
        at += size
    code, stdin, variables = parts
    return code, stdin if header[4] & 2 else None, variables.split(b"\0")[:-1], files


def report(gate, word, value=0, index=0):
    """struct gate_report."""
    write(gate, b"".join(n.to_bytes(4, "little") for n in (ord(word), value, index)))


def _write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[write(fd, view) :]


def _open_below(at, name):
    try:
        return open(name, _DIRECTORY, dir_fd=at)
    except NotADirectoryError as e:
        # A link is told from a file that is in the way: the one would lead out.
        if stat(name, dir_fd=at, follow_symlinks=False).st_mode & _KIND == _LINK:
            e.errno = ELOOP
        raise


def _create(at, name, content, mode=0o644, to=None):
    """A new file, under its last name (`to`) only when it is whole; what could not be finished is taken away again."""
    file = open(name, _NEW, 0o644, dir_fd=at)
    try:
        if mode != 0o644:
            fchmod(file, mode)
        _write_all(file, content)
        if to is not None:
            rename(name, to, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        try:
            unlink(name, dir_fd=at)
        except OSError:
            pass  # a thread of an earlier cell was faster; the first error is the one to tell
        raise
    finally:
        close(file)


def _mode_of_old(at, name):
    """Raises when something is there that is not to be written to: a link, a directory, a FIFO, a file without permission."""
    file = open(name, _OLD, dir_fd=at)
    try:
        mode = fstat(file).st_mode
    finally:
        close(file)
    if mode & _KIND != _REGULAR:
        raise OSError(EEXIST, "not a file")
    return mode & 0o777


def _place(path, content):
    """Writes a file below the working directory; no link is followed, and nothing but a file is replaced."""
    at = open(_WORK, _DIRECTORY)
    try:
        *parents, name = path.split(b"/")
        for parent in parents:
            try:
                mkdir(parent, 0o755, dir_fd=at)
            except FileExistsError:
                pass
            below = _open_below(at, parent)
            close(at)
            at = below
        try:
            _create(at, name, content)
        except FileExistsError:
            _create(at, b".weir-" + urandom(16).hex().encode(), content, _mode_of_old(at, name), name)
    finally:
        close(at)


def place_all(files):
    """None, or (errno, index) of the first that could not be placed."""
    mask = umask(0o022)
    try:
        for index, (path, content) in enumerate(files):
            try:
                _place(path, content)
            except OSError as e:
                return e.errno, index
    finally:
        umask(mask)


def set_stdin(data):
    try:
        from posix import MFD_CLOEXEC, memfd_create

        file = memfd_create("stdin", MFD_CLOEXEC)
    except (ImportError, OSError):  # a policy may refuse the call
        file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0o600)
    _write_all(file, data)
    lseek(file, 0, 0)
    dup2(file, 0)
    close(file)


def set_variables(variables):
    for variable in variables:
        name, _, value = variable.partition(b"=")
        _environment[name] = value
        if name == b"TZ":
            tzset()


def single(header, request, gate):
    """All of a request that is no session's; its code."""
    sys.modules.pop(__name__)
    code, stdin, variables, files = read_rest(request, header)
    close(request)
    refused = place_all(files)
    if refused:
        report(gate, "E", *refused)
        _exit(124)
    if stdin is not None:
        set_stdin(stdin)
    set_variables(variables)
    return code
