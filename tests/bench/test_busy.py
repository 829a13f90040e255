"""A short training beside busy processes."""

import os

from paircaps.bench import busy


def test_every_case_is_timed_quiet_and_busy(monkeypatch):
    seen = []

    def fake_train(words, variables):
        running = len(list(children()))
        seen.append((words, dict(variables), running))
        return 4.0 if running else 2.0

    monkeypatch.setattr(busy, "_train", fake_train)
    monkeypatch.setattr(busy, "allowed_cores", lambda: 2)
    result = busy.bench_busy(repeats=2)
    assert len(seen) == 2 * 2 * len(busy.CASES)
    assert {running for _, _, running in seen} == {0, 2}
    assert all((row["quiet"], row["busy"], row["ratio"]) == (2.0, 4.0, 2.0) for row in result["rows"])
    assert not list(children()), "busy processes end with the measurement"
    assert "| as it comes: free cores, bounded spinning | 2.0 | 4.0 | 2.0 | 3 |" in busy.as_markdown(result)


def test_a_training_really_runs_without_the_settings_of_whoever_measures(monkeypatch):
    monkeypatch.setattr(busy, "TRAINING", ("train", "glyphs", "--train.steps", "1", "--data.limit", "40", "--quiet"))
    monkeypatch.setenv("OMP_WAIT_POLICY", "nonsense")
    assert busy._train(("--run.threads", "1"), {}) > 0


def children():
    """Processes of this one that run the busy loop."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat") as stat, open(f"/proc/{entry}/cmdline") as command:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
                if entry.isdigit() and parent == os.getpid() and "while True: pass" in command.read():
                    yield int(entry)
        except (OSError, ValueError):
            continue
