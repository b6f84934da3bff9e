"""What lies in a table's folder, read without the libraries: shard manifests and fold progress.

A second pair of eyes: nothing here shares code with what wrote the files.
"""

import os
import struct
import uuid
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class SsTable:
    generation: int
    path: str


@dataclass
class Shard:
    id: str
    version: int = 0
    replayed: int = 0
    next_generation: int = 0
    sstables: list = field(default_factory=list)


@dataclass
class State:
    shards: dict
    compacted: dict
    """Shard to its folded generation."""
    caught_up: dict
    """Index name to shard to generation."""

    def waiting(self, shard):
        """SSTables of `shard` that are not folded yet."""
        folded = self.compacted.get(shard.id, 0)
        return [s for s in shard.sstables if s.generation > folded]


def read(table_path):
    """The state of the table in folder `table_path`."""
    compacted, caught_up = _progress(Path(table_path))
    root = Path(table_path) / "_mem_wal"
    shards = {}
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if (folder / "manifest").is_dir():
            shards[folder.name] = _shard(folder)
    return State(shards, compacted, caught_up)


def folded(table_path):
    """Version to shard to its folded generation, of every version there is."""
    return {version: _progress(Path(table_path), version)[0] for version in _manifests(Path(table_path))}


def files(root):
    """Every file under `root` with its size and modification time in nanoseconds."""
    seen = {}
    for folder, _, names in os.walk(root):
        for name in names:
            file = os.path.join(folder, name)
            stat = os.stat(file)
            seen[os.path.relpath(file, root)] = (stat.st_size, stat.st_mtime_ns)
    return seen


def _shard(folder):
    # A manifest's name is its version in binary, lowest bit first.
    versions = {int(f.stem[::-1], 2): f for f in (folder / "manifest").glob("*.binpb")}
    version = max(versions)
    shard = Shard(folder.name, version)
    for number, value in _message(versions[version].read_bytes()):
        if number == 3:
            shard.replayed = value
        elif number == 6:
            shard.next_generation = value
        elif number == 8:
            entry = dict(_message(value))
            shard.sstables.append(SsTable(entry[1], entry[2].decode()))
    return shard


def _progress(table_path, version=None):
    compacted, caught_up = {}, {}
    for entry in _indexes(table_path, version):
        if entry.get(3) != b"__lance_mem_wal":
            continue
        details = dict(_message(entry[6]))[2]
        for number, value in _message(details):
            if number == 9:
                compacted.update([_generation(value)])
            elif number == 10:
                catch_up = list(_message(value))
                name = dict(catch_up)[1].decode()
                caught_up[name] = dict(_generation(v) for n, v in catch_up if n == 2)
    return compacted, caught_up


def _generation(data):
    """Shard id and generation of a CompactedSsTable message."""
    entry = dict(_message(data))
    return str(uuid.UUID(bytes=dict(_message(entry[1]))[1])), entry.get(2, 0)


def _manifests(table_path):
    """Version to manifest, the oldest first."""
    def version(file):
        number = int(file.stem)
        # The newer naming counts down from 2^64 - 1 in twenty digits.
        return 2**64 - 1 - number if len(file.stem) == 20 else number

    files = (table_path / "_versions").glob("*.manifest")
    return dict(sorted((version(file), file) for file in files))


def _indexes(table_path, version=None):
    """The index section of a table manifest, the newest if none is named, one dict of fields an index."""
    manifests = _manifests(table_path)
    data = manifests[max(manifests) if version is None else version].read_bytes()
    manifest = dict(_message(_block(data, struct.unpack("<Q", data[-16:-8])[0])))
    if 6 not in manifest:
        return []
    return [dict(_message(value)) for _, value in _message(_block(data, manifest[6]))]


def _block(data, position):
    (length,) = struct.unpack("<I", data[position : position + 4])
    return data[position + 4 : position + 4 + length]


def _message(data):
    """Field numbers and values of a protobuf message; nested messages stay bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            value, at = bytes(data[at : at + length]), at + length
        else:
            width = {1: 8, 5: 4}[kind]
            value, at = bytes(data[at : at + width]), at + width
        yield number, value


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
