"""Another thread may import a module while the modules are looked at."""

from __future__ import annotations

import sys
import types

from ckpt.image.modules.references import References


class _Census:
    """Says that one module is new, and lets another one appear meanwhile."""

    def changed(self, modules: dict[str, types.ModuleType]) -> list[str]:
        modules["appears_first"] = types.ModuleType("appears_first")
        modules["appears_meanwhile"] = types.ModuleType("appears_meanwhile")
        return ["appears_first"]


def test_a_module_imported_by_another_thread_meanwhile_is_left_for_the_next_time() -> None:
    references = References()
    references.refresh()
    true_module_states, references._module_states = references._module_states, _Census()  # type: ignore[assignment]
    try:
        references.refresh()  # a KeyError in ckpt.enable() of a rank whose helper thread imported a codec
        assert "appears_first" in references.by_value and "appears_meanwhile" not in references.by_value
        references._module_states = true_module_states
        references.refresh()
        assert "appears_meanwhile" in references.by_value
    finally:
        sys.modules.pop("appears_first", None)
        sys.modules.pop("appears_meanwhile", None)
