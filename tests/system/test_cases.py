# SPDX-License-Identifier: Apache-2.0
"""What untrusted code and clients do: every numbered case of the catalogue of failures of services like this one.

A case is either a row here, a snippet posted to the real service with what must come back, or it is covered by tests elsewhere,
which COVERED names; a name that does not exist fails, and so does a number that stands in neither place. The comment at each row
says in a few words what the case is.
"""
import concurrent.futures
import importlib
import json
import os
import re
import subprocess
import sys
import time
import unittest

from lib import SLOW, TOP, Service

sys.path.append(os.path.join(TOP, "tests", "crash"))

# Numbers of the catalogue: escape, network, resources, output, life cycle, files, ordinary Python, tool calls, input.
NUMBERS = {
    1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38,
    40, 41, 43, 44, 46, 47, 49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65, 67, 68,
    70, 71, 73, 74, 76, 77, 79, 80, 82, 83, 85, 86, 88, 89, 91, 92,
    94, 95, 97, 98, 100, 101, 103, 104, 106, 107, 109, 110,
    112, 113, 115, 116, 118, 119, 121, 122, 124, 125, 127, 128, 130, 131,
    133, 134, 136, 137, 139, 140, 142, 143, 145, 146, 148, 149, 151, 152, 154, 155,
    157, 158, 160, 161, 163, 164, 166, 167, 169, 170, 172, 173, 175, 176, 178, 179,
    181, 182, 184, 185, 187, 188, 190, 191, 193, 194, 196, 197, 199, 200, 202, 203, 205, 206, 208, 209,
    211, 212, 214, 215, 217, 218, 220, 221, 223, 224,
}  # fmt: skip

