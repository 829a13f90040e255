import pytest

from paircaps.cli import main


@pytest.fixture
def run(capsys):
    """Run a command in this process: (exit code, output, errors)."""

    def run(*words):
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run
