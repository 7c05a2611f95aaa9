# SPDX-License-Identifier: Apache-2.0
"""What a warm interpreter does while it waits.

The interpreter is started as `python /box/main.py` and imports this module from a .pth file while it starts: so when the
gate opens, CPython itself goes on to run the file, and a snippet sees what every script sees. No frame, module or
descriptor of this file is left by then.

What comes in is struct request_header and what follows it (userspace/ipc/ipc.h), what goes out struct gate_report
(runner/plan.h). Every sandbox compiles this file, so there is little in it: files, standard input and variables are
place.py's, and a session's first request makes session.py the file that is run.
"""


def _wait_at_the_gate():
    from posix import O_CREAT, O_EXCL, O_WRONLY, _exit, close, open, read, write

    request, gate = 3, 4

    def read_exactly(count):
        parts = []
        while count:
            part = read(request, min(count, 1 << 20))
            if not part:
                _exit(124)  # the client went away before it had handed everything over
            parts.append(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    write(gate, b"R" + bytes(11))
    header = read_exactly(64)
    if header[:4] != b"WEIR":
        _exit(124)
    if header[4] & 1:
        import _weir_session

        code = _weir_session.prepare(header, request, gate)
    elif header[4] or header[12:32] != bytes(20):
        import _weir_place

        code = _weir_place.single(header, request, gate)
    else:
        code = read_exactly(int.from_bytes(header[8:12], "little"))
        close(request)
    # Nobody was here before: there are no links, and no file of that name.
    script = open("/box/main.py", O_WRONLY | O_CREAT | O_EXCL, 0o644)
    view = memoryview(code)
    while view:
        view = view[write(script, view) :]
    close(script)
    if header[4] & 1:
        return
    if read(gate, 1) != b"G":
        _exit(124)
    close(gate)


def _main():
    import sys

    # The snippet's own children import this too: only the interpreter that init started carries the mark. One that makes a
    # tool call (toolcall.py) carries another.
    if sys._xoptions.get("weir") is True:
        del sys._xoptions["weir"]
        try:
            _wait_at_the_gate()
        except BaseException as e:
            import posix

            # site.py would print this and go on to the script: without a gate that opened, nothing may run.
            try:
                posix.write(4, b"X\0\0\0" + (getattr(e, "errno", None) or 0).to_bytes(4, "little") + bytes(4))
            finally:
                posix._exit(124)


_main()
