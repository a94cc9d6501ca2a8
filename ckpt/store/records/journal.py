"""A record of the journal: one step in the history of who controls a job, and of what is committed.

    journal/%08d   {mac, kind: "journal", format, job, number, previous, generation, what, epoch, digest, contact,
                    [incarnation, hosts]}

    what        "takeover": a controller has taken the job, with a new generation; "commit": it has committed a line;
                "contact": agents of hosts reach it there from now on; "restart": it is about to count the leases of hosts
                that it has not heard of, and may start their ranks elsewhere then
    number      from 1, without gaps when it was written
    previous    BLAKE3 digest of the record before it; "" for the first
    epoch       the highest committed epoch, this record included; 0: none
    digest      of the control file of that epoch ("commit"), else ""
    contact     of the controller. "takeover": for people, host and process. "contact": its address (tcp) for each host,
                in their order, as words; else ""
    incarnation of the ranks ("restart")
    hosts       those that may not go on ("restart"): ranks there end with their leases, whatever they read here

Pure. How records are appended: `ckpt/store/job/journal.py`; files: `journal_files.py` there.
"""

from __future__ import annotations

from typing import Literal, cast

from ckpt.store.errors import Misplaced
from ckpt.store.records import formats
from ckpt.transport.records import dataclass, names

__all__ = ["JournalRecord", "What", "journal_name", "number_of_name"]

What = Literal["takeover", "commit", "contact", "restart"]


def journal_name(number: int) -> str:
    """File name of a record."""
    return f"{number:08d}"


def number_of_name(name: str) -> int | None:
    """Return the number of the record with this file name; None if it is not the name of a record."""
    return int(name) if name.isdecimal() and name.isascii() and journal_name(int(name)) == name else None


@dataclass(frozen=True)
class JournalRecord:
    """See the module's header."""

    number: int
    previous: str
    generation: int
    what: What
    epoch: int
    digest: str = ""
    contact: str = ""
    incarnation: int = 0
    hosts: tuple[str, ...] = ()

    def encode(self, key: bytes, job_id: str) -> bytes:
        """Return the bytes of the file."""
        fields = {name: getattr(self, name) for name in names(self)} | {"hosts": list(self.hosts)}
        if self.what != "restart":
            del fields["incarnation"], fields["hosts"]  # as versions before there were such records
        return formats.write(key, formats.JOURNAL, job_id, fields)

    @classmethod
    def decode(cls, key: bytes, job_id: str, data: bytes, path: str, *, number: int) -> JournalRecord:
        """Verify and parse. Raises what `formats.read` raises, and Misplaced for a record of another number."""
        content = formats.read(key, formats.JOURNAL, job_id, data, path)
        record = cls(
            number=content["number"],
            previous=content["previous"],
            generation=content["generation"],
            what=cast(What, content["what"]),
            epoch=content["epoch"],
            digest=content["digest"],
            contact=content["contact"],
            incarnation=content.get("incarnation", 0),
            hosts=tuple(content.get("hosts", ())),
        )
        if record.number != number:
            raise Misplaced(f"journal record {record.number}, wanted was {number}", path=path)
        return record
