"""DeepSpeed without a GPU: its ranks talk through torch's gloo, and nothing is compiled on the way."""

import importlib.util
import os

_COMPILED_COLLECTIVES = "deepspeed_shm_comm"


def require_deepspeed() -> None:
    """ValueError where the package is missing (it is a dependency on Linux only)."""
    if importlib.util.find_spec("deepspeed") is None:
        raise ValueError("train.deepspeed is given, but the package deepspeed is not installed (it needs Linux)")


def stay_on_cpu() -> None:
    """Make DeepSpeed use the CPU and gloo; call before anything asks it for its accelerator.

    Left alone it builds its shared-memory collectives with the C++ compiler at the first start: minutes on a small
    machine, an error where there is no compiler, and a lock that blocks every later start if the build is cut short.
    """
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__[_COMPILED_COLLECTIVES] = False
