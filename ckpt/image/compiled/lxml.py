"""lxml: its class for the registry of libraries.

Not here: how documents and their elements are saved (:mod:`ckpt.image.compiled.lxml_documents`).
"""

from __future__ import annotations

import sys

from ckpt.image.interface.library import Library, Reducer

__all__ = ["Lxml"]


class Lxml(Library):
    def reducers(self) -> dict[type, Reducer]:
        if "lxml.etree" not in sys.modules:
            return {}
        from ckpt.image.compiled import lxml_documents

        return lxml_documents.reducers()

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if "lxml.etree" not in sys.modules:
            return None
        from ckpt.image.compiled import lxml_documents

        return lxml_documents.reducer_for(cls)
