"""The journal of a run that is going on, as Parquet parts that queries can scan.

A journal line is decoded once. Parts lie in the server's own folder and hold up to 8,192 records each; the last one is
written again while it fills. Nothing is written into the run's folder.
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.core.frames import frame_of, one_type_a_column, with_samples
from assay.core.journal import checked_array, journal_files
from assay.core.store import Record

if TYPE_CHECKING:
    import polars as pl

    from assay.server.runs.folders import RunFolder

PART_ROWS = 8192
_records = msgspec.json.Decoder(list[Record])


@dataclass
class Tail:
    """What was read of one run's journal: per file (inode, bytes read), and the parts made of it with their heights."""

    folder: Path
    read: dict[Path, tuple[int, int]] = field(default_factory=dict)
    parts: list[tuple[Path, int]] = field(default_factory=list)
    made: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def refresh(self, run: RunFolder) -> list[tuple[Path, int]]:
        """Read what was appended; the parts with their numbers of rows, oldest first."""
        with self.lock:
            files = journal_files(run.path / "journal")
            known = {path: path.stat().st_ino for path in files if not path.is_symlink()}
            if any(known.get(path) != inode for path, (inode, _) in self.read.items()):
                # The run was folded, or begun anew: what stood in the old journal stands in records.parquet.
                self.drop()
            for path, inode in known.items():
                self._read(run, path, inode)
            return list(self.parts)

    def drop(self) -> None:
        """Forget everything and delete the parts."""
        self.read.clear()
        self.parts.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, run: RunFolder, path: Path, inode: int) -> None:
        start = self.read.get(path, (inode, 0))[1]
        fresh: list[Record] = []
        with path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    # Still being written.
                    break
                start += len(line)
                array = checked_array(line)
                if array is not None:
                    fresh += _records.decode(array)
                if len(fresh) >= PART_ROWS:
                    self._append(run, fresh)
                    fresh = []
                    self.read[path] = (inode, start)
        if fresh:
            self._append(run, fresh)
        self.read[path] = (inode, start)

    def _append(self, run: RunFolder, fresh: list[Record]) -> None:
        import polars as pl

        samples = run.file("samples.parquet")
        planned = pl.read_parquet(samples) if samples else pl.DataFrame(schema=_NO_SAMPLES(pl))
        frame = with_samples(frame_of(fresh), planned)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = None
        if self.parts and self.parts[-1][1] < PART_ROWS:
            old = self.parts.pop()[0]
            frame = pl.concat(one_type_a_column([pl.read_parquet(old), frame]), how="diagonal_relaxed")
        # A new name each time: a query that scans the old part still finds it whole.
        self.made += 1
        part = self.folder / f"{self.made:06d}.parquet"
        frame.write_parquet(part, compression="zstd", row_group_size=PART_ROWS)
        self.parts.append((part, frame.height))
        if old is not None:
            self._retire(old)

    def _retire(self, old: Path) -> None:
        """Delete parts that were replaced, except the last few, which somebody may be reading."""
        current = {path.name for path, _ in self.parts}
        replaced = sorted(p for p in self.folder.glob("*.parquet") if p.name not in current and p.name <= old.name)
        for path in replaced[:-3]:
            path.unlink(missing_ok=True)


def _NO_SAMPLES(pl: Any) -> dict[str, pl.DataType]:
    return {"task": pl.String, "sample": pl.String, "index": pl.Int64, "cluster": pl.String, "target": pl.String}
