"""The README's Python blocks run, in order, in one namespace, as a newcomer would type them."""

import re
from pathlib import Path

import torch

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_blocks_run_and_the_mass_is_learned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    text = README.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= 7
    namespace: dict = {}
    for block in blocks:
        # blank lines in front, so that an error names the README's own line
        source = "\n" * text[: block.start(1)].count("\n") + block[1]
        exec(compile(source, str(README), "exec"), namespace)
    learned, true = (namespace[name].get_link_param("panda_link5", "mass") for name in ("model", "robot"))
    torch.testing.assert_close(learned, true, rtol=1e-2, atol=0.0)
    assert bool(namespace["result"].reached.all())
    assert Path("out/panda_learned.urdf").is_file()


def test_the_files_it_links_to_exist():
    for link in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / link).exists(), link
