"""Errors that end a program with one clear line."""

import errno
import os


class FatalError(Exception):
    """The program can't go on; the message says why and what to do, without a traceback."""


def printable(text: str, most: int) -> str:
    """Return the first `most` characters of a text from elsewhere, such that a terminal can show them."""
    return "".join(character if character.isprintable() else "?" for character in text[:most])


def reason_of(error: OSError) -> str:
    """Return why the system refused, in its words: "Connection refused". Those of a library may be others."""
    number = error.errno
    if number is not None and number in errno.errorcode and type(error).__module__ == "builtins":
        return os.strerror(number)
    return error.strerror or str(error) or type(error).__name__
