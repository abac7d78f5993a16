"""A run or a table as a folder of parts, one for each shard, for readers that know nothing of plans: Spark, DuckDB.

The folder holds exactly the parts of one plan wherever it holds `_SUCCESS`, which is removed first and written last.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from beamrank.errors import BeamrankError
from beamrank.storage import files as storage

SUCCESS = "_SUCCESS"


@dataclass(frozen=True)
class PartFolder:
    """The folder of a run or a table.

    Attributes:
        url: where it is.
        ending: of the names of its parts.
        shards: how many parts it has.
    """

    url: str
    ending: str
    shards: int

    def part(self, shard: int) -> str:
        """The name of a shard's part."""
        return f"part-{shard:05d}.{self.ending}"

    @property
    def names(self) -> Iterator[str]:
        """The names of all files of a whole folder."""
        yield from map(self.part, range(self.shards))
        yield SUCCESS

    def begin(self) -> None:
        """Removes all that is there, `_SUCCESS` first: parts of other plans, lost attempts, a file of this name."""
        if not remove_parts(self.url):
            storage.remove(self.url)

    def write(self, shard: int, content: bytes) -> None:
        """Writes a shard's part; another attempt's is replaced, by the same bytes."""
        storage.replace(storage.join(self.url, self.part(shard)), content)

    def missing(self) -> list[int]:
        """The shards without a part."""
        present = storage.sizes_bytes(self.url)
        return [shard for shard in range(self.shards) if self.part(shard) not in present]

    def problems(self) -> list[tuple[str, str]]:
        """The names of files that are missing, and of others that are there, each with what is wrong."""
        names = set(self.names)
        present = storage.sizes_bytes(self.url).keys() | storage.folder_names(self.url)
        missing = [(name, "is missing") for name in sorted(names - present)]
        return missing + [(name, "is none of its parts, and would be read as one") for name in sorted(present - names)]

    def seal(self) -> None:
        """Removes all but the parts, and writes `_SUCCESS`.

        Raises:
            BeamrankError: a part is missing.
        """
        missing = self.missing()
        if missing:
            raise BeamrankError(
                f"{self.url} lacks {self.part(missing[0])} and the parts of {len(missing) - 1:,} more shards: run "
                "again, which writes it again"
            )
        storage.clear(self.url, set(self.names))
        storage.replace(storage.join(self.url, SUCCESS), b"")


def remove_parts(url: str) -> bool:
    """Removes a folder with all that is in it, `_SUCCESS` first; returns whether there was one."""
    is_folder = storage.is_folder(url)
    if is_folder:
        storage.remove(storage.join(url, SUCCESS))
        storage.remove_folder(url)
    return is_folder
