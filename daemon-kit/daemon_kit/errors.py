"""Errors that end a program with one clear line."""


class FatalError(Exception):
    """The program can't go on; the message says why and what to do, without a traceback."""


def printable(text: str, most: int) -> str:
    """Return the first `most` characters of a text from elsewhere, such that a terminal can show them."""
    return "".join(character if character.isprintable() else "?" for character in text[:most])
