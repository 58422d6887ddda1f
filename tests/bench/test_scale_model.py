"""The table of docs/scale.md is what the model of scale computes."""

from pathlib import Path

import pytest

from bench.scale_model import Learning, Part

DOCS = Path(__file__).parents[2] / "docs" / "scale.md"


def test_the_table_is_what_the_model_says():
    text = DOCS.read_text().split("## A model of scale")[1]
    lines = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|")][2:]
    rows = [[float(cell.split()[0].replace(",", "")) for cell in row] for row in lines]
    assert [row[0] for row in rows] == [1, 8, 64, 256, 1024]
    learning, parts = Learning(), [Part(elements) for elements in (1e8, 1e9)]
    alone = [each.seconds(1)[0] for each in (learning, *parts)]
    for ranks, *cells in rows:
        seconds = [each.seconds(int(ranks))[0] for each in (learning, *parts)]
        rate = ranks * learning.worlds * learning.horizon / seconds[0]
        expected = [rate / 1e6, 100 * alone[0] / seconds[0]]
        for one, here in zip(alone[1:], seconds[1:]):
            expected += [1e3 * here, 100 * one / ranks / here]
        assert cells[::2] == pytest.approx(expected[::2], rel=0.03)
        assert cells[1::2] == pytest.approx(expected[1::2], abs=0.51), "in per cent"
