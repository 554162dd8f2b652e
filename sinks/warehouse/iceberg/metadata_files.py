"""Lets pyiceberg read and write the metadata files of one table through the lake's own storage.

So metadata is as durable as manifests, and options of an object store have the same names as everywhere in the lake.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

if TYPE_CHECKING:
    from sinks.warehouse.lake.local_disk import Disk


class MetadataFiles(FileIO):
    """The files of one folder. A location is the folder's URI, a slash, and the name of a file.

    Args:
        disk: the folder's storage.
        uri: of the folder, as readers open it.
    """

    def __init__(self, disk: Disk, uri: str) -> None:
        super().__init__()
        self.disk = disk
        self._uri = uri

    def location(self, name: str) -> str:
        """Return the location of a file."""
        return f"{self._uri}/{name}"

    def name(self, location: str) -> str:
        """Return the name of a file. Raises ValueError for a location in another folder."""
        folder, _, name = location.rpartition("/")
        if folder != self._uri:
            raise ValueError(f"{location} is not in {self._uri}")
        return name

    def new_input(self, location: str) -> InputFile:
        """See `FileIO`."""
        return _Input(location, self)

    def new_output(self, location: str) -> OutputFile:
        """See `FileIO`. The file exists once its stream is closed."""
        return _Output(location, self)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See `FileIO`."""
        self.disk.remove(self.name(location if isinstance(location, str) else location.location))


class _Input(InputFile):
    def __init__(self, location: str, files: MetadataFiles) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        return len(self._read())

    def exists(self) -> bool:
        return self._files.disk.read(self._files.name(self.location)) is not None

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's signature
        return BytesIO(self._read())

    def _read(self) -> bytes:
        data = self._files.disk.read(self._files.name(self.location))
        if data is None:
            raise FileNotFoundError(f"{self.location} is gone")
        return data


class _Output(OutputFile):
    def __init__(self, location: str, files: MetadataFiles) -> None:
        super().__init__(location)
        self._files = files
        self._stream: _Stream | None = None

    def __len__(self) -> int:
        # What was just written is not read again.
        return len(self.to_input_file()) if self._stream is None else self._stream.size

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - pyiceberg's signature
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} exists")
        self._stream = _Stream(self._files.disk, self._files.name(self.location))
        return self._stream


class _Stream(BytesIO):
    """Collects a file, which is written as a whole."""

    def __init__(self, disk: Disk, name: str) -> None:
        super().__init__()
        self._disk = disk
        self._name = name
        self.size = 0

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            self.size = len(data)
            self._disk.replace(self._name, data)
        super().close()
