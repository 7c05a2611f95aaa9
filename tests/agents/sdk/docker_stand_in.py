# SPDX-License-Identifier: Apache-2.0
"""`docker build -t NAME .` and `docker save -o FILE NAME`, for machines without docker: the base is this host's Python, whatever
FROM says; WORKDIR and COPY are followed.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "..", "..", "system")]

from fixture import make_docker_archive  # noqa: E402


def copied():
    """(working directory, files by name) of the Dockerfile that is here."""
    workdir, files = "/", {}
    with open("Dockerfile") as f:
        lines = [line.split() for line in f if line.strip() and not line.startswith("#")]
    for words in lines:
        if words[0] == "WORKDIR":
            workdir = words[1]
        elif words[0] == "COPY" and words[-1] == "./":
            for name in words[1:-1]:
                with open(name) as f:
                    files[name] = f.read()
        elif words[0] != "FROM":
            raise SystemExit("docker stand-in: %s is not known here" % words[0])
    return workdir, files


def main(command, option, value, last):
    if (command, option, last) == ("build", "-t", "."):
        copied()
    elif (command, option) == ("save", "-o"):
        workdir, files = copied()
        make_docker_archive(value, files, workdir=workdir, name=last + ":latest")
    else:
        raise SystemExit("docker stand-in: what is %s?" % sys.argv[1:])


main(*sys.argv[1:])
