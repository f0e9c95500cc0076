#!/usr/bin/env python3
"""Has a tool's JSON all the keys of another's?

    json_keys.py THEIRS OURS

Each key of THEIRS has to be in OURS at the same place, with a value of the same kind; of lists the first
entries are compared. Prints what is missing; the exit code is 0 when nothing is.
"""
import json
import sys


def kind(value):
    """Numbers may be text: those of 128 bits are."""
    if isinstance(value, bool):
        return "number"
    if isinstance(value, (int, float)) or isinstance(value, str) and value.isdigit():
        return "number"
    return {dict: "object", list: "list", str: "text"}.get(type(value), "nothing")


def missing(theirs, ours, path=""):
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key, value in theirs.items():
            # A device is called otherwise in the two.
            other = next(iter(ours)) if len(theirs) == len(ours) == 1 and key.startswith("nvme") else key
            if other not in ours:
                yield f"{path}/{key}"
            else:
                yield from missing(value, ours[other], f"{path}/{key}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        if theirs and not ours:
            yield f"{path}[0]"
        elif theirs:
            yield from missing(theirs[0], ours[0], f"{path}[0]")
    elif kind(theirs) != kind(ours):
        yield f"{path}: {kind(theirs)} there, {kind(ours)} here"


def main():
    theirs, ours = (json.load(open(path)) for path in sys.argv[1:3])
    found = list(missing(theirs, ours))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
