"""Errors that end a program with one clear line."""


class FatalError(Exception):
    """The program can't go on; the message says why and what to do, without a traceback."""
