"""coverage: its tracer in C goes on (:mod:`ckpt.image.frames.tracing`); its state is its attributes."""

from __future__ import annotations

from ckpt.image.interface.library import Library, Reducer

__all__ = ["Coverage"]


class Coverage(Library):
    is_left_alone = True

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if cls.__name__ not in ("CTracer", "CFileDispositionType"):
            return None
        from ckpt.image.stdlib import profilers

        return profilers.kind_by_base(cls)
