"""Starts a kernel under limits. It is run by its path, inside the sandbox, as

python -I launcher.py '{"RLIMIT_FSIZE": 1000000}' '["/tmp"]' -f CONNECTION_FILE

The second list names the folders in which files may be made; it is empty without a sandbox.
"""

import gc
import json
import resource
import sys

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

    # It starts sooner without a debugger, and the imports without garbage collection, which the
    # notebook's first cell turns on.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    gc.disable()

    from ipykernel import kernelapp

    kernelapp.launch_new_instance()
