"""Pictures and the page that shows them."""

import re

import numpy as np
import torch

from pullback.thermal import report


def test_a_report_shows_its_numbers_and_its_pictures(tmp_path):
    times = np.linspace(0.0, 2.0, 21)
    power = torch.full((20,), 100.0, requires_grad=True)
    lit = np.arange(20) < 15
    warm = torch.rand(21, 2) * 500.0 + 300.0
    pictures = {
        "power": report.plot_power(tmp_path / "power.png", times, power, target=0.9 * power, start=power, on=lit,
                                   bounds=(0.0, 200.0)),
        "histories": report.plot_histories(tmp_path / "histories.png", times, warm, ["top", "bottom"], target=warm,
                                           start=warm, levels={"solidus": 700.0}, band=(400.0, 500.0)),
        "loss": report.plot_loss(tmp_path / "loss.png", [3.0, 2.0, 0.1], bar=0.2),
        "front": report.plot_lines(tmp_path / "front.png", {"a": ([1, 2], [3, 4])}, "x", "y", marker="o", log=True),
    }  # fmt: skip
    vtk = tmp_path / "series.pvd"
    page = report.write_report(tmp_path, "A part", {"loss": 0.123456789, "steps": 20}, pictures, text="It was printed.",
                               files={"temperatures": vtk})  # fmt: skip
    text = page.read_text(encoding="utf-8")
    assert page == tmp_path / "report.md"
    assert "| loss | 0.12346 |" in text
    assert "| steps | 20 |" in text
    assert "It was printed." in text
    assert "[temperatures](series.pvd)" in text
    shown = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert shown == ["power.png", "histories.png", "loss.png", "front.png"]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in shown)
