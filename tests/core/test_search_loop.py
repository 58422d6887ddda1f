"""The search loop: why it ends, what Ctrl-C and errors leave, and which checkpoints it refuses."""

import os
import pickle
import signal

import pytest
import torch
from rich.console import Console

from pullback.core.errors import PullbackError
from pullback.core.interrupt import gentle_interrupt
from pullback.core.search_loop import FORMAT, Checkpoint, SearchLoop, clock, has_stalled


class Counter:
    """A search that counts to `last`; `at` maps a number to what happens when it is reached."""

    def __init__(self, last=None, at=None):
        self.values, self.last, self.at = [], last, at or {}

    @property
    def done(self):
        return len(self.values)

    @property
    def ended(self):
        return "counted" if self.done == self.last else ""

    def iterate(self):
        number = self.done + 1
        self.at.get(number, lambda: None)()
        self.values.append(number)

    def summary(self):
        return f"at {self.done}"

    def state(self):
        return {"values": list(self.values), "tensor": torch.arange(3)}

    def load_state(self, state):
        self.values = state["values"]


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_it_ends_for_the_reason_that_the_search_the_limit_or_the_user_gives():
    quiet = SearchLoop(5, progress=False)
    assert quiet.run(Counter()) == "iterations"
    assert quiet.run(Counter(last=3)) == "counted"
    # an own reason counts before the limit
    assert quiet.run(Counter(last=5)) == "counted"
    search = Counter(at={2: ctrl_c})
    assert quiet.run(search) == "interrupted"
    assert search.values == [1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    done = Counter()
    done.values = [1, 2, 3, 4, 5]
    assert quiet.run(done) == "iterations"
    assert done.done == 5


def test_the_bar_shows_label_summary_and_time_left_and_an_interruption_is_reported(tmp_path, capsys):
    search = Counter(at={2: ctrl_c})
    SearchLoop(9, "counting", console=Console(width=200)).run(search, Checkpoint(search, tmp_path / "c.pt", {}))
    text = capsys.readouterr().out
    for part in ("counting", "2/9", "at 2", "left", "stopped after 2 iterations", "c.pt"):
        assert part in text, part


def test_an_interrupted_search_resumes_where_it_was(tmp_path):
    file = tmp_path / "new" / "counter.pt"
    search = Counter(at={3: ctrl_c})
    SearchLoop(6, progress=False, save_every=1e9).run(search, Checkpoint(search, file, {"seed": 1}))
    again = Counter()
    checkpoint = Checkpoint(again, file, {"seed": 1})
    checkpoint.resume()
    assert again.values == [1, 2, 3]
    assert SearchLoop(6, progress=False).run(again, checkpoint) == "iterations"
    assert again.values == [1, 2, 3, 4, 5, 6]
    assert [each.name for each in file.parent.iterdir()] == ["counter.pt"]


def test_an_error_saves_the_iterations_that_were_finished(tmp_path):
    def fail():
        raise RuntimeError("lost")

    search = Counter(at={4: fail})
    with pytest.raises(RuntimeError, match="lost"):
        SearchLoop(9, progress=False, save_every=1e9).run(search, Checkpoint(search, tmp_path / "c.pt", {}))
    again = Counter()
    Checkpoint(again, tmp_path / "c.pt", {}).resume()
    assert again.values == [1, 2, 3]


def test_a_crash_while_writing_leaves_the_file_before(tmp_path, monkeypatch):
    replace, calls = os.replace, []

    def crash(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise OSError("disk full")
        replace(*arguments)

    monkeypatch.setattr(os, "replace", crash)
    search = Counter()
    with pytest.raises(OSError, match="disk full"):
        SearchLoop(9, progress=False).run(search, Checkpoint(search, tmp_path / "c.pt", {}))
    again = Counter()
    Checkpoint(again, tmp_path / "c.pt", {}).resume()
    assert again.values == [1, 2]


class Trap:
    """Makes a directory when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_files_that_cannot_be_resumed_from_are_named_with_what_to_do(tmp_path):
    file = tmp_path / "c.pt"
    checkpoint = Checkpoint(Counter(), file, {"seed": 1}, "start over")
    state = Counter().state()

    def refused(match):
        with pytest.raises(PullbackError, match=rf"c\.pt {match}.*; start over$"):
            checkpoint.resume()

    for content in (b"", b"text", pickle.dumps(Trap(tmp_path / "ran"), protocol=2)):
        file.write_bytes(content)
        refused(r"cannot be read as a checkpoint \(")
    torch.save({"format": FORMAT, "settings": {"seed": "1"}, "state": Trap(tmp_path / "ran")}, file)
    refused(r"cannot be read as a checkpoint \(")
    assert not (tmp_path / "ran").exists()
    torch.save([1, 2], file)
    refused(r"is not a checkpoint that this version of Pullback reads \(its format is 'list'")
    torch.save({"fingerprint": {}, "record": {}, "method": {}}, file)
    refused(r"is not a checkpoint that this version of Pullback reads \(its format is None")
    torch.save({"format": FORMAT, "settings": {"seed": "2"}, "state": state}, file)
    refused("was written with seed = 2, now it is 1")
    torch.save({"format": FORMAT, "settings": {"seed": "1", "size": "3"}, "state": state}, file)
    refused("was written with size = 3, now it is not given")
    torch.save({"format": FORMAT, "settings": {"seed": "1"}, "state": {}}, file)
    refused("cannot be resumed from: 'values'")


def test_a_search_inside_another_interrupts_both():
    with gentle_interrupt() as outer:
        with gentle_interrupt() as inner:
            ctrl_c()
            assert inner
        assert outer
    with gentle_interrupt() as outer:
        with gentle_interrupt():
            pass
        assert not outer


def test_a_stalled_search_has_not_improved_by_the_tolerance():
    assert not has_stalled([1.0, 1.0], 2, 0.0)
    assert has_stalled([1.0, 1.0, 1.0], 2, 0.0)
    assert not has_stalled([1.0, 1.0, 0.9], 2, 0.05)
    assert has_stalled([1.0, 1.0, 0.9], 2, 0.2)


def test_a_clock_shows_hours():
    assert clock(3723.4) == "1:02:03"
