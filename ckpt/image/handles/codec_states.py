"""``codecs``: incremental coders, and readers and writers over files (``codecs.open``), of the encodings of East Asia, which
are objects of C. Those of other encodings are plain Python.

incremental coders  tell their state, and take one (``getstate``, ``setstate``)
readers, writers    do neither. Their state is the first bytes of a character that has come in part, and the alphabet that
                    the text has chosen. It is read from their memory, and written into that of the new one. Where the
                    memory is laid out otherwise, they are refused
"""

from __future__ import annotations

from pickle import PicklingError
from typing import Any

from ckpt.compat.readers import CODEC_WORDS, codec_words
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers.raw_instances import attributes_of

__all__ = ["MultibyteCodecs", "make", "set_coder", "set_over"]

_CODERS = ("MultibyteIncrementalDecoder", "MultibyteIncrementalEncoder")
_STATE, _PENDING = 3, 5
"""Indices of words."""


class MultibyteCodecs(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        for names, reduce in ((_CODERS, reduce_coder), (tuple(CODEC_WORDS), reduce_over)):
            if issubclass(cls, tuple(getattr(self.module, name) for name in names)):
                return reduce
        return None


def reduce_coder(pickler: Any, coder: Any) -> Any:
    state = coder.getstate(), dict(attributes_of(coder) or {})
    return make, (type(coder), coder.errors), state, None, None, set_coder


def reduce_over(pickler: Any, coder: Any) -> Any:
    """The reducer for readers and writers. Raises PicklingError."""
    words = codec_words(coder)
    # the bytes that wait of a reader; of a writer, the address of the text that waits
    if words is None or (len(words) == CODEC_WORDS["MultibyteStreamWriter"] and words[_PENDING]):
        raise PicklingError(
            f"a {type(coder).__module__}.{type(coder).__qualname__} (codecs.open) cannot be saved where it has half of a "
            "character, or with this Python; use open(PATH, encoding=...), which goes on after a restart"
        )
    state = words[_STATE], words[_PENDING : len(words) - 1], dict(attributes_of(coder) or {})
    return make, (type(coder), coder.stream, coder.errors), state, None, None, set_over


# ---------------------------------------------------------------------- called while loading


def make(cls: Any, *arguments: Any) -> Any:
    return cls.__new__(cls, *arguments)


def set_coder(coder: Any, state: tuple[Any, dict[str, Any]]) -> None:
    coder.setstate(state[0])
    coder.__dict__.update(state[1])


def set_over(coder: Any, state: tuple[int, list[int], dict[str, Any]]) -> None:
    words = codec_words(coder)
    words[_STATE] = state[0]
    for place, word in enumerate(state[1], _PENDING):
        words[place] = word
    coder.__dict__.update(state[2])
