# SPDX-License-Identifier: Apache-2.0
"""Files that the model's code left behind. Their names are a stranger's."""

import base64
import binascii
import os
from typing import Any, Dict, List, Tuple

from . import errors
from ._settings import SavedFile, SaveFiles


def name_ok(name: str) -> bool:
    """Whether it stays below the directory that it is joined to, on any system."""
    parts = name.split("/")
    return not (any(p in ("", ".", "..") for p in parts) or "\0" in name or (os.name == "nt" and any(c in name for c in '\\:*?"<>|')))


def _decoded(file: Any, run_id: str) -> SavedFile:
    name, content = file.get("path"), file.get("content_base64")
    if not isinstance(name, str) or not isinstance(content, str) or not name_ok(name):
        raise errors.ServiceError("the answer has a file with a name that leads elsewhere, or without content: %r" % (name,), code="bad_answer", ran=True)
    try:
        return SavedFile(name, base64.b64decode(content, validate=True), str(file.get("media_type") or ""), run_id)
    except binascii.Error:
        raise errors.ServiceError("the content of file %r is no base64" % name, code="bad_answer", ran=True) from None


def _write(directory: str, file: SavedFile) -> None:
    """To DIRECTORY/NAME. The directory is new, so nothing in it leads anywhere; O_EXCL holds for the rest."""
    path = os.path.join(directory, *file.name.split("/"))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0), 0o644)
    with os.fdopen(fd, "wb") as f:
        f.write(file.content)


def _save(directory: str, files: List[SavedFile]) -> List[str]:
    """Notes on those that could not be saved. ValueError: a name that this system can't have."""
    try:
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        os.mkdir(directory)
    except (OSError, ValueError) as e:
        return ["file %s could not be saved: %s" % (f.name, getattr(e, "strerror", None) or e) for f in files]
    notes = []
    for file in files:
        try:
            _write(directory, file)
        except (OSError, ValueError) as e:
            notes.append("file %s could not be saved: %s" % (file.name, getattr(e, "strerror", None) or e))
    return notes


def take(answer: Dict[str, Any], save: "SaveFiles | None") -> Tuple[List[str], List[str]]:
    """Saves the files of an answer; returns their names, and notes on what could not be kept."""
    run_id = str(answer.get("run_id") or "run")
    if not name_ok(run_id) or "/" in run_id:
        raise errors.ServiceError("the answer's run_id is no name: %r" % run_id, code="bad_answer", ran=True)
    files = [_decoded(f, run_id) for f in answer.get("files") or []]
    notes = ["file %s was not kept: %s" % (s.get("path"), s.get("reason")) for s in answer.get("files_skipped") or []]
    if callable(save):
        for file in files:
            save(file)
    elif save is not None and files:
        notes += _save(os.path.join(os.fspath(save), run_id), files)
    return [f.name for f in files], notes
