"""Every exception that foretrace raises for a user to read.

    ForetraceError                 exit 1   anything below; catch this one
    +-- UsageError                 exit 2   an argument, option or combination that makes no sense
    +-- InputError                 exit 3   a file, folder, row or field that cannot be read or believed
    |   +-- SchemaError            exit 3   readable, but a column, type or value breaks the schema
    +-- PlanError                  exit 4   a parallel plan that does not divide, contradicts itself or does not fit
    +-- UnsupportedError           exit 2   a sound request that this version, machine or torch build cannot serve
    +-- RunError                   exit 1   a training run that foretrace started failed, died or never stepped
    +-- MissingExtraError          exit 1   an optional library is not installed; the message names the extra
    +-- Regression                 exit 5   `compare --fail-on` found what it was told to look for

A message has four parts in one or two lines: what was being done, which file, field or rank, what was found, what to
do. `assert` and built-in exceptions are for our own mistakes only.
"""


class ForetraceError(Exception):
    """Base of all; `exit_code` is what the command line returns for it."""

    exit_code = 1


class UsageError(ForetraceError):
    """An argument, option or combination of them makes no sense."""

    exit_code = 2


class InputError(ForetraceError):
    """A file, folder, row or field cannot be read or believed."""

    exit_code = 3


class SchemaError(InputError):
    """A table or document is readable but a column, type or value breaks its schema."""


class PlanError(ForetraceError):
    """A plan does not divide, contradicts itself or does not fit."""

    exit_code = 4


class UnsupportedError(ForetraceError):
    """A sound request that this version, machine or torch build cannot serve."""

    exit_code = 2


class RunError(ForetraceError):
    """A training run started by foretrace failed, died or never finished a step."""


class MissingExtraError(ForetraceError):
    """An optional library is not installed."""

    def __init__(self, library: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {library}, which is not installed; run: pip install 'foretrace[{extra}]'")


class Regression(ForetraceError):
    """A comparison crossed the limit that the caller set."""

    exit_code = 5
