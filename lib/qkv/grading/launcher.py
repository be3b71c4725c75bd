"""Starts a kernel under limits. It is run by its path, inside the sandbox, as

python -I launcher.py '{"RLIMIT_FSIZE": 1000000}' '["/tmp"]' -f CONNECTION_FILE

The second list names the folders in which files may be made; it is empty without a sandbox.
"""

import importlib
import json
import resource
import sys
from types import ModuleType
from typing import Any


class Later(ModuleType):
    """A module that is loaded when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


if __name__ == "__main__":
    limits, folders = json.loads(sys.argv.pop(1)), json.loads(sys.argv.pop(1))
    for name, most in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (most, most))
    if folders:
        from qkv.grading.confine import confine

        confine(folders)

    # It starts sooner without a debugger, and PyTorch without what it needs for tensors that have
    # a shape and no numbers, a third of its import.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    meta = "torch._meta_registrations"
    sys.modules[meta] = Later(meta)

    from ipykernel import kernelapp

    kernelapp.launch_new_instance()
