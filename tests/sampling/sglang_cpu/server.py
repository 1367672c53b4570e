"""Starts the stock SGLang server on a machine without an accelerator; SGLang itself is untouched.

Two names that it imports and never calls on this path are missing there:

* torchvision's wheel is a CUDA build; beside a CPU torch its operators do not load, and its import
  then fails on ``operator torchvision::nms does not exist``: the two operators are declared;
* without an accelerator RotaryEmbedding imports ``vllm._custom_ops.rotary_embedding`` and then
  takes its native PyTorch path: it gets that name.

The scheduler and the detokenizer are spawned; multiprocessing runs this file again in each.
"""

import importlib.machinery
import importlib.util
import os
import runpy
import sys

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "0")  # 1 needs a build of sgl_kernel not on PyPI

import torch

_LIBRARY = torch.library.Library("torchvision", "DEF")
for _operator in ("nms", "qnms"):
    _LIBRARY.define(f"{_operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _absent(*args, **kwargs):
    raise NotImplementedError("no accelerator kernel here")


if importlib.util.find_spec("vllm") is None:
    for _name in ("vllm", "vllm._custom_ops"):
        _spec = importlib.machinery.ModuleSpec(_name, None, is_package=_name == "vllm")
        sys.modules[_name] = importlib.util.module_from_spec(_spec)
    sys.modules["vllm"]._custom_ops = sys.modules["vllm._custom_ops"]
    sys.modules["vllm._custom_ops"].rotary_embedding = _absent

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=False)
