"""spacy: words and spans of a document, which spacy refuses to pickle because each would bring its whole document along. In
an image the document is there anyhow."""

from __future__ import annotations

import importlib
import operator
from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["Spacy", "make_span", "reduce_span", "reduce_token"]


class Spacy(Library):
    def reducers(self) -> dict[type, Reducer]:
        return {
            **by_name("spacy.tokens.span", {"Span": reduce_span}),
            **by_name("spacy.tokens.token", {"Token": reduce_token}),
        }


def reduce_span(saver: Any, span: Any) -> Any:
    return make_span, (span.doc, span.start, span.end, span.label, span.kb_id, span.id)


def reduce_token(saver: Any, token: Any) -> Any:
    return operator.getitem, (token.doc, token.i)


# ---------------------------------------------------------------------- called while loading


def make_span(document: Any, start: int, end: int, label: int, kb_id: int, span_id: int) -> Any:
    span = importlib.import_module("spacy.tokens.span").Span
    return span(document, start, end, label=label, kb_id=kb_id, span_id=span_id)
