"""The error that ends a lab with one clear line."""


class LabError(Exception):
    """The lab can't run or go on here; the message says why and what to do."""
