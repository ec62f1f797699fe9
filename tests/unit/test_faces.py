"""What packages export is what users think it is: never a module of the same name, whatever was
imported before.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType
from typing import Any, get_origin

import pytest

from prill.lazy import homes
from tests.unit.test_structure import MODULES, ROOT

FACES = sorted(
    name
    for name, path in MODULES.items()
    if path.name == "__init__.py" and "lazily(" in path.read_text("utf-8")
)
EVERY = [(face, name) for face in FACES for name in homes(face)]


@pytest.fixture(scope="module", autouse=True)
def all_modules() -> None:
    """Each import of a module puts it into its package, where it takes the place of what is loaded
    lazily.
    """
    for face in FACES:
        for module in pkgutil.iter_modules(importlib.import_module(face).__path__):
            if module.name != "__main__":
                importlib.import_module(f"{face}.{module.name}")


def test_what_is_exported_can_be_used() -> None:
    for face, name in EVERY:
        value: Any = getattr(importlib.import_module(face), name)
        assert not isinstance(value, ModuleType), f"{face}.{name} is a module"
        if not name.isupper():
            assert callable(value) or get_origin(value) is not None, f"{face}.{name}"


@pytest.mark.parametrize("face", FACES)
def test_a_face_lists_what_it_loads(face: str) -> None:
    package = importlib.import_module(face)
    lazy = set(homes(face))
    assert lazy <= set(package.__all__) and set(package.__all__) - lazy <= vars(package).keys()
    assert set(package.__all__) <= set(dir(package))
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__), (
        "a package or module has the name of what is exported"
    )


def test_a_function_stays_one_after_its_module_is_imported() -> None:
    program = (
        "import prill.evaluators.fitted.calibration_fit, prill.captioner.registry\n"
        "from prill.evaluators.agreement import calibrate\n"
        "import prill\n"
        "print(calibrate.__name__, prill.make_captioner('text').name, callable(prill.captioner))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[0] == "calibrate"
    assert done.stdout.split()[-1] == "False"
