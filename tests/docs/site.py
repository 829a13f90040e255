"""The extensions and the settings of the documentation site, for tests: nothing is built."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
EXTENSIONS = ROOT / "docs" / "extensions"


def load_extension(name: str) -> ModuleType:
    """Module of docs/extensions, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", EXTENSIONS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def setting(name: str) -> object:
    """A setting of docs/conf.py that is a literal."""
    for node in ast.parse((ROOT / "docs" / "conf.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise KeyError(name)
