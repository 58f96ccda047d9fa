"""Overrides: what an administrator decides about servers, kept over restarts, with a beginning and an end.

`book` is pure: what an override is, whom it names, which hold when, the shares that result. `keeper` has the
file, the timer and the log. The belief applies those that hold (`pool_user.overrides`).
"""
