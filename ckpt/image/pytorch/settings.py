"""Settings of torch that are in C++ or in variables of its modules: switches, automatic mixed precision, counters, tables.

Those that belong to one thread (gradients, mixed precision, modes) are saved of the main thread only.

Not here: the generator of random numbers.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

from ckpt.image.errors import Unpicklable

__all__ = ["apply", "note", "prepare_optimizers", "reason_now"]

_SWITCHES = {
    "get_default_dtype": "set_default_dtype",
    "get_num_threads": "set_num_threads",
    "get_float32_matmul_precision": "set_float32_matmul_precision",
    "is_grad_enabled": "set_grad_enabled",
    "is_warn_always_enabled": "set_warn_always",
    "is_autocast_cache_enabled": "set_autocast_cache_enabled",
    "_C._get_deterministic_fill_uninitialized_memory": "_C._set_deterministic_fill_uninitialized_memory",
    "_C._is_multithreading_enabled": "_C._set_multithreading_enabled",
    "_C._is_view_replay_enabled": "_C._set_view_replay_enabled",
    "_C._get_mkldnn_enabled": "_C._set_mkldnn_enabled",
    "_C._get_mkldnn_deterministic": "_C._set_mkldnn_deterministic",
    "_C._get_nnpack_enabled": "_C._set_nnpack_enabled",
    "_C._get_cudnn_enabled": "_C._set_cudnn_enabled",
    "_C._get_cudnn_benchmark": "_C._set_cudnn_benchmark",
    "_C._get_cudnn_deterministic": "_C._set_cudnn_deterministic",
    "_C._get_cudnn_allow_tf32": "_C._set_cudnn_allow_tf32",
    "_C._get_cublas_allow_tf32": "_C._set_cublas_allow_tf32",
    "_C._get_cublas_allow_fp16_accumulation": "_C._set_cublas_allow_fp16_accumulation",
    "_C._get_cpu_allow_fp16_reduced_precision_reduction": "_C._set_cpu_allow_fp16_reduced_precision_reduction",
    "_C._get_flash_sdp_enabled": "_C._set_sdp_use_flash",
    "_C._get_math_sdp_enabled": "_C._set_sdp_use_math",
    "_C._get_mem_efficient_sdp_enabled": "_C._set_sdp_use_mem_efficient",
    "_C._get_cudnn_sdp_enabled": "_C._set_sdp_use_cudnn",
    "multiprocessing.get_sharing_strategy": "multiprocessing.set_sharing_strategy",
}
"""Function that reads → function that sets, below ``torch``. What a version lacks is left out."""

_REDUCTIONS = ("fp16", "bf16")
"""Types of numbers whose partial sums cuBLAS may round; what says so takes one argument or two, by version."""
_PRECISIONS = (
    *(("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn")),
    *(("mkldnn", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn")),
)
"""Of float32 (``torch.backends.….fp32_precision``). A program that sets these may have no other answer to the older
questions than an error, and they are not asked."""

_VARIABLES = (
    ("torch.utils.hooks", "RemovableHandle.next_id"),  # two hooks must not get one number
    ("torch.distributions.distribution", "Distribution._validate_args"),
    ("torch.utils.data._utils.signal_handling", "_SIGCHLD_handler_set"),
)
_TABLES = (
    ("torch.nn.modules.module", "_global_"),
    ("torch.optim.optimizer", "_global_"),
    ("torch.distributions.kl", "_KL_"),
)
"""Module, and how the names of its dictionaries begin that programs add to."""

_AUTOCAST_DEVICES = ("cpu", "cuda")


def note(torch: Any) -> dict[str, Any]:
    """Raises Unpicklable: what torch has on its stacks cannot be read."""
    reason = reason_now(torch)
    if reason is not None:
        raise Unpicklable("the state of torch", reason)
    return {
        "switches": dict(_noted_switches(torch)),
        "precisions": _precisions(torch),
        "reductions": _reductions(torch),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "autocast": {
            device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in _AUTOCAST_DEVICES
        },
        "nesting": _autocast_nesting(torch),
        "modes": _modes(torch),
        "device": getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None),
        "printed": dict(vars(torch._tensor_str.PRINT_OPTS)),
        "variables": {(module, path): _at(sys.modules[module], path) for module, path in _variables()},
        "added": {(module, name): dict(table) for module, name, table in _tables()},
    }


def apply(torch: Any, saved: dict[str, Any]) -> None:
    for name, value in saved["switches"].items():
        if name in _SWITCHES and _at(torch, name)() != value:
            _at(torch, _SWITCHES[name])(value)
    for place, value in saved["precisions"].items():
        if torch._C._get_fp32_precision_getter(*place) != value:
            torch._C._set_fp32_precision_setter(*place, value)
    for kind, value in saved["reductions"].items():
        if _reductions(torch).get(kind, value) != value:
            getattr(torch._C, f"_set_cublas_allow_{kind}_reduced_precision_reduction")(*value)
    mode, warns = saved["deterministic"]
    torch.use_deterministic_algorithms(mode, warn_only=warns)
    if saved["anomaly"] != (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()):
        torch.autograd.set_detect_anomaly(*saved["anomaly"])
    for device, (is_enabled, dtype) in saved["autocast"].items():
        torch.set_autocast_enabled(device, is_enabled)
        torch.set_autocast_dtype(device, dtype)
    for _ in range(_autocast_nesting(torch), saved["nesting"]):
        torch.autocast_increment_nesting()
    vars(torch._tensor_str.PRINT_OPTS).update(saved["printed"])
    for (module, path), value in saved["variables"].items():
        owner, _, name = path.rpartition(".")
        setattr(_at(sys.modules[module], owner) if owner else sys.modules[module], name, value)
    for (module, name), content in saved["added"].items():
        table = vars(sys.modules[module])[name]
        table.clear()
        table.update(content)
    for mode in saved["modes"]:
        torch._C._push_on_torch_function_stack(mode)
    if saved["device"] is not None:
        torch._GLOBAL_DEVICE_CONTEXT.device_context = saved["device"]
        torch.utils._device.CURRENT_DEVICE = saved["device"].device


def prepare_optimizers(torch: Any) -> None:
    """Do to the classes of optimizers what making the first optimizer of a class does: a new process makes none, and its
    classes must be what they were."""
    base = torch.optim.Optimizer
    for cls in base.__subclasses__():
        step = vars(cls).get("step")
        if step is not None and hasattr(base, "profile_hook_step") and not getattr(step, "hooked", False):
            cls.step = base.profile_hook_step(step)
            cls.step.hooked = True


def reason_now(torch: Any) -> str | None:
    """Why the state of torch's stacks cannot be read; ``None``: there is nothing on them. Attributes are looked up, since
    torch may be being imported.

    Within ``torch.autocast`` weights are cast once and kept; the copies cannot be read. They can be made again while no
    weight changes: where gradients are off."""
    c, autograd = torch._C, torch._C._autograd
    if _call(c, "_current_graph_task_id", -1) != -1:
        return "gradients are being calculated (backward)"
    if _call(c, "_are_functorch_transforms_active", False):
        return "a transformation of a function runs (torch.func)"
    if not _call(c, "_is_torch_function_enabled", True) or _call(c, "_is_torch_function_all_disabled", False):
        return "torch has switched functions of subclasses of Tensor off for a moment"
    if _call(c, "_len_torch_dispatch_stack", 0):
        return "a TorchDispatchMode is in use, which no image can hold"
    if _call(autograd, "_profiler_enabled", False):
        return "a profiler of torch is in use, which no image can hold"
    if _call(c, "_get_tracing_state", None) is not None:
        return "torch traces a function"
    if getattr(autograd, "_top_saved_tensors_default_hooks", lambda _: None)(True) is not None:
        return "saved_tensors_hooks of torch are in use, which no image can hold"
    forward = sys.modules.get("torch.autograd.forward_ad")
    if getattr(forward, "_current_level", -1) >= 0:
        return "gradients are calculated forward (forward_ad), which no image can hold"
    if _call(c, "is_inference_mode_enabled", False):
        return "torch.inference_mode() is in use, which no image can hold: torch.no_grad() does the same"
    is_casting = _call(c, "_is_any_autocast_enabled", False) and _call(c, "is_autocast_cache_enabled", False)
    if is_casting and _call(c, "is_grad_enabled", False):
        return "weights that torch.autocast has cast are in use, which no image can hold (cache_enabled=False has none)"
    return None


def _call(owner: Any, name: str, default: Any) -> Any:
    function = getattr(owner, name, None)
    return default if function is None else function()


def _at(owner: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), owner)


def _switches(torch: Any) -> Iterator[str]:
    for name, setter in _SWITCHES.items():
        try:
            _at(torch, name), _at(torch, setter)
        except AttributeError:
            continue
        yield name


def _noted_switches(torch: Any) -> Iterator[tuple[str, Any]]:
    for name in _switches(torch):
        try:
            yield name, _at(torch, name)()
        except RuntimeError:  # see _PRECISIONS
            continue


def _precisions(torch: Any) -> dict[tuple[str, str], str]:
    get = getattr(torch._C, "_get_fp32_precision_getter", None)
    return {} if get is None else {place: get(*place) for place in _PRECISIONS}


def _reductions(torch: Any) -> dict[str, tuple[Any, ...]]:
    found = {}
    for kind in _REDUCTIONS:
        get = getattr(torch._C, f"_get_cublas_allow_{kind}_reduced_precision_reduction", None)
        if get is not None:
            value = get()
            found[kind] = value if isinstance(value, tuple) else (value,)
    return found


def _variables() -> Iterator[tuple[str, str]]:
    return ((module, path) for module, path in _VARIABLES if module in sys.modules)


def _tables() -> Iterator[tuple[str, str, dict[Any, Any]]]:
    for module, beginning in _TABLES:
        for name, table in vars(sys.modules.get(module, sys)).items():
            if name.startswith(beginning) and isinstance(table, dict):
                yield module, name, table


def _autocast_nesting(torch: Any) -> int:
    depth: int = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


def _modes(torch: Any) -> list[Any]:
    """The TorchFunctionModes in use, the outermost first: ``torch.device`` as a context, and those of the program."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
