"""Puts to object stores that create a file and never replace one."""

from typing import Any

_ATTEMPTS = 5


def create(filesystem: Any, path: str, content: bytes) -> bool:
    """Writes a file of an object store, through its fsspec file system, if none exists; whether it did.

    Raises:
        OSError: other writers of the file were in the way again and again.
    """
    for _ in range(_ATTEMPTS):
        try:
            filesystem.pipe_file(path, content, mode="create")
        except Exception as error:
            if _is_refusal(error):
                return False
            # S3 could not tell which of two writers was first, and asks for the put again.
            if _store_code(error) != "ConditionalRequestConflict":
                raise
        else:
            return True
    raise OSError(f"other writers of {path} were in the way {_ATTEMPTS} times")


def _is_refusal(error: BaseException | None) -> bool:
    """Whether a store refused a put because there is a file.

    s3fs knows AWS's words for that only. And gcsfs, once the last piece of a large file is refused, cancels the upload,
    which is over, and then raises what came of that.
    """
    while error is not None:
        if isinstance(error, FileExistsError) or _store_code(error) in ("PreconditionFailed", "412"):
            return True
        error = error.__cause__ or error.__context__
    return False


def _store_code(error: BaseException) -> str | None:
    """The code in which an S3 store said what was wrong."""
    response = getattr(error.__cause__, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None
