"""Puts to object stores that create a file and never replace one."""

import logging
from typing import Any

_ATTEMPTS = 5
_log = logging.getLogger(__name__)


def create(filesystem: Any, path: str, content: bytes) -> bool:
    """Writes a file of an object store, through its fsspec file system, if it does not exist.

    Returns:
        Whether it wrote the file.

    Raises:
        OSError: other writers of the file conflicted with every attempt.
    """
    for _ in range(_ATTEMPTS):
        try:
            filesystem.pipe_file(path, content, mode="create")
        except Exception as error:
            if _is_refusal(error):
                return False
            # S3 did not decide which of two concurrent writers was first, and asks for a retry.
            if _store_code(error) != "ConditionalRequestConflict":
                raise
            _log.info("retrying the put of %s: %s", path, error)
        else:
            return True
    raise OSError(f"gave up after {_ATTEMPTS} conflicting concurrent writes to {path}")


def _is_refusal(error: BaseException | None) -> bool:
    """Whether a store refused a put because the file exists.

    s3fs knows only the message of AWS for that. gcsfs, once the last piece of a large file is refused, cancels the
    upload, which has ended already, and raises the error of that.
    """
    while error is not None:
        if isinstance(error, FileExistsError) or _store_code(error) in ("PreconditionFailed", "412"):
            return True
        error = error.__cause__ or error.__context__
    return False


def _store_code(error: BaseException) -> str | None:
    """The error code of an S3 store."""
    response = getattr(error.__cause__, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None
