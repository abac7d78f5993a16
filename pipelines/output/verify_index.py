"""Whether a local index is still the one that the run was made from."""

from collections.abc import Iterator

from beamrank.errors import PreflightError
from beamrank.stages.plan import Plan
from beamrank.stages.verify import Finding, Verification
from beamrank.storage import files as storage
from models.lucene.index import INFO_NAME, describe_files, files_digest, find_damage, needs_building, read_written_info

_BUILD_AGAIN = "remove the folder and run again, which builds the index again"


def verify_index(plan: Plan, found: Verification) -> None:
    """Reads all files of the current plan's index, and adds what is wrong with them."""
    stage = plan.stage("retrieve")
    url = stage.places.get("index")
    if url is None:
        return
    if storage.is_remote(url):
        found.notes.append(f"not checked: the index {url}; each copy of it is checked when it is made")
    elif needs_building(url):
        found.notes.append(f"not checked: the index {url} no longer exists")
    else:
        found.findings += _damage(url, stage.keys["index"], found)


def _damage(url: str, planned: str, found: Verification) -> Iterator[Finding]:
    try:
        info = read_written_info(url)
    except PreflightError:
        yield Finding(storage.join(url, INFO_NAME), "is not the file that beamrank wrote into the index", _BUILD_AGAIN)
        return
    if info is not None and info.digest != planned:
        found.notes.append(f"not checked: the index {url} is not the one that the run was made from")
        return
    files = describe_files(url)
    found.files += len(files)
    found.bytes += sum(file.size_bytes for file in files.values())
    if info is not None:
        for name, problem in find_damage(info, files):
            yield Finding(storage.join(url, name), problem, _BUILD_AGAIN)
    elif files_digest(files) != planned:
        yield Finding(
            url, "is not the index that the run was made from", "get that index again, or run again with this one"
        )
