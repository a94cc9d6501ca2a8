"""`ckpt verify`: reads and checks all files that a restart would read, without unpickling anything.

For every line that the caller names, it checks the control file (MAC, schema), every manifest (MAC, digest, job, rank,
epoch, incarnation, schema), and every block: digest of the stored bytes, decompression, digest of the plain bytes,
likeness. (A restart checks neither the schemas, nor likenesses, nor the plain digests of compressed blocks.) A block that
several lines share is read once.
Memory is bounded: one block at a time. Image files to which no line refers are listed, but do not count as damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from ckpt.store.disk.fsio import TEMPORARY_PREFIX
from ckpt.store.disk.memory import Staging
from ckpt.store.errors import BlockDamaged, EpochMissing, Misplaced, StorageFailed, StoreError
from ckpt.store.images.codec import Codec
from ckpt.store.images.likeness import Likeness
from ckpt.store.images.source import BlockSource, Target
from ckpt.store.job.directory import JobDirectory, epoch_of_image, image_directory
from ckpt.store.job.epochs import committed_epochs
from ckpt.store.job.lines import Line, list_lines, load_manifest
from ckpt.store.records.authenticated import digest
from ckpt.store.records.control import ControlFile, RankEntry
from ckpt.store.records.manifest import BlockRef, Manifest
from ckpt.store.records.schema import check_control, check_manifest
from ckpt.transport.records import dataclass, field

__all__ = ["Finding", "LineReport", "VerifyReport", "verify"]


@dataclass(frozen=True)
class Finding:
    """One error that was found. `kind`: class name of the exception; `rank` None: the error concerns the whole line."""

    kind: str
    rank: int | None
    path: str | None
    message: str


@dataclass
class LineReport:
    """The result for one line: blocks and bytes read for it (without blocks read for an earlier line), and the errors."""

    epoch: int
    blocks: int = 0
    bytes_read: int = 0
    bytes_raw: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.findings


@dataclass
class VerifyReport:
    """The results for all lines that were checked. `orphans`: image files to which no line refers (of a round under way,
    or left over). `newest_good`: epoch of the newest line without errors."""

    lines: list[LineReport] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    newest_good: int | None = None
    incompatible: bool = False

    @property
    def good(self) -> bool:
        return all(line.good for line in self.lines)

    @property
    def exit_code(self) -> int:
        """0: no errors; 3: errors, and another line is good; 12: errors, and no line is good; 13: another format."""
        if self.good:
            return 0
        if self.incompatible:
            return 13
        return 12 if self.newest_good is None else 3

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON, for `ckpt verify --json`."""
        return {
            "good": self.good,
            "newest_good": self.newest_good,
            "orphans": self.orphans,
            "lines": [
                {
                    "epoch": line.epoch,
                    "good": line.good,
                    "blocks": line.blocks,
                    "bytes_read": line.bytes_read,
                    "bytes_raw": line.bytes_raw,
                    "findings": [vars(finding) for finding in line.findings],
                }
                for line in self.lines
            ],
        }


