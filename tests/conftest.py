"""What all tests share: tests marked `gpu` skip themselves where there is no CUDA device, and Ctrl-C is heard."""

import signal

import pytest
import torch

# a shell starts what runs in its background with Ctrl-C ignored, and tests send themselves one
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