# Tests of this directory as "module.Class.test"; C test programs and other files as their path, then the function.
COVERED = {
    1: ["test_inside.Identity.test_descriptors", "test_inside.Identity.test_no_way_back_through_a_descriptor"],
    2: ["test_faults.Faults.test_the_answer_names_the_layer", "test_faults.Faults.test_no_user_code_ran"],
    4: ["test_sessions.Sessions.test_a_file_through_a_link", "test_files.Concurrent.test_everybody_is_dead_before_a_file_is_read"],
    5: ["test_inside.FileSystem.test_kernel_knobs_are_out_of_reach", "test_inside.FileSystem.test_mounts_are_these"],
    7: ["test_inside.SystemCalls.test_named_refusals", "test_inside.FileSystem.test_mounts_are_these"],
    8: ["test_inside.SystemCalls.test_namespaces_through_clone", "test_inside.SystemCalls.test_named_refusals"],
    10: ["test_inside.SystemCalls.test_named_refusals"],
    11: ["test_inside.SystemCalls.test_named_refusals", "test_inside.OrdinaryPython.test_works"],
    13: ["test_inside.SystemCalls.test_high_half_of_an_int"],
    14: ["test_inside.Identity.test_no_terminal", "test_inside.SystemCalls.test_terminal_requests"],
    16: ["test_inside.SystemCalls.test_sockets"],
    17: ["test_inside.SystemCalls.test_sockets", "test_network.Sockets.test_refused"],
    19: ["test_inside.SystemCalls.test_named_refusals", "test_inside.Apart.test_two_sandboxes_do_not_meet"],
    20: ["test_inside.SystemCalls.test_named_refusals", "test_inside.SystemCalls.test_unknown_numbers"],
    22: ["test_inside.Identity.test_pid_one", "test_inside.FileSystem.test_no_file_names_the_host"],
    23: ["test_inside.FileSystem.test_environment", "test_inside.FileSystem.test_no_file_names_the_host"],
    25: ["test_inside.Identity.test_capabilities_no_new_privs_seccomp", "test_inside.Identity.test_every_kind_was_seen"],
    26: ["test_inside.FileSystem.test_setuid_is_worth_nothing"],
    31: ["test_inside.FileSystem.test_kernel_knobs_are_out_of_reach"],
    32: ["test_inside.SystemCalls.test_core_limit_stays", "test_inside.SystemCalls.test_no_core_is_written"],
    34: ["test_inside.FileSystem.test_etc_and_proc_name_no_path_of_the_host", "test_inside.FileSystem.test_kernel_knobs_are_out_of_reach"],
    35: ["test_inside.Apart.test_two_sandboxes_do_not_meet", "test_inside.Apart.test_a_held_lock_does_not_delay_a_start"],
    37: ["test_lifecycle.Deadline.test_nothing_outlives_the_deadline", "test_inside.SystemCalls.test_what_it_may_do_to_itself"],
    38: ["test_inside.FileSystem.test_nothing_else_can_be_written", "test_soak.Soak.test_each_found_a_pristine_place"],
    40: ["test_network.Denied.test_destinations", "test_network.Denied.test_ways_to_send"],
    41: ["test_network.Denied.test_names", "test_network.Denied.test_names_of_the_library"],
    43: ["test_network.Sockets.test_unix_sockets_among_its_own", "test_inside.Apart.test_two_sandboxes_do_not_meet"],
    44: ["test_network.Sockets.test_own_server_on_loopback"],
    46: ["test_toolcall.ToolCall.test_every_address", "tests/agents/test_way_out.py test_nowhere_else", "tests/agents/test_way_out.py test_datagrams_to_where_none_may_go"],
    47: ["test_toolcall.ToolCall.test_every_address", "test_vectors.Vectors.test_2_whole_policy"],
    49: ["test_toolcall.ToolCall.test_every_address", "test_policy_oracle.Boundaries.test_each_set_alone", "tests/agents/test_way_out.py test_nowhere_else"],
    50: ["test_toolcall.ToolCall.test_every_address", "tests/agents/test_way_out.py test_nowhere_else", "tests/agents/test_way_out.py test_a_host_without_ipv6"],
    52: ["test_toolcall.ToolCall.test_other_spellings"],
    53: ["test_toolcall.ToolCall.test_after_rebinding", "tests/agents/test_way_out.py test_by_a_name_a_redirect_and_a_name_that_turns"],
    55: ["test_toolcall.ToolCall.test_resolver_on_loopback", "test_toolcall.ToolCall.test_resolver_is_the_metadata_address", "tests/agents/test_way_out.py test_a_name_server_on_the_host_itself", "tests/agents/test_way_out.py test_a_private_name_server"],
    56: ["test_toolcall.ToolCall.test_an_address_the_host_gets", "tests/agents/test_way_out.py test_nowhere_else"],
    58: ["test_inside.Apart.test_two_sandboxes_do_not_meet", "tests/agents/test_way_out.py test_nowhere_else"],
    59: ["test_contract.Contract.test_body_not_as_described_names_the_field", "tests/agents/test_call_api.py test_no_field_opens_the_network"],
    61: ["test_inside.Identity.test_descriptors", "test_inside.Identity.test_no_way_back_through_a_descriptor"],
    62: ["test_network.Sockets.test_refused", "test_inside.SystemCalls.test_sockets"],
    64: ["test_vectors.Vectors.test_2_whole_policy", "test_vectors.Apart.test_27_no_address_means_the_one_the_socket_has"],
    65: ["test_vectors.Vectors.test_2_whole_policy"],
    67: ["test_toolcall.ToolCall.test_every_address", "tests/agents/test_way_out.py test_nowhere_else"],
    68: ["test_toolcall.ToolCall.test_public_http_and_https_by_name", "tests/agents/test_call_api.py test_environment_is_empty_of_the_platform", "tests/agents/test_way_out.py test_a_page_by_name"],
    70: ["test_lifecycle.Deadline.test_nothing_outlives_the_deadline"],
    71: ["test_lifecycle.Deadline.test_nothing_outlives_the_deadline"],
    73: ["test_lifecycle.Limits.test_memory_over_the_limit_ends_the_run"],
    74: ["test_lifecycle.Limits.test_memory_over_the_limit_ends_the_run"],
    77: ["test_lifecycle.Limits.test_disks_are_sized", "test_lifecycle.Limits.test_memory_over_the_limit_ends_the_run"],
    79: ["test_soak.Soak.test_kernel_objects_are_freed", "test_soak.Soak.test_nothing_is_left"],
    82: ["test_lifecycle.Limits.test_one_cpu"],
    83: ["test_lifecycle.Deadline.test_nothing_outlives_the_deadline"],
    85: ["test_lifecycle.Deadline.test_nothing_outlives_the_deadline"],
    86: ["tests/unit/test_filter.c sync is not done", "test_inside.OrdinaryPython.test_works"],
    88: ["test_lifecycle.Limits.test_one_bomb_does_not_starve_another_run"],
    89: ["test_lifecycle.MainExit.test_zombies_count_and_change_nothing", "test_lifecycle.MainExit.test_orphans_are_reaped"],
    91: ["test_execute.Execute.test_usage_is_the_runs_own"],
    94: ["test_execute.Execute.test_output_over_the_cap_ends_the_run"],
    97: ["test_execute.Execute.test_invalid_utf8_is_replaced"],
    109: ["test_files.Content.test_bytes_are_exact"],
    110: ["test_execute.Execute.test_traceback_is_the_users"],
    113: ["test_execute.Execute.test_exit_codes"],
    115: ["test_execute.Execute.test_signals_by_name"],
    121: ["test_lifecycle.MainExit.test_answer_comes_at_once_with_mains_code"],
    122: ["test_files.Concurrent.test_everybody_is_dead_before_a_file_is_read", "test_sessions.Sessions.test_nothing_moves_while_files_are_read"],
    124: ["test_lifecycle.MainExit.test_main_that_became_something_else"],
    125: ["test_lifecycle.HangUp.test_run_is_cancelled"],
    127: ["test_soak.Soak.test_nothing_is_left", "test_soak.Soak.test_kernel_objects_are_freed"],
    128: ["test_lifecycle.Deadline.test_exit_near_the_deadline_has_one_outcome"],
    131: ["test_crash.Stop.test_sigterm_drains_within_bounds", "test_crash.Stop.test_second_sigterm_does_not_wait"],
    133: ["test_files.Kinds.test_links_are_never_followed"],
    134: ["test_files.Concurrent.test_everybody_is_dead_before_a_file_is_read", "test_files.Sessions.test_nothing_changes_while_it_is_read"],
    136: ["test_files.Kinds.test_pipes_and_sockets_block_nobody"],
    137: ["test_files.Kinds.test_pipes_and_sockets_block_nobody"],
    139: ["test_files.Kinds.test_holes_are_not_read"],
    140: ["test_files.Many.test_a_hundred_thousand_files", "test_files.Many.test_twenty_thousand_directories"],
    142: ["test_files.Content.test_bytes_are_exact"],
    143: ["test_files.Names.test_what_is_no_text_is_escaped_and_loses_nothing"],
    145: ["test_files.Many.test_deeper_than_any_path"],
    146: ["test_files.Kinds.test_permissions_taken_away"],
    148: ["test_files.Content.test_untouched_inputs_are_not_echoed"],
    149: ["test_files.Content.test_inputs_replaced_by_something_else"],
    151: ["test_files.Kinds.test_no_droppings_of_the_library"],
    152: ["test_files.Kinds.test_modes_and_attributes_stay_behind"],
    154: ["test_files.Content.test_an_archive_is_a_file"],
    155: ["test_files.Concurrent.test_everybody_is_dead_before_a_file_is_read", "test_sessions.Sessions.test_a_file_through_a_link"],
    157: ["tests/packages/test_packages.py matplotlib"],
    161: ["test_inside.OrdinaryPython.test_works"],
    163: ["test_execute.Execute.test_snippet_is_a_script", "test_inside.OrdinaryPython.test_works"],
    167: ["test_inside.OrdinaryPython.test_the_library_imports", "test_inside.SystemCalls.test_unknown_numbers"],
    169: ["test_inside.OrdinaryPython.test_works"],
    170: ["test_inside.OrdinaryPython.test_works"],
    172: ["test_inside.OrdinaryPython.test_works"],
    179: ["tests/packages/test_packages.py pandas"],
    181: ["tests/agents/test_call_api.py test_results_that_are_no_json", "tests/agents/test_toolcall.py test_refused"],
    182: ["tests/agents/test_call_api.py test_results_that_are_no_json", "tests/agents/test_toolcall.py test_refused", "tests/agents/test_toolcall.py test_values"],
    184: ["tests/agents/test_call_api.py test_results_that_are_no_json", "tests/agents/test_call_api.py test_forged_frames", "tests/unit/test_jcheck.c depth"],
    185: ["tests/agents/test_call_api.py test_values_are_apart_from_no_value", "tests/agents/test_toolcall.py test_values"],
    187: ["tests/agents/test_call_api.py test_size_of_a_result", "tests/agents/test_toolcall.py test_size", "tests/api/test_api_call.c the_largest_result"],
    188: ["tests/agents/test_call_api.py test_arguments", "tests/agents/test_toolcall.py test_calls"],
    190: ["tests/agents/test_call_api.py test_arguments", "tests/agents/test_toolcall.py test_what_is_left_running_is_not_waited_for"],
    191: ["tests/agents/test_call_api.py test_results_that_are_no_json", "tests/agents/test_toolcall.py test_not_callable"],
    193: ["tests/agents/test_call_api.py test_forged_frames", "tests/api/test_api_call.c hostile_frames", "tests/agents/test_toolcall.py test_honest_results"],
    194: ["tests/agents/test_call_api.py test_ends_without_a_value", "tests/api/test_api_call.c no_result"],
    196: ["tests/agents/test_call_api.py test_exceptions", "tests/agents/test_toolcall.py test_what_stops_programs"],
    197: ["tests/agents/test_call_api.py test_exceptions", "tests/agents/test_toolcall.py test_hostile"],
    199: ["tests/agents/test_call_api.py test_arguments", "tests/agents/test_toolcall.py test_wrong_arguments_have_pythons_own_words"],
    200: ["tests/agents/test_call_api.py test_arguments", "tests/agents/test_call_api.py test_limits_of_a_request", "tests/agents/test_toolcall.py test_arguments_stay_exact"],
    202: ["tests/agents/test_call_api.py test_unknown_tools", "tests/agents/test_call_api.py test_tools_that_do_not_load"],
    203: ["tests/agents/test_call_api.py test_tools_that_do_not_load", "tests/agents/test_toolcall.py test_failed_load"],
    205: ["tests/agents/test_call_api.py test_describing_is_done_inside", "tests/agents/test_toolcall.py test_describe"],
    206: ["tests/agents/test_call_api.py test_what_is_left_running_is_not_waited_for"],
    208: ["tests/agents/test_call_api.py test_arguments_are_in_no_log"],
    209: ["tests/agents/test_call_api.py test_values_are_apart_from_no_value"],
    212: ["test_execute.Execute.test_code_is_passed_byte_for_byte"],
    221: ["tests/api/test_api_http.c ambiguous_framing", "tests/api/test_api_http.c expectations", "tests/api/test_api_http.c chunks", "tests/api/test_api_http.c content_types"],
    224: ["tests/api/test_api_clients.c a_slow_reader_holds_up_nobody", "tests/api/test_api_http.c pipelined"],
}

