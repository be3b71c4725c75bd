"""What all tests share: hypothesis without time limits, and GPU tests only where there is one."""

import hypothesis
import pytest

# A busy machine is slow now and then: that is no fault of the code under test.
# The same code draws the same examples on each run, here and in CI.
hypothesis.settings.register_profile("course", deadline=None, derandomize=True)
hypothesis.settings.load_profile("course")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not (torch.cuda.is_available() or torch.backends.mps.is_available()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))
