"""Two floors, arrows that point one way, and a library that needs torch, numpy and safetensors alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import paircaps

SOURCE = Path(paircaps.__file__).parent
# each room may import from the rooms before it
GROUND_FLOOR = [
    *("errors", "_utils", "pretrained", "model_card", "pictures", "functional", "routing", "votes", "layers"),
    *("models", "testing", "network", "model_files", "hub", "losses"),
]
UPPER_FLOOR = ["data", "training", "explain", "shipping", "serve", "export", "bench", "paper", "cli", "__main__"]
ORDER = GROUND_FLOOR + UPPER_FLOOR
LIBRARIES = {"torch", "numpy", "safetensors"}
# import matplotlib when a figure is drawn, which only the upper floor does, and Pillow when a picture is given
WHEN_USED = {
    SOURCE / "_utils" / "figures.py": {"matplotlib"},
    SOURCE / "pictures.py": {"PIL"},
    SOURCE / "network.py": {"PIL"},
    SOURCE / "hub.py": {"huggingface_hub"},
    SOURCE / "votes" / "kernels" / "triton_code.py": {"triton"},
}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def room(module):
    return module.split(".")[1]


def room_of(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: a relative import, line {node.lineno}"
            names = [f"paircaps.{alias.name}" for alias in node.names] if node.module == "paircaps" else [node.module]
            yield from names
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_from_rooms_before_its_own(path):
    own = room_of(path)
    for module in imports(path):
        if module.startswith("paircaps."):
            assert ORDER.index(room(module)) <= ORDER.index(own), f"{path.name} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_ground_floor_imports_three_libraries(path):
    if room_of(path) not in GROUND_FLOOR:
        return
    foreign = {module.split(".")[0] for module in imports(path)} - {"paircaps", *sys.stdlib_module_names}
    assert foreign <= LIBRARIES | WHEN_USED.get(path, set()), f"{path.name} imports {foreign - LIBRARIES}"


def test_data_knows_no_model():
    for path in (SOURCE / "data").rglob("*.py"):
        rooms = {room(module) for module in imports(path) if module.startswith("paircaps.")}
        assert rooms <= {"errors", "_utils", "pictures", "data"}, f"{path.name} imports from {rooms}"


def test_no_routing_is_named_in_a_model():
    for path in (SOURCE / "models").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                assert "routing" not in ast.unparse(node), f"{path.name}: {ast.unparse(node)}"


def test_public_names_are_there():
    for name in paircaps.__all__:
        assert hasattr(paircaps, name)
    assert {*paircaps.__all__, "__version__"} <= set(dir(paircaps))
    with pytest.raises(AttributeError, match="module 'paircaps' has no attribute 'capsnet'"):
        _ = paircaps.capsnet


def in_a_new_process(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_torch_is_loaded_when_something_is_asked_for():
    loaded = "'torch' in sys.modules"
    assert (
        in_a_new_process(f"import sys, paircaps; print({loaded}, bool(paircaps.CapsNet), {loaded})")
        == "False True True"
    )


@pytest.mark.parametrize(
    "first", ["paircaps.layers", "paircaps.testing", "paircaps.routing", "paircaps.votes", "paircaps.cli"]
)
def test_any_room_may_be_imported_first(first):
    assert in_a_new_process(f"import {first}; from paircaps import *; print(CapsuleLayer.__name__)") == "CapsuleLayer"


def test_a_room_is_there_without_being_imported():
    assert (
        in_a_new_process("import paircaps; print(paircaps.routing.list_routings is paircaps.list_routings)") == "True"
    )


def test_importing_the_library_imports_torch_and_numpy_alone():
    heavy = "'pytest', 'hypothesis', 'matplotlib', 'PIL', 'pooch', 'requests', 'scipy'"  # loaded when needed
    code = f"import sys; from paircaps import *; print([m for m in ({heavy}) if m in sys.modules])"
    assert in_a_new_process(code) == "[]"


def test_no_two_classes_have_one_name():
    places = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