ALL_BYTES = "import sys\nsys.stdout.buffer.write(bytes(range(256)))"
FFFD = b"\xff".decode("utf-8", "replace")

# number: [(what, request's fields, what must hold of the answer)]: a dict compares members of the answer; a callable is asked.
ROWS = {
    29: [(
        "rewrites a call's argument while the kernel judges it",
        {"code": (
            "import ctypes, threading, socket, struct, time\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "addr = ctypes.create_string_buffer(struct.pack('=HH4s8x', 2, socket.htons(443), socket.inet_aton('192.0.2.1')))\n"
            "stop = time.monotonic() + 0.4\n"
            "def flip():\n"
            "    while time.monotonic() < stop:\n"
            "        addr[4:8] = socket.inet_aton('127.0.0.1'); addr[4:8] = socket.inet_aton('192.0.2.1'); addr[0:2] = b'\\0\\0'; addr[0:2] = b'\\2\\0'\n"
            "threading.Thread(target=flip).start()\n"
            "seen = set()\n"
            "while time.monotonic() < stop:\n"
            "    for kind in (1, 2):\n"
            "        s = socket.socket(2, kind); s.setblocking(False)\n"
            "        r = libc.connect(s.fileno(), addr, 16) if kind == 1 else libc.sendto(s.fileno(), b'x', 1, 0, addr, 16)\n"
            "        seen.add('sent' if r >= 0 else ctypes.get_errno()); s.close()\n"
            "print(sorted(map(str, seen)))"
        )},
        # AF_UNSPEC is a connect() that undoes one, and EAFNOSUPPORT for a datagram: both send nothing. EINPROGRESS would be a packet.
        lambda a: "115" not in a["stdout"] and a["egress"]["allowed"] == 0 and a["egress"]["denied"] > 0 and a["exit_code"] == 0,
    )],
    80: [(
        "hides memory in pipes and sockets",
        {"code": (
            "import os, socket, fcntl\n"
            "kept = []\n"
            "try:\n"
            "    for i in range(200):\n"
            "        r, w = os.pipe(); os.set_blocking(w, False); kept.append((r, w))\n"
            "        try: fcntl.fcntl(w, 1031, 1 << 20)\n"
            "        except OSError: pass\n"
            "        try:\n"
            "            while True: os.write(w, b'x' * 65536)\n"
            "        except BlockingIOError: pass\n"
            "        a, b = socket.socketpair(); a.setblocking(False); kept.append((a, b))\n"
            "        try:\n"
            "            while True: a.send(b'x' * 65536)\n"
            "        except BlockingIOError: pass\n"
            "except OSError as e: print('refused', e.errno)\n"
            "print('full')"
        )},
        # Charged to the run: either all of it fits below the limit, and shows in its peak, or the run ends by memory.
        lambda a: a["termination"]["reason"] == "memory" or ("full" in a["stdout"] and a["usage"]["memory_peak_bytes"]["value"] > 16 << 20),
    ), (
        "asks for a million names that are not there",
        {"code": "import os\nfor i in range(300000):\n    try: os.stat('/tmp/%d' % i)\n    except OSError: pass\nprint('done')", "timeout_s": 30},
        lambda a: a["stdout"] == "done\n" or a["termination"]["reason"] == "memory",
    )],
    95: [
        ("one line of 100 MB", {"code": "import os\nos.write(1, b'x' * (100 << 20))"}, lambda a: a["termination"]["reason"] == "output" and a["truncated"] and len(a["stdout"]) == 4 << 20 and a["exit_code"] == 137 and a["termination"]["detail"] == "stdout limit of 4 MiB exceeded"),
        ("lines without end", {"code": "import sys\nwhile True: sys.stderr.write('\\n' * 65536)"}, lambda a: a["termination"]["reason"] == "output" and a["truncated"] and len(a["stderr"]) == 4 << 20),
    ],
    98: [
        ("an emoji across a read's end", {"code": "import os, time\nfor i in range(200):\n    b = '😀'.encode(); os.write(1, b[:i % 4]); time.sleep(0.001); os.write(1, b[i % 4:])"}, {"stdout": "😀" * 200}),
        ("an emoji across the cap", {"code": "import os\nos.write(1, b'x' * ((4 << 20) - 2) + '😀'.encode() * 3)"}, lambda a: a["stdout"] == "x" * ((4 << 20) - 2) + FFFD and a["termination"]["reason"] == "output"),
    ],
    100: [
        ("control characters", {"code": "import sys\nsys.stdout.write('a\\0b\\x1b[31mred\\x1b[0m\\r50%\\r100%\\u2028\\ufeffend\\x7f')"}, {"stdout": "a\0b\x1b[31mred\x1b[0m\r50%\r100%\u2028\ufeffend\x7f", "stdout_bytes": 34}),
    ],
    101: [
        ("prints, then runs past the deadline", {"code": "print('so far')\nimport time\ntime.sleep(9)", "timeout_s": 1}, {"stdout": "so far\n", "exit_code": -1, "stderr": "timed out after 1s"}),
        ("prints, then _exit", {"code": "import os\nprint('so far', end='')\nos._exit(0)"}, {"stdout": "so far", "exit_code": 0}),
        ("prints, then crashes", {"code": "import ctypes\nprint('so far', end='')\nctypes.string_at(0)"}, {"stdout": "so far", "exit_code": 139}),
        ("writes a file, then runs past the deadline", {"code": "open('kept.txt', 'w').write('kept')\nwhile True: pass", "timeout_s": 1}, lambda a: [f["path"] for f in a["files"]] == ["kept.txt"] and a["exit_code"] == -1),
    ],
    103: [("closes stdout, then exits", {"code": "import sys, os\nprint('a')\nsys.stdout = open(os.dup(1), 'w')\nsys.stdout.write('b')\nos.close(sys.stdout.fileno())"}, lambda a: a["exit_code"] == 120 and a["stdout"] == "a\n" and "OSError" in a["stderr"] and a["termination"]["reason"] == "exit")],
    104: [("makes its streams non-blocking", {"code": "import os\nfor fd in (0, 1, 2): os.set_blocking(fd, False)\nn = 0\ntry:\n    for i in range(100000): n += os.write(1, b'x' * 4096); \n    print('never full')\nexcept BlockingIOError: os.set_blocking(1, True); os.write(1, b'\\nfull\\n')", "timeout_s": 20}, lambda a: a["stdout"].endswith("\nfull\n") and a["exit_code"] == 0 or a["termination"]["reason"] == "output")],
    106: [("text in every language", {"code": "import sys, subprocess\nprint('é 漢字 😀', sys.stdout.encoding, sys.stderr.encoding, sys.stdin.encoding)\nopen('t', 'w').write('ß'); print(open('t').read(), open('t', 'rb').read())\nprint(subprocess.run(['cat', 't'], capture_output=True, text=True).stdout)"}, {"stdout": "é 漢字 😀 utf-8 utf-8 utf-8\nß b'\\xc3\\x9f'\nß\n"})],
    107: [("other locales", {"code": "import locale, time\nfor name in ('en_US.UTF-8', 'de_DE.UTF-8'):\n    try: locale.setlocale(locale.LC_ALL, name); print('there')\n    except locale.Error as e: print('locale.Error')\nlocale.setlocale(locale.LC_ALL, 'C.UTF-8')\nprint(time.strftime('%A %B', time.gmtime(0)))"}, {"stdout": "locale.Error\nlocale.Error\nThursday January\n", "exit_code": 0})],
    116: [("a null pointer, with faulthandler", {"code": "import faulthandler, ctypes\nfaulthandler.enable()\nctypes.string_at(0)"}, lambda a: a["termination"]["signal"] == "SIGSEGV" and a["exit_code"] == 139 and "Fatal Python error: Segmentation fault" in a["stderr"] and 'File "/box/main.py", line 3' in a["stderr"])],
    118: [("raise from", {"code": "def f():\n    try:\n        1 / 0\n    except ZeroDivisionError as e:\n        raise KeyError('k') from e\nf()"}, lambda a: a["exit_code"] == 1 and a["stderr"].count('File "/box/main.py"') == a["stderr"].count('  File "') == 3 and "raise KeyError('k') from e" in a["stderr"] and "direct cause" in a["stderr"])],
    119: [
        ("atexit prints, spawns and raises", {"code": "import atexit, subprocess\natexit.register(print, 'last')\n@atexit.register\ndef _():\n    print('first', flush=True); subprocess.run(['echo', 'child']); raise ValueError('late')\nprint('main')"}, lambda a: a["stdout"] == "main\nfirst\nchild\nlast\n" and "ValueError: late" in a["stderr"] and a["exit_code"] == 0),
        ("atexit sleeps past the deadline", {"code": "import atexit, time\natexit.register(time.sleep, 60)\nprint('main')", "timeout_s": 1}, {"stdout": "main\n", "exit_code": -1}),
    ],
    130: [
        ("1 MiB of input that is never read", {"code": "print('no')", "stdin": "x" * (1 << 20)}, {"stdout": "no\n", "exit_code": 0, "stderr": ""}),
        ("input that is closed", {"code": "import os\nos.close(0)\nprint('closed')", "stdin": "y" * (1 << 20)}, {"stdout": "closed\n", "exit_code": 0}),
        ("input that is read", {"code": "import sys\na = sys.stdin.readline()\nb = sys.stdin.read()\nprint(repr(a), len(b), repr(sys.stdin.read()))", "stdin": "first\n" + "é" * 1000}, {"stdout": "'first\\n' 1000 ''\n"}),
        ("input for a child", {"code": "import subprocess\nsubprocess.run(['wc', '-c'])", "stdin": "\0" * 12345}, {"stdout": "12345\n"}),
    ],
    158: [("caches and databases in HOME", {"code": (
        "import os, pathlib, sqlite3\n"
        "h = pathlib.Path.home(); assert h.is_dir() and str(h) == os.path.expanduser('~') == os.environ['HOME'] and h.stat().st_mode & 0o77 == 0\n"
        "for p in ('.cache/huggingface', 'nltk_data', '.numba', '.config/x'): (h / p).mkdir(parents=True); (h / p / 'f').write_text('x')\n"
        "sqlite3.connect(h / 'a.db').execute('create table t(a)')\n"
        "pathlib.Path(os.environ['XDG_CACHE_HOME']).mkdir(parents=True, exist_ok=True)\nprint('ok')")}, {"stdout": "ok\n", "files": []})],
    160: [("a terabyte of address space", {"code": "import resource, mmap\nprint(resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_NPROC)[0] > 4096 or resource.getrlimit(resource.RLIMIT_NPROC)[0] == -1)\nm = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)\nm[0] = 1; m[-1] = 1\nprint('ok')"}, {"stdout": "(-1, -1) True\nok\n"})],
    164: [("asks how many CPUs there are", {"code": "import os, sys\nprint(os.cpu_count(), len(os.sched_getaffinity(0)), getattr(os, 'process_cpu_count', lambda: 1)())\ntry: print(len(open('/sys/fs/cgroup/cpu.max').read().split()))\nexcept OSError: print(2)"}, {"stdout": "1 1 1\n2\n"})],
    166: [("temporary files of every kind", {"code": "import tempfile, os\nassert os.path.isdir(os.environ['TMPDIR']) and os.access(os.environ['TMPDIR'], os.W_OK)\nfor f in (tempfile.TemporaryFile, tempfile.NamedTemporaryFile, tempfile.SpooledTemporaryFile, tempfile.TemporaryDirectory):\n    with f(): pass\nos.close(tempfile.mkstemp()[0]); tempfile.mkdtemp()\nprint(tempfile.gettempdir())"}, {"stdout": "/tmp\n", "files": []})],
    173: [("databases, maps and locks in the working directory", {"code": (
        "import sqlite3, mmap, fcntl, os\n"
        "c = sqlite3.connect('a.db'); assert c.execute('pragma journal_mode=wal').fetchone() == ('wal',); c.execute('create table t(a)'); c.execute('insert into t values(7)'); c.commit(); c.close()\n"
        "f = open('m', 'w+b'); f.truncate(1 << 20); m = mmap.mmap(f.fileno(), 0); m[5] = 9; m.flush(); fcntl.lockf(f, fcntl.LOCK_EX); fcntl.flock(f, fcntl.LOCK_EX)\n"
        "print('ok')")}, lambda a: a["stdout"] == "ok\n" and {f["path"]: f["size"] for f in a["files"]}["m"] == 1 << 20)],
    175: [("looks around where it starts", {"code": "import os, glob, sys\nprint(sorted(os.listdir('.')), sorted(glob.glob('*')), sys.argv, sys.path[0], __file__, os.getcwd())", "files": [{"path": "data/in.csv", "content": "1,2"}]}, {"stdout": "['data', 'main.py'] ['data', 'main.py'] ['/box/main.py'] /box /box/main.py /box\n", "files": []})],
    176: [("asks for what it may not have", {"code": (
        "import os, platform, subprocess\n"
        "open('f', 'w').close()\n"
        "for f, a in ((os.getlogin, ()), (os.setuid, (0,)), (os.chown, ('f', 0, 0)), (os.nice, (-5,)), (os.setgid, (0,)), (os.chroot, ('/',))):\n"
        "    try: f(*a); print('did', f.__name__)\n"
        "    except OSError as e: pass\n"
        "try: subprocess.run(['sudo', 'id'])\nexcept FileNotFoundError: pass\n"
        "platform.uname(); platform.platform(); platform.freedesktop_os_release() if os.path.exists('/etc/os-release') else None\nos.sched_setaffinity(0, os.sched_getaffinity(0))\nprint('ok')")}, {"stdout": "ok\n", "exit_code": 0})],
    178: [("makes code at run time", {"code": "import ctypes.util, mmap, ctypes\nctypes.util.find_library('c'); ctypes.util.find_library('nonsense')\nm = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('b82a000000c3'))\nprint(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))())"}, {"stdout": "42\n", "exit_code": 0})],
    211: [
        ("code of 900 KB", {"code": "x = '" + "a" * 900000 + "'\nprint(len(x))"}, {"stdout": "900000\n"}),
        ("a variable of 31 KB, input of 3 MB", {"code": "import os, sys\nprint(len(os.environ['BIG']), len(sys.stdin.read()))", "env": {"BIG": "b" * 31000}, "stdin": "c" * 3000000}, {"stdout": "31000 3000000\n"}),
    ],
    214: [
        ("nothing", {"code": ""}, {"stdout": "", "stderr": "", "exit_code": 0}),
        ("only a comment", {"code": "# hello"}, {"stdout": "", "stderr": "", "exit_code": 0}),
        ("a syntax error", {"code": "x = 1\nif x\n    y"}, lambda a: a["exit_code"] == 1 and 'File "/box/main.py", line 2' in a["stderr"] and "SyntaxError" in a["stderr"] and "^" in a["stderr"]),
        ("an open quote", {"code": "print('a"}, lambda a: a["exit_code"] == 1 and "SyntaxError" in a["stderr"] and "line 1" in a["stderr"]),
        ("tabs and blanks", {"code": "if 1:\n        a = 1\n\tb = 2"}, lambda a: a["exit_code"] == 1 and "TabError" in a["stderr"]),
    ],
    223: [(
        "variables that libraries obey",
        {"code": "import os, sys, subprocess\nprint(os.environ['LD_PRELOAD'], os.environ['PYTHONPATH'], os.environ['A B'], sorted(k for k in os.environ if k.startswith('E')))\nprint(os.getuid() > 1 << 30, open('/proc/self/status').read().split('CapEff:')[1].split()[0])", "env": {"LD_PRELOAD": "/box/evil.so", "PYTHONPATH": "/box/lib", "PYTHONHOME": "/nowhere", "A B": "c", "EMPTY": "", "E2": "=a=b"}},
        {"stdout": "/box/evil.so /box/lib c ['E2', 'EMPTY']\nTrue 0000000000000000\n"},
    )],
}

