"""Starts a kernel under limits. It is run by its path, inside the sandbox, as

python -I launcher.py '{"RLIMIT_FSIZE": 1000000}' -f CONNECTION_FILE
"""

import json
import resource
import sys

if __name__ == "__main__":
    limits = json.loads(sys.argv.pop(1))
    for name, most in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (most, most))

    sys.modules["debugpy"] = None  # type: ignore[assignment]  # no debugger: it starts sooner

    from ipykernel import kernelapp

    kernelapp.launch_new_instance()