class _Verifier:
    """One run of `verify`; it remembers the blocks that are good and the files to which lines refer."""

    def __init__(self, job: JobDirectory, also: Callable[[int], Iterable[Finding]]) -> None:
        self.job = job
        self.also = also
        self.codec = Codec()
        self.likeness = Likeness(job.key)
        self.staging = Staging()
        self.plain = Staging()
        self.good_blocks: set[tuple[str, BlockRef]] = set()
        self.referred: set[str] = set()

    def line(self, line: Line) -> LineReport:
        report = LineReport(line.epoch)
        if line.control is None:
            assert line.error is not None
            report.findings.append(_finding(line.error, None))
            return report
        try:
            check_control(self._read(line.path), line.path)
        except StoreError as error:
            report.findings.append(_finding(error, None))
        report.bytes_raw = line.control.bytes_raw
        self._check_size(line.control, line.path, report)
        for entry in line.control.ranks:
            try:
                self._rank(entry, report)
            except StoreError as error:
                report.findings.append(_finding(error, entry.rank))
        report.findings += self.also(line.epoch)
        return report

    def is_removed(self, line: Line) -> bool:
        """Has the line been removed since it was listed? The job may be running: its controller prunes old lines."""
        try:
            return line.epoch not in committed_epochs(self.job)
        except StoreError:
            return False

    def _read(self, path: str) -> bytes:
        try:
            return self.job.fs.read_file(path)
        except OSError as error:
            raise StorageFailed("read", path, error) from error

    def _check_size(self, control: ControlFile, path: str, report: LineReport) -> None:
        if control.size != self.job.size:
            error = Misplaced(f"the line has {control.size} ranks, the job has {self.job.size}", path=path)
            report.findings.append(_finding(error, None))

    def _rank(self, entry: RankEntry, report: LineReport) -> None:
        self.referred.add(entry.manifest)
        manifest = load_manifest(self.job, entry)
        path = os.path.join(self.job.path, entry.manifest)
        check_manifest(self._read(path), path)
        self.referred.update(pack.path for pack in manifest.packs)
        source = BlockSource(self.job, manifest, self.job.fs)
        try:
            for block in sorted(manifest.blocks, key=lambda block: (block.pack, block.offset)):
                self._block(source, manifest, block, report)
        finally:
            source.close()

    def _block(self, source: BlockSource, manifest: Manifest, block: BlockRef, report: LineReport) -> None:
        pack = manifest.packs[block.pack]
        name = (pack.path, block._replace(pack=0))
        if name in self.good_blocks:
            return
        plain = self.plain.take(block.length)
        source.read(block, Target(plain, aligned=True), self.codec, self.staging)
        alike = not block.likeness or self.likeness.of(plain) == block.likeness
        if digest(plain) != block.digest or not alike:
            raise BlockDamaged(
                f"the block at byte {block.offset} unpacks to something else",
                path=os.path.join(self.job.path, pack.path),
            )
        self.good_blocks.add(name)
        report.blocks += 1
        report.bytes_read += block.stored

    def orphans(self) -> list[str]:
        found: list[str] = []
        for rank in range(self.job.size):
            directory = image_directory(rank)
            full = os.path.join(self.job.path, directory)
            try:
                names = self.job.fs.list_directory(full)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageFailed("list", full, error) from error
            for name in sorted(names):
                path = f"{directory}/{name}"
                image = name.startswith(TEMPORARY_PREFIX) or epoch_of_image(name) is not None
                if image and path not in self.referred:
                    found.append(path)
        return found


def _finding(error: StoreError, rank: int | None) -> Finding:
    return Finding(type(error).__name__, rank, error.path, str(error))


def verify(
    job: JobDirectory, epoch: int | None = None, also: Callable[[int], Iterable[Finding]] = lambda epoch: ()
) -> VerifyReport:
    """Verify the line of `epoch`, or (None) all lines. Damage is in the report, not raised. `also`: what else is
    wrong with a line.

    If the line of `epoch` is damaged, the other lines are verified too, to find one that can be used instead. A line that
    is removed while it is read (the job may be running, and prunes) is no line any more, and not in the report.

    Raises:
        EpochMissing: no line was committed, or none of that epoch.
        StorageFailed: a directory cannot be listed.
    """
    lines = list_lines(job)
    wanted = [line for line in lines if epoch is None or line.epoch == epoch]
    if not wanted:
        what = "nothing was committed yet" if epoch is None else f"no committed epoch {epoch}"
        known = ", ".join(str(line.epoch) for line in lines) or "none"
        raise EpochMissing(what, path=job.path, hint=f"Committed epochs: {known}.")
    verifier = _Verifier(job, also)
    report = VerifyReport()
    for line in wanted:
        found = verifier.line(line)
        if found.good or not verifier.is_removed(line):
            report.lines.append(found)
    if not report.lines:
        return verify(job, epoch, also)
    report.incompatible = any(
        finding.kind == "Incompatible" for line in report.lines for finding in line.findings
    )
    good = [line.epoch for line in report.lines if line.good]
    report.newest_good = max(good, default=None)
    if report.newest_good is None and epoch is not None:
        others = [verifier.line(line) for line in lines if line.epoch != epoch]
        report.newest_good = max((line.epoch for line in others if line.good), default=None)
    if epoch is None:
        report.orphans = verifier.orphans()
    return report
