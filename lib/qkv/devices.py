"""Where to compute."""

import torch


def device(name: torch.device | str | None = None) -> torch.device:
    """The device of that name; for None the fastest there is: CUDA, else MPS, else the CPU.

    Errors:
        ValueError: the named device does not exist or does not work here, or is "meta",
            where tensors have a shape and no numbers
    """
    if name is None:
        if torch.cuda.is_available():
            name = "cuda"
        else:
            name = "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        found = torch.empty(0, device=name).device
        if found.type == "meta":
            raise RuntimeError("its tensors have a shape and no numbers")
        return found
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"device {name!r} cannot be used here ({str(error).splitlines()[0]}); "
            f"device=None takes the fastest one that can"
        ) from None
