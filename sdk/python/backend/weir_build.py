# SPDX-License-Identifier: Apache-2.0
"""What `pip install` calls (PEP 517): makes the wheel with the standard library alone, so that installing needs nothing from anywhere."""

import base64
import hashlib
import os
import re
import zipfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGES = ("weir", "weir/_children", "crusoe_adk", "crusoe_core")


def _project():
    """The few values of pyproject.toml that are needed; a reader of the format is not in every Python's library."""
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as f:
        text = f.read()
    return {key: re.search(r'^%s = "(.*)"$' % key, text, re.M).group(1) for key in ("name", "version", "description", "requires-python")}


def _metadata(project):
    return "Metadata-Version: 2.1\nName: %(name)s\nVersion: %(version)s\nSummary: %(description)s\nLicense: Apache-2.0\nRequires-Python: %(requires-python)s\n" % project


def _sources():
    for package in PACKAGES:
        for name in sorted(os.listdir(os.path.join(HERE, package))):
            if name.endswith((".py", ".typed")):
                yield "%s/%s" % (package, name)


def _wheel(directory, files):
    project = _project()
    stem = "%(name)s-%(version)s" % project
    info = stem + ".dist-info"
    files = dict(files)
    files[info + "/METADATA"] = _metadata(project).encode()
    files[info + "/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ["%s,sha256=%s,%d" % (n, base64.urlsafe_b64encode(hashlib.sha256(d).digest()).decode().rstrip("="), len(d)) for n, d in files.items()]
    files[info + "/RECORD"] = ("\n".join(record + [info + "/RECORD,,"]) + "\n").encode()
    name = stem + "-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files.items():
            member = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            member.external_attr, member.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            z.writestr(member, data)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {}
    for path in _sources():
        with open(os.path.join(HERE, path), "rb") as f:
            files[path] = f.read()
    return _wheel(wheel_directory, files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """`pip install -e`: a line that puts this directory on the path."""
    return _wheel(wheel_directory, {"weir.pth": (HERE + "\n").encode()})