# number: [(what, request's fields, status, what the message contains)]
REFUSED = {
    215: [("file %r" % path, {"code": "1", "files": [{"path": path, "content": "x"}]}, status, words) for path, status, words in (
        ("../x", 502, "file path escapes working directory"), ("/etc/x", 502, "file path escapes working directory"), ("a/../../b", 502, "file path escapes working directory"),
        ("dir/var/../../../x", 502, "file path escapes working directory"), ("/", 502, "file path escapes working directory"),
        ("", 400, "/files/0/path"), (".", 400, "/files/0/path"), ("a/", 400, "/files/0/path"), ("a/..", 400, "/files/0/path"), ("x\0y", 400, "/files/0/path"),
        ("n" * 300, 413, "255"), ("main.py", 400, "/files/0/path"), ("./main.py", 400, "/files/0/path"),
    )],
    217: [("base64 %r" % text, {"code": "1", "files": [{"path": "f", "content_base64": text}]}, 400, "/files/0/content_base64") for text in ("9", "1=", "QQ", "QQ=", "QUI", "QQ==\n", "Q\nQ==", "-_-_", "QQ==x", "QR==", "====", " QQ==", "QQ==QQ==")],
    218: [("timeout %s" % text, '{"code": "1", "timeout_s": %s}' % text, 400, words) for text, words in (
        ("NaN", ""), ("1e999", "timeout_s must be between 1 and 60"), ("-1", "timeout_s must be between 1 and 60"), ("0", "timeout_s must be between 1 and 60"), ('"5"', "timeout_s must be between 1 and 60"),
        ("true", "timeout_s must be between 1 and 60"), ("null", "timeout_s must be between 1 and 60"), ("0.0001", "timeout_s must be between 1 and 60"), ("2147483648", "timeout_s must be between 1 and 60"), ("61", "timeout_s must be between 1 and 60"), ("5.0", "timeout_s must be between 1 and 60"),
    )],
    220: [("a million brackets", "[" * 1000000, 400, ""), ("a number of a million digits", '{"code": "1", "timeout_s": %s}' % ("9" * 1000000), 400, "timeout_s")],
    223: [("variable %r" % name, {"code": "1", "env": {name: "x"}}, 400, words) for name, words in (
        ("", "/env"), ("A=B", "/env"), ("A\0B", ""), ("SANDBOX_URL", "SANDBOX_URL is reserved by the platform"), ("TOOL_SANDBOX", "TOOL_SANDBOX is reserved by the platform"), ("CODE_INTERPRETER_SESSION", "CODE_INTERPRETER_SESSION is reserved by the platform"))],
}


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=4)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def test_every_number_is_somewhere(self):
        own = set(ROWS) | set(REFUSED) | {int(m) for m in re.findall(r"def test_(\d{3})_", open(__file__).read())}
        self.assertEqual(sorted(NUMBERS - own - set(COVERED)), [])
        self.assertEqual(sorted((own | set(COVERED)) - NUMBERS), [])

    def test_what_covers_a_case_exists(self):
        for number, names in COVERED.items():
            for name in names:
                with self.subTest(number=number, name=name):
                    if "/" in name:
                        path, _, words = name.partition(" ")
                        self.assertIn(words, open(os.path.join(TOP, path)).read())
                        continue
                    module, kind, test = name.split(".")
                    self.assertTrue(callable(getattr(getattr(importlib.import_module(module), kind), test, None)), name)

    def test_rows(self):
        rows = [(number, what, fields, want) for number in sorted(ROWS) for what, fields, want in ROWS[number]]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda row: self.service.execute(**row[2]), rows))
        for (number, what, fields, want), answer in zip(rows, answers):
            with self.subTest(number=number, what=what):
                self.assertEqual(answer.status, 200, answer)
                got = answer.json()
                shown = {k: v[:200] + "…" + v[-100:] if isinstance(v, str) and len(v) > 400 else v for k, v in got.items()}
                if callable(want):
                    self.assertTrue(want(got), shown)
                else:
                    self.assertEqual({k: got[k] for k in want}, want, shown)

    def test_refused(self):
        for number in sorted(REFUSED):
            for what, body, status, words in REFUSED[number]:
                with self.subTest(number=number, what=what):
                    began = time.monotonic()
                    answer = self.service.request("POST", "/v1/execute", body)
                    self.assertEqual(answer.status, status, answer)
                    error = answer.json()["error"]
                    self.assertIn(words, error["message"])
                    self.assertEqual((error["ran"], bool(error["hint"])), (False, True))
                    self.assertLess(time.monotonic() - began, 2 * SLOW)

    def test_028_the_service_never_evaluates(self):
        # What serves holds no interpreter: nothing of a client's could be evaluated there, not even to look at it.
        for pid in [self.service.process.pid] + [int(p) for p in subprocess.run(["pgrep", "-P", str(self.service.process.pid)], capture_output=True, text=True).stdout.split()]:
            with open("/proc/%d/maps" % pid) as f, open("/proc/%d/comm" % pid) as comm:
                if comm.read().strip() == "weir":
                    self.assertNotIn("python", f.read())
        hostile = {"code": "__import__('os').system('id')", "files": [{"path": "a.pkl", "content_base64": "Y29zCnN5c3RlbQooUydpZCcKdFIu"}]}
        self.assertEqual(self.service.run(**hostile)["exit_code"], 0)

    def test_076_no_swap(self):
        name, pid = self.service.sandboxes().popitem()
        while not pid:
            name, pid = self.service.sandboxes().popitem()
        with open("/proc/%d/cgroup" % pid[0]) as f:
            lines = f.read().splitlines()
        v1 = next((l.split(":", 2)[2] for l in lines if "memory" in l.split(":")[1].split(",")), None)
        if v1 is None:
            with open(os.path.join(self.service.cgroup(), name, "memory.swap.max")) as f:
                self.assertEqual(f.read().strip(), "0")
            return
        with open("/proc/self/mountinfo") as f:
            mount = next(l.split()[4] for l in f if " - cgroup " in l and "memory" in l.rsplit(None, 1)[1].split(","))
        with open(mount + v1 + "/memory.limit_in_bytes") as f:
            limit = f.read()
        try:
            with open(mount + v1 + "/memory.memsw.limit_in_bytes") as f:
                self.assertEqual(f.read(), limit)  # memory and swap together are no more than memory alone
        except FileNotFoundError:
            with open("/proc/swaps") as f:
                self.assertEqual(len(f.readlines()), 1, "swap, and no accounting of it")

    def test_092_waiting_is_not_running(self):
        # Far more than there are sandboxes, each needing most of its own second: waiting in line must not be taken from it.
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(lambda i: self.service.run("import time\ntime.sleep(0.5)\nprint(%d)" % i, timeout_s=2), range(40)))
        self.assertEqual([a["stdout"] for a in answers], ["%d\n" % i for i in range(40)])
        self.assertGreater(max(a["usage"]["stages"]["queue_ms"] for a in answers), 20)

    def test_112_there_is_always_a_deadline(self):
        answer = self.service.run("print(1)")
        self.assertEqual(self.service.audit(answer["run_id"])["timeout_s"], 20)


if __name__ == "__main__":
    unittest.main()
