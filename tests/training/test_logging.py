import io
import json

import pytest

from paircaps.errors import TrainingError
from paircaps.training.logging import MetricsFile, ProgressDisplay, TensorBoardEvents, TimingFile
from paircaps.training.run_folder import RunFolder


def test_rows_after_the_checkpoint_are_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first = MetricsFile(RunFolder(tmp_path), 0)
    first.add({"step": 1})
    length = first.length
    first.add({"step": 2})
    first.close()
    with path.open("ab") as file:
        file.write(b'{"step": 3')  # killed in the middle of a row
    again = MetricsFile(RunFolder(tmp_path), length)
    again.add({"step": 2})
    again.close()
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    with pytest.raises(TrainingError, match=r"has 24 bytes, 99 when the checkpoint was written"):
        MetricsFile(RunFolder(tmp_path), 99)


def test_timings_carry_the_time(tmp_path):
    timing = TimingFile(tmp_path / "timing.jsonl")
    timing.add({"step": 3})
    timing.close()
    assert json.loads((tmp_path / "timing.jsonl").read_text()).keys() == {"time", "step"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_in_a_terminal():
    stream = Terminal()
    display = ProgressDisplay(10, 4, 32, quiet=False, stream=stream)
    display.advance_bar(0.5, 0.75)
    display.print_step(5, 0.5, 0.75)
    display.print_line("a line")
    display.close()
    text = stream.getvalue()
    assert "5/10" in text
    assert "loss 0.500, accuracy 75.0 %" in text
    assert "images/s" in text
    assert "a line" in text
    assert "step 5/10  loss" not in text  # the bar says it


def test_plain_lines_elsewhere():
    stream = io.StringIO()
    display = ProgressDisplay(10, 4, 32, quiet=False, stream=stream)
    display.advance_bar(0.5, 0.75)
    display.print_step(5, 0.5, 0.75)
    display.close()
    line = stream.getvalue()
    assert line.startswith("step 5/10  loss 0.5000  accuracy 75.00 %")
    assert line.endswith("left\n")
    assert "\r" not in line


def test_quiet():
    stream = Terminal()
    display = ProgressDisplay(10, 0, 32, quiet=True, stream=stream)
    display.advance_bar(0.5, 0.5)
    display.print_step(1, 0.5, 0.5)
    display.print_line("a line")
    display.close()
    assert stream.getvalue() == ""


def test_no_standard_error_at_all(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr", None)  # as under `2>&-`
    display = ProgressDisplay(10, 0, 32, quiet=False)
    display.advance_bar(0.5, 0.5)
    display.print_line("a line")
    display.close()
    assert capsys.readouterr().out == ""  # where print(file=None) would have put it


def test_events_are_what_tensorboard_reads(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = TensorBoardEvents(tmp_path, 0)
    events.add("step", 3, {"loss": 0.5, "kind": "step"})
    events.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert read.Tags()["scalars"] == ["step/loss"]
    assert [(event.step, event.value) for event in read.Scalars("step/loss")] == [(3, 0.5)]
    TensorBoardEvents(None, 0).add("step", 3, {"loss": 0.5})
