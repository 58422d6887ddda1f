"""The Python blocks of README, start page and tutorial run, in order, as a newcomer would type them."""

import re
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
README, START, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "start.md", ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_blocks(page: Path, least: int) -> dict:
    """Run the blocks of a page and return what they defined."""
    torch.manual_seed(0)
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= least
    namespace: dict = {}
    for block in blocks:
        # blank lines in front, so that an error names the page's own line
        source = "\n" * text[: block.start(1)].count("\n") + block[1]
        exec(compile(source, str(page), "exec"), namespace)
    return namespace


def test_the_front_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run_blocks(README, 1)
    # v² / (2 mu g), and its derivative
    mu = found["friction"].detach()
    torch.testing.assert_close(found["motion"].q[-1, :, 0].detach(), 1.0 / (2 * 9.81 * mu), rtol=0.02, atol=0.0)
    torch.testing.assert_close(found["friction"].grad, -1.0 / (2 * 9.81 * mu**2), rtol=0.02, atol=0.0)
    assert (tmp_path / "out" / "slide.html").is_file()


def test_the_start_page_runs():
    assert run_blocks(START, 1)["q"].grad.shape == (1000, 7)


def test_the_tutorial_runs_and_the_mass_is_learned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = run_blocks(TUTORIAL, 7)
    learned, true = (namespace[name].get_link_param("panda_link5", "mass") for name in ("model", "robot"))
    torch.testing.assert_close(learned, true, rtol=1e-2, atol=0.0)
    assert bool(namespace["result"].reached.all())
    assert Path("out/panda_learned.urdf").is_file()


def test_the_files_it_links_to_exist():
    for link in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / link).exists(), link
