"""Translates errors of deltalake and Arrow into Tailrace's errors, by what an operator has to do.

deltalake has few classes: a full disk, a corrupt log and a row that matches twice are all a DeltaError. So its text
is parsed, here and nowhere else. The text of a cast error is dropped, because it contains the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError

from cdc.errors import InvariantError, LakeDamaged, LakeUnready, SinkUnfit, TailraceError

_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_STORE_ERROR: Final = re.compile(
    r"Generic (LocalFileSystem|S3|GCS|MicrosoftAzure|HTTP|HttpStore|HadoopFileSystem) error"
)
_REFUSED: Final = re.compile(
    r"\b(401 Unauthorized|403 Forbidden)\b|lacked (the necessary privileges|valid authentication)"
)
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
# A store's answer: its code says what is wrong; the rest may repeat what was signed.
_ANSWER: Final = re.compile(r"(<\?xml|<Error>|\n\nDebug source:).*", re.DOTALL)
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_QUERY: Final = re.compile(r"(\bhttps?://[^\s?]+)\?\S*")  # may contain a signature
_NO_SUCH_FILE: Final = "2"
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_DETAIL_LENGTH_MAX: Final = 300


@contextmanager
def translating_store_errors(table: str) -> Iterator[None]:
    """Translate errors about `table`."""
    try:
        yield
    except TailraceError:
        raise
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, DeltaError, OSError) as error:
        raise _ours(table, error) from error
    except Exception as error:
        # deltalake raises cast errors as the bare class.
        if type(error) is Exception:
            raise _ours(table, error) from error
        raise


def store_unreachable(what: str, error: Exception) -> LakeUnready:
    """Translate an error that only the storage can cause."""
    return _refused(what, error) or _unready(what, error)


def is_storage_error(error: Exception) -> bool:
    """Whether the storage is not available or denies access, as opposed to wrong content."""
    return _refused("", error) is not None or _STORE_ERROR.search(str(error)) is not None


def _ours(table: str, error: Exception) -> TailraceError:
    refused = _refused(table, error)
    if refused is not None:
        return refused
    text = _plain(error)
    codes = _OS_ERROR.findall(text)
    if isinstance(error, TableNotFoundError) and "Could not create" not in text:
        return _damaged(table, text)
    if isinstance(error, FileNotFoundError) or _NO_SUCH_FILE in codes or "not found" in text[:200].lower():
        return _damaged(table, text)
    if codes or _STORE_ERROR.search(text) or isinstance(error, OSError | TableNotFoundError):
        return _unready(table, error)
    if isinstance(error, CommitFailedError):
        return LakeDamaged(
            f"another writer changed {table} while a cut was committed",
            hint="only one sink may write to a lake; stop the other writer",
            table=table,
        )
    if "MERGE matched" in text:
        return InvariantError(f"a batch for {table} contains a key twice", table=table)
    if isinstance(error, SchemaMismatchError | pa.ArrowTypeError) or "Cast error" in text:
        return SinkUnfit(
            f"rows do not fit the columns of {table}",
            hint="rebuild the sink, or set the column's type in the sink's settings",
            table=table,
        )
    return _damaged(table, text)


def _refused(what: str, error: Exception) -> LakeUnready | None:
    """Return the error of a store that answers but denies access; None for any other error."""
    text = str(error)
    code = _CODE.search(text)
    if code is not None and code[1] in _NO_BUCKET:
        return LakeUnready(
            f"the bucket of {what} does not exist",
            hint="create it; the sink creates none, and continues once it exists",
            table=what,
        )
    if not _REFUSED.search(text):
        return None
    return LakeUnready(
        f"the object store denied access to {what}: {code[1] if code else 'access denied'}",
        hint="check the credentials in the sink's `storage` or the environment, and their rights in the store",
        table=what,
    )


def _unready(what: str, error: Exception) -> LakeUnready:
    return LakeUnready(
        f"storage of {what} cannot be used: {_detail(_plain(error))}",
        hint="free space, or fix what the message names; the cut is retried automatically",
        table=what,
    )


def _damaged(table: str, text: str) -> LakeDamaged:
    return LakeDamaged(
        f"files of {table} are lost or corrupt: {_detail(text)}",
        hint="restore the lake from a copy, or rebuild the sink",
        table=table,
    )


def _plain(error: Exception) -> str:
    """Return an error's text without what may be secret."""
    text = _ANSI.sub("", str(error)).replace("\u21b3", "")
    return _QUERY.sub(r"\1", _ANSWER.sub("", text))


def _detail(text: str) -> str:
    return " ".join(text.split())[:_DETAIL_LENGTH_MAX]
