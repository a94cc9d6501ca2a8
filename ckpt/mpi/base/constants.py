"""Constants of MPI: named numbers, and marker objects such as IN_PLACE.

The values differ between MPI libraries. A program may rely on the names, and on different values for different
names of one kind; it may not rely on the values. Error classes are in errors.py."""

from __future__ import annotations

from typing import Any

ANY_SOURCE = -1
PROC_NULL = -2
ROOT = -3
ANY_TAG = -1
UNDEFINED = -32766
TAG_UB = 0x7FFFFFFF
BSEND_OVERHEAD = 96

# Comparison of groups and communicators.
IDENT = 0
CONGRUENT = 1
SIMILAR = 2
UNEQUAL = 3


CART = 1
GRAPH = 2
DIST_GRAPH = 3

COMBINERS = (
    "NAMED",
    "DUP",
    "CONTIGUOUS",
    "VECTOR",
    "HVECTOR",
    "INDEXED",
    "HINDEXED",
    "INDEXED_BLOCK",
    "HINDEXED_BLOCK",
    "STRUCT",
    "SUBARRAY",
    "DARRAY",
    "RESIZED",
    "VALUE_INDEX",
    "F90_INTEGER",
    "F90_REAL",
    "F90_COMPLEX",
)
"""The ways to make a datatype. The number COMBINER_x is the position of x in this tuple, plus one."""

NUMBERS: dict[str, int] = {
    "UNDEFINED": UNDEFINED,
    "ANY_SOURCE": ANY_SOURCE,
    "ANY_TAG": ANY_TAG,
    "PROC_NULL": PROC_NULL,
    "ROOT": ROOT,
    # Keys of the predefined attributes.
    "KEYVAL_INVALID": 0,
    "TAG_UB": 1001,
    "IO": 1002,
    "WTIME_IS_GLOBAL": 1003,
    "UNIVERSE_SIZE": 1004,
    "APPNUM": 1005,
    "LASTUSEDCODE": 1006,
    "WIN_BASE": 1007,
    "WIN_SIZE": 1008,
    "WIN_DISP_UNIT": 1009,
    "WIN_CREATE_FLAVOR": 1010,
    "WIN_FLAVOR": 1010,
    "WIN_MODEL": 1011,
    "ORDER_C": 56,
    "ORDER_FORTRAN": 57,
    "ORDER_F": 57,
    "TYPECLASS_LOGICAL": 4,
    "TYPECLASS_INTEGER": 2,
    "TYPECLASS_REAL": 1,
    "TYPECLASS_COMPLEX": 3,
    "DISTRIBUTE_NONE": 123,
    "DISTRIBUTE_BLOCK": 121,
    "DISTRIBUTE_CYCLIC": 122,
    "DISTRIBUTE_DFLT_DARG": -49767,
    "F_SOURCE": 2,
    "F_TAG": 3,
    "F_ERROR": 4,
    "F_STATUS_SIZE": 8,
    "IDENT": IDENT,
    "CONGRUENT": CONGRUENT,
    "SIMILAR": SIMILAR,
    "UNEQUAL": UNEQUAL,
    "CART": CART,
    "GRAPH": GRAPH,
    "DIST_GRAPH": DIST_GRAPH,
    "UNWEIGHTED": 2,
    "WEIGHTS_EMPTY": 3,
    "COMM_TYPE_SHARED": 1,
    "COMM_TYPE_HW_GUIDED": 2,
    "COMM_TYPE_HW_UNGUIDED": 3,
    "COMM_TYPE_RESOURCE_GUIDED": 4,
    "BSEND_OVERHEAD": BSEND_OVERHEAD,
    "WIN_FLAVOR_CREATE": 1,
    "WIN_FLAVOR_ALLOCATE": 2,
    "WIN_FLAVOR_DYNAMIC": 3,
    "WIN_FLAVOR_SHARED": 4,
    "WIN_SEPARATE": 1,
    "WIN_UNIFIED": 2,
    "MODE_NOCHECK": 1024,
    "MODE_NOSTORE": 2048,
    "MODE_NOPUT": 4096,
    "MODE_NOPRECEDE": 8192,
    "MODE_NOSUCCEED": 16384,
    "LOCK_EXCLUSIVE": 234,
    "LOCK_SHARED": 235,
    "MODE_CREATE": 1,
    "MODE_RDONLY": 2,
    "MODE_WRONLY": 4,
    "MODE_RDWR": 8,
    "MODE_DELETE_ON_CLOSE": 16,
    "MODE_UNIQUE_OPEN": 32,
    "MODE_EXCL": 64,
    "MODE_APPEND": 128,
    "MODE_SEQUENTIAL": 256,
    "SEEK_SET": 600,
    "SEEK_CUR": 602,
    "SEEK_END": 604,
    "DISPLACEMENT_CURRENT": -54278278,
    "DISP_CUR": -54278278,
    "THREAD_SINGLE": 0,
    "THREAD_FUNNELED": 1,
    "THREAD_SERIALIZED": 2,
    "THREAD_MULTIPLE": 3,
    "VERSION": 4,
    "SUBVERSION": 1,
    "MAX_PROCESSOR_NAME": 128,
    "MAX_ERROR_STRING": 512,
    "MAX_PORT_NAME": 256,
    "MAX_INFO_KEY": 255,
    "MAX_INFO_VAL": 1024,
    "MAX_OBJECT_NAME": 128,
    "MAX_DATAREP_STRING": 128,
    "MAX_LIBRARY_VERSION_STRING": 8192,
    "MAX_PSET_NAME_LEN": 256,
    "MAX_STRINGTAG_LEN": 256,
}
"""All numbers that the module MPI exports, by name, without the error classes."""
NUMBERS.update({f"COMBINER_{name}": at + 1 for at, name in enumerate(COMBINERS)})


class Marker(int):
    """An argument that is not a value but asks for a special treatment (IN_PLACE, BOTTOM, BUFFER_AUTOMATIC).

    A marker is equal to its number. It exports an empty buffer, from Python 3.12 on (PEP 688)."""

    _name = ""

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> str:
        return self._name

    def __add__(self, other: object) -> int:
        raise TypeError(f"no arithmetic with {self._name}")

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(b"")


class InPlaceType(Marker):
    """Type of IN_PLACE: the receive buffer is also the send buffer."""

    _name = "IN_PLACE"

    def __new__(cls) -> InPlaceType:
        return int.__new__(cls, -1)


class BottomType(Marker):
    """Type of BOTTOM, the origin of absolute addresses."""

    _name = "BOTTOM"
    window: Any = None
    """A class whose objects read and write memory by absolute address. The module datatypes/memory.py sets it."""

    def __new__(cls) -> BottomType:
        return int.__new__(cls, 0)


class BufferAutomaticType(Marker):
    """Type of BUFFER_AUTOMATIC: the library manages the buffer of buffered sends (this library always does)."""

    _name = "BUFFER_AUTOMATIC"

    def __new__(cls) -> BufferAutomaticType:
        return int.__new__(cls, -2)


IN_PLACE = InPlaceType()
BOTTOM = BottomType()
BUFFER_AUTOMATIC = BufferAutomaticType()
