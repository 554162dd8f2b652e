"""Turns deltalake's and Arrow's errors into ours, by what an operator has to do.

deltalake has few classes: a full disk, a corrupt log and a row that matches twice are all a DeltaError, so its text
has to be read here, and only here. No text of a cast error goes on: it has the value in it.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError

from cdc.errors import InvariantError, LakeDamaged, LakeUnready, SinkUnfit, TailraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_STORE_ERROR: Final = re.compile(
    r"Generic (LocalFileSystem|S3|GCS|MicrosoftAzure|HTTP|HttpStore|HadoopFileSystem) error"
)
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_NO_SUCH_FILE: Final = "2"
_DETAIL_LENGTH_MAX: Final = 300


@contextmanager
def translated(table: str) -> Iterator[None]:
    """Errors about `table` leave as ours."""
    try:
        yield
    except TailraceError:
        raise
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, DeltaError, OSError) as error:
        raise _ours(table, error) from error
    except Exception as error:
        # deltalake raises its cast errors as the bare class.
        if type(error) is Exception:
            raise _ours(table, error) from error
        raise


def _ours(table: str, error: Exception) -> TailraceError:
    text = _ANSI.sub("", str(error))
    codes = _OS_ERROR.findall(text)
    if isinstance(error, TableNotFoundError) and "Could not create" not in text:
        return _damaged(table, text)
    if isinstance(error, FileNotFoundError) or _NO_SUCH_FILE in codes or "not found" in text[:200].lower():
        return _damaged(table, text)
    if codes or _STORE_ERROR.search(text) or isinstance(error, OSError | TableNotFoundError):
        return LakeUnready(
            f"storage of {table} cannot be used: {_detail(text)}",
            hint="free space, or mend what the message names; the cut is tried again by itself",
            table=table,
        )
    if isinstance(error, CommitFailedError):
        return LakeDamaged(
            f"somebody else wrote {table} while a cut was committed",
            hint="only one sink may write a lake; stop the other writer",
            table=table,
        )
    if "MERGE matched" in text:
        return InvariantError(f"a batch for {table} has a key twice", table=table)
    if isinstance(error, SchemaMismatchError | pa.ArrowTypeError) or "Cast error" in text:
        return SinkUnfit(
            f"rows do not fit the columns of {table}",
            hint="rebuild the sink, or set the column's type in the sink's settings",
            table=table,
        )
    return _damaged(table, text)


def _damaged(table: str, text: str) -> LakeDamaged:
    return LakeDamaged(
        f"files of {table} are lost or corrupt: {_detail(text)}",
        hint="bring the lake back from a copy, or rebuild the sink",
        table=table,
    )


def _detail(text: str) -> str:
    return " ".join(text.split())[:_DETAIL_LENGTH_MAX]
