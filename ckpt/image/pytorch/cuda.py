"""The class that serves ``torch.cuda``: what GPUs hold is copied before the fork, and put back by the new process.

A forked child cannot use CUDA: its calls fail, and what it needs must be known before. So, while the program stands still
(:meth:`Cuda.copy_out`):

- all streams of the GPUs in use are waited for;
- all memory that torch's allocator has given out is copied to the host, block by block, whoever uses it
  (:mod:`ckpt.image.pytorch.host_memory`). Nobody looks for tensors: in the child, the address of a storage says where its
  content has been copied to (:mod:`ckpt.image.libraries.tensors`). A storage is saved once, so what tensors share they
  share again;
- pinned memory of the host, which the child shares with the program, is copied too. The child puts the copy in its place
  (:meth:`Cuda.before_saving`), so whatever uses that memory finds it as it was;
- the current GPU, its streams, and the states of the global generators are noted.

A program that has not used CUDA pays one look at a variable. Named, and not saved: graphs of CUDA, memory pools, storages
that torch's allocator does not know.

Not here: how tensors are saved (:mod:`ckpt.image.libraries.tensors`), generators, streams and events.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ckpt.image.errors import ObjectRefused, Unpicklable
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.interface.mappings import SHARED, mappings
from ckpt.image.libraries.tensors import Copied, gpu_of, put_copies
from ckpt.image.pytorch import devices, generators
from ckpt.image.pytorch.host_memory import HostMemory
from ckpt.transport.records import NamedTuple

__all__ = ["Cuda"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MREMAP_MAYMOVE_FIXED = 1 | 2
_PINNED_PLACES = ("/dev/zero", "/dev/nvidia")
_CAPTURING = "a graph of CUDA is being captured, which no image can hold"
_GRAPH = (
    "a graph of CUDA is memory of the driver, which no image can hold; `del` it before a checkpoint "
    "(ckpt.on_checkpoint) and capture it again"
)


class _Noted(NamedTuple):
    """What is no part of the copies. ``device``: the current GPU; ``streams``: GPU → number of its current stream;
    ``random``: the states of the global generators."""

    device: int
    streams: dict[int, int]
    random: list[bytes]


class Cuda(Library):
    """torch.cuda"""

    transient_types = ("torch.cuda.graphs:graph",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._memory = HostMemory()
        self._pinned: list[Copied] = []
        self._noted: _Noted | None = None
        self._layout: generators.Layout | None = None
        self._looked_for_layout = False

    # -- moments ---------------------------------------------------------------------------------------

    def reason_now(self, values: Iterable[Any]) -> str | None:
        if getattr(self.module, "_initialized", False) and self.module.is_current_stream_capturing():
            return _CAPTURING
        return None

    # -- before the fork -------------------------------------------------------------------------------

    def copy_out(self, *, is_writing: bool, available: Callable[[], int | None]) -> None:
        cuda = self.module
        self._noted, self._pinned = None, []
        put_copies(None, ())
        if not getattr(cuda, "_initialized", False):
            return
        torch: Any = sys.modules["torch"]
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self._copy_all(torch, is_writing=is_writing, available=available)
            self._note(torch)

    def _copy_all(self, torch: Any, *, is_writing: bool, available: Callable[[], int | None]) -> None:
        if self.module.is_current_stream_capturing():
            raise Unpicklable("torch.cuda", _CAPTURING)
        _drain(torch)
        pinned, used = list(self._pinned_ranges(torch)), list(_used_ranges(self.module.memory_snapshot()))
        nbytes = sum(size for _, size in pinned) + sum(size for _, _, size in used)
        if not nbytes:
            self._memory.release()
            return
        self._memory.reserve(nbytes, is_in_use=is_writing, available=available)
        at, ranges = 0, []
        content = self._memory.content
        for address, size in pinned:  # first: their copies must begin with a page
            content[at : at + size].copy_(_bytes_at(torch, address, size))
            self._pinned.append(Copied(address, size, at))
            at += size
        for index, address, size in used:
            content[at : at + size].copy_(_bytes_on(torch, index, address, size), non_blocking=True)
            ranges.append(Copied(address, size, at))
            at += size
        _drain(torch)
        put_copies(content.numpy(), ranges)

    def _pinned_ranges(self, torch: Any) -> Iterator[tuple[int, int]]:
        """Address and size of the memory of the host that CUDA has given out to the program."""
        for each in mappings(SHARED):
            is_own = self._memory.address <= each.start < self._memory.address + self._memory.nbytes
            if (
                each.path.startswith(_PINNED_PLACES)
                and not is_own
                and _bytes_at(torch, each.start, _PAGE_BYTES).is_pinned()
            ):
                yield each.start, each.end - each.start

    def _note(self, torch: Any) -> None:
        in_use = _devices_in_use(torch)
        self._noted = _Noted(
            torch.cuda.current_device(),
            {index: torch.cuda.current_stream(index).stream_id for index in in_use},
            [each.get_state().numpy().tobytes() for each in torch.cuda.default_generators],
        )
        if not self._looked_for_layout:
            self._layout, self._looked_for_layout = generators.find_layout(), True

    # -- in the child ----------------------------------------------------------------------------------

    def before_saving(self, *, is_disposable: bool) -> None:
        """Pinned memory is one for the child and the program, which goes on: the copy takes its place here."""
        if not is_disposable or not self._pinned:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mremap.restype = ctypes.c_void_p
        libc.mremap.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p),
        )
        for address, size, offset in self._pinned:
            moved = libc.mremap(self._memory.address + offset, size, size, _MREMAP_MAYMOVE_FIXED, address)
            if moved != address:
                raise Unpicklable(
                    "pinned memory", f"its copy cannot be put in its place: {os.strerror(ctypes.get_errno())}"
                )

    def reducers(self) -> dict[type, Reducer]:
        generator = getattr(getattr(sys.modules.get("torch"), "_C", None), "Generator", None)
        return {} if generator is None else {generator: self._reduce_generator}

    def _reduce_generator(self, saver: Any, generator: Any) -> Any:
        if generator.device.type != "cuda":
            return generator.__reduce_ex__(5)
        return generators.reduce_generator(generator, self._layout)

    def reducer_by_base(self, cls: type) -> Reducer | None:
        cuda = self.module
        found = (
            ("Stream", devices.reduce_stream),
            ("Event", devices.reduce_event),
            ("CUDAGraph", _refuse(_GRAPH)),
            ("MemPool", _refuse("a pool of memory of torch.cuda, which no image can hold")),
        )
        for name, reducer in found:
            base = getattr(cuda, name, None)
            if isinstance(base, type) and issubclass(cls, base):
                return reducer
        return None

    def note_settings(self) -> Any:
        return None if self._noted is None else (self._noted.device, self._noted.streams)

    def note_random(self) -> Any:
        return None if self._noted is None else self._noted.random

    # -- in the new process ----------------------------------------------------------------------------

    def apply_settings(self, saved: Any) -> None:
        torch: Any = sys.modules["torch"]
        index, streams = saved
        for number, stream in streams.items():
            if number < torch.cuda.device_count():  # a GPU that only had been looked at need not be here
                kind = (stream >> 1) & 0xF if stream else 1
                torch.cuda.set_stream(devices.make_stream(torch.cuda.Stream, stream, number, 1 - kind))
        torch.cuda.set_device(gpu_of(index))

    def apply_random(self, saved: Any) -> None:
        torch: Any = sys.modules["torch"]
        torch.cuda.init()
        for generator, state in zip(torch.cuda.default_generators, saved, strict=False):
            generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _refuse(reason: str) -> Reducer:
    def refuse(saver: Any, obj: Any) -> Any:
        raise ObjectRefused(obj, reason)

    return refuse


def _devices_in_use(torch: Any) -> list[int]:
    """Those on which this process has done anything."""
    return [each for each in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(each)]


def _drain(torch: Any) -> None:
    """Wait for all streams. An error of the program's own kernels is raised here: no image, and the program gets it next."""
    for index in _devices_in_use(torch):
        try:
            torch.cuda.synchronize(index)
        except RuntimeError as failure:
            raise Unpicklable(f"cuda:{index}", str(failure).splitlines()[0]) from None


def _used_ranges(segments: Iterable[dict[str, Any]]) -> Iterator[tuple[int, int, int]]:
    """(GPU, address, size) of what torch's allocator has given out; blocks that adjoin each other are one range."""
    for segment in segments:
        begin = end = segment["address"]
        for block in segment["blocks"]:
            first = block["address"]
            if block["state"] != "active_allocated":
                continue
            if first != end:
                if end > begin:
                    yield segment["device"], begin, end - begin
                begin = first
            end = first + block["size"]
        if end > begin:
            yield segment["device"], begin, end - begin


def _bytes_on(torch: Any, index: int, address: int, nbytes: int) -> Any:
    """This memory of a GPU as a tensor."""
    place = torch.device("cuda", index)
    storage = torch._C._construct_storage_from_data_pointer(address, place, nbytes)
    return torch.empty(0, dtype=torch.uint8, device=place).set_(storage)


def _bytes_at(torch: Any, address: int, nbytes: int) -> Any:
    """This memory of the host as a tensor."""
    return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)
