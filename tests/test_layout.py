"""Where the rooms are, what an import loads, and what public names promise."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator

import distkern
from distkern.estimators import ESTIMATORS

ROOT = Path(__file__).parents[1]
ROOMS = ("scheduler", "storage")
HEAVY = ("dask", "distributed", "zarr", "sklearn")
PUBLIC = [name for name in distkern.__all__ if name != "__version__"]


def fresh_interpreter(code: str) -> Any:
    """Run code in a new process, outside the checkout's root, and return the JSON it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- rooms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_linked_relatively(room: str) -> None:
    link = ROOT / "distkern" / room
    assert link.is_symlink()
    assert os.readlink(link) == f"../{room}"
    assert link.resolve() == ROOT / room
    assert (ROOT / room / "__init__.py").is_file()


def test_rooms_import_from_this_checkout() -> None:
    files = fresh_interpreter(
        """
        import importlib, json
        names = ["distkern", "distkern.scheduler", "distkern.storage", "distkern.estimators", "distkern.cli.main"]
        print(json.dumps({name: importlib.import_module(name).__file__ for name in names}))
        """
    )
    for name, file in files.items():
        assert Path(file).resolve().is_relative_to(ROOT), name
    assert Path(files["distkern.scheduler"]).resolve() == ROOT / "scheduler" / "__init__.py"
    assert Path(files["distkern.storage"]).resolve() == ROOT / "storage" / "__init__.py"


def room_of(module: str) -> str:
    """The room that a module of the library belongs to."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[:1] == ["distkern"] and parts[1:2] and parts[1] in ROOMS else parts[0]


@functools.cache
def imports_of(file: Path) -> list[tuple[str, int]]:
    """Every module that a file imports, by its absolute name, and the dots it was written with."""
    return [*found_imports(file)]


def found_imports(file: Path) -> Iterator[tuple[str, int]]:
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    package = parts[:-1] if parts[0] not in ROOMS else ["distkern", *parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield ".".join([*base, *filter(None, [node.module])]), node.level


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders or sorted(path.name for path in ROOT.iterdir() if path.is_dir()):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if not {".venv", "build"} & set(file.parts) and not any(parent.is_symlink() for parent in file.parents):
                yield file


@pytest.mark.slow
def test_nothing_imports_the_rooms_by_their_bare_names() -> None:
    for file in python_files():
        for name, _ in imports_of(file):
            assert name.split(".")[0] not in ROOMS, (file, name)


def test_imports_are_relative_inside_a_room_and_absolute_between_rooms() -> None:
    for file in python_files("distkern", *ROOMS):
        parts = file.relative_to(ROOT).parts
        own = f"distkern.{parts[0]}" if parts[0] in ROOMS else "distkern"
        for name, dots in imports_of(file):
            if name.split(".")[0] == "distkern":
                assert (dots > 0) == (room_of(name) == own), (file, name)


LIBRARY = ("distkern", *ROOMS)


def test_folders_and_modules_are_small() -> None:
    folders: dict[Path, int] = {}
    for file in python_files(*LIBRARY):
        assert len(file.read_text().splitlines()) <= 500, file
        if file.name != "__init__.py":
            folders[file.parent] = folders.get(file.parent, 0) + 1
    assert {folder: count for folder, count in folders.items() if count > 15} == {}


def defined_names(file: Path) -> Iterator[str]:
    """Public classes, type aliases and constants that a module defines; type variables mean nothing outside of it."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign) and not ast.unparse(node.value).startswith("TypeVar("):
            names = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            names = []
        yield from (name for name in names if name[0].isupper())


def test_a_name_has_one_meaning() -> None:
    places: dict[str, list[Path]] = {}
    for file in python_files(*LIBRARY):
        for name in defined_names(file):
            places.setdefault(name, []).append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


# --- imports ---------------------------------------------------------------------------------------------------------


def test_importing_distkern_loads_nothing_heavy() -> None:
    loaded = fresh_interpreter(
        """
        import json, sys
        import distkern
        dir(distkern)
        print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
        """
    )
    assert not set(HEAVY) & set(loaded)
    assert "numpy" not in loaded


def test_mathematics_loads_no_room() -> None:
    loaded = fresh_interpreter(
        """
        import json, sys
        import importlib, pkgutil
        import distkern
        rooms = {"cli", "estimators", "report", "scheduler", "storage", "__main__"}
        for module in pkgutil.iter_modules(distkern.__path__):
            if module.name not in rooms:
                importlib.import_module("distkern." + module.name)
        print(json.dumps(sorted(sys.modules)))
        """
    )
    assert not set(HEAVY) & set(loaded)
    assert not {f"distkern.{room}" for room in (*ROOMS, "estimators", "cli")} & set(loaded)


@pytest.mark.slow
def test_a_serial_training_imports_no_dask() -> None:
    loaded = fresh_interpreter(
        """
        import json, sys
        import numpy as np
        import distkern as dk
        X = np.random.default_rng(0).standard_normal((50, 2))
        for estimator in (dk.OROLSRegressor, dk.OROLSClassifier, dk.NPDRegressor, dk.NPDClassifier):
            model = estimator(max_centers=5).fit(X, (X[:, 0] > 0).astype(int))
            model.predict(X)
            model.truncate(2)
        dk.KRLSRegressor().fit(X, X[:, 0]).partial_fit(X, X[:, 0])
        linear = dk.FisherDiscriminant, dk.MSEClassifier, dk.WidrowHoffClassifier, dk.HoKashyapClassifier
        for estimator in (*linear, dk.LSSVMRegressor, dk.KernelFisherDiscriminant, dk.QRForwardClassifier):
            estimator().fit(X, (X[:, 0] > 0).astype(int)).predict(X)
        print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
        """
    )
    assert "dask" not in loaded
    assert "distributed" not in loaded


# --- public names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", distkern.__all__)
def test_every_public_name_resolves(name: str) -> None:
    value = getattr(distkern, name)
    assert value is getattr(distkern, name)
    assert name in dir(distkern)
    if isinstance(value, type):
        assert value.__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = distkern.no_such_name


def test_the_version_is_the_packages_version() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{distkern.__version__}"' in text


# --- docstrings ------------------------------------------------------------------------------------------------------


def sections(docstring: str) -> dict[str, list[str]]:
    """Cut a NumPy docstring into its sections; the text before the first is under ''."""
    found: dict[str, list[str]] = {"": []}
    current = ""
    lines = inspect.cleandoc(docstring).splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line and re.fullmatch(r"-{3,}", below) and len(line) == len(below):
            current = line
            found[current] = []
        elif not re.fullmatch(r"-{3,}", line):
            found[current].append(line)
    return found


def documented(entries: list[str]) -> list[str]:
    """Names of a Parameters section, which may share an entry."""
    names = []
    for line in entries:
        if line and not line.startswith(" "):
            names += [name.strip().lstrip("*") for name in line.split(" : ")[0].split(",")]
    return names


def entries(docstring: str) -> dict[str, str]:
    """Text of each entry of the Parameters section, by the names that share it."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in sections(docstring).get("Parameters", []):
        names = documented([line]) or names
        found |= {name: f"{found.get(name, '')}{line}\n" for name in names}
    return found


def accepted(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def callables() -> Iterator[tuple[str, Any]]:
    """Every public function, class and public method of a class that distkern itself defines."""
    for name in PUBLIC:
        value = getattr(distkern, name)
        yield name, value
        if isinstance(value, type):
            for attribute in dir(value):
                method = getattr(value, attribute)
                own = getattr(method, "__module__", "") or ""
                if not attribute.startswith("_") and inspect.isroutine(method) and own.startswith("distkern"):
                    yield f"{name}.{attribute}", method


CALLABLES = dict(callables())


def test_the_walk_finds_what_it_should() -> None:
    assert {"OROLSRegressor.fit", "NPDClassifier.predict_proba", "open_dataset", "Dataset.verify"} <= set(CALLABLES)
    assert len(CALLABLES) > 50


@pytest.mark.parametrize("name", CALLABLES)
def test_public_docstrings_have_a_summary_line(name: str) -> None:
    docstring = CALLABLES[name].__doc__
    assert docstring
    summary = inspect.cleandoc(docstring).splitlines()[0]
    assert summary.endswith(".")
    assert len(summary) <= 120


def has_documented_fields(value: Any) -> bool:
    """Whether a dataclass is documented field by field; estimators, whose fields are parameters, in a section."""
    return dataclasses.is_dataclass(value) and not issubclass(value, BaseEstimator)  # type: ignore[arg-type]


def has_parameters(name: str) -> bool:
    """Whether a callable takes parameters that its docstring must explain in a section."""
    value = CALLABLES[name]
    if isinstance(value, type):
        if has_documented_fields(value):
            return False  # See below.
        return value.__init__ is not object.__init__ and not issubclass(value, (str, distkern.DistkernError, Warning))
    # One line may explain one argument in running text.
    return len(accepted(value)) > 1


@pytest.mark.parametrize("name", [name for name in CALLABLES if has_parameters(name)])
def test_documented_parameters_are_those_of_the_signature(name: str) -> None:
    value = CALLABLES[name]
    found = sections(value.__doc__)
    if "Parameters" not in found:
        # An override may point to the base that explains it.
        assert "see `" in value.__doc__, f"{name} has no Parameters section"
        return
    names = documented(found["Parameters"])
    if dataclasses.is_dataclass(value):
        # Taken by keyword: the order is that of the bases, and the section has a better one.
        assert sorted(names) == sorted(accepted(value))
    else:
        assert names == accepted(value)


USED_MOST = r"\w+(Regressor|Classifier|Discriminant)\.(fit|predict|decision_function|predict_proba)"


@pytest.mark.parametrize(
    "name",
    [name for name in CALLABLES if re.fullmatch(USED_MOST, name)],
)
def test_the_methods_users_call_most_explain_their_arguments(name: str) -> None:
    found = sections(CALLABLES[name].__doc__)
    assert documented(found.get("Parameters", [])) == accepted(CALLABLES[name])
    assert "Returns" in found


@pytest.mark.parametrize("name", [n for n in PUBLIC if has_documented_fields(getattr(distkern, n))])
def test_every_field_of_a_public_dataclass_has_a_sentence(name: str) -> None:
    source = inspect.getsource(getattr(distkern, name))
    (body,) = [node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation):
            assert isinstance(after, ast.Expr), ast.unparse(node)
            assert isinstance(after.value, ast.Constant), ast.unparse(node)


DOCUMENTED = ("cli", "kernels", "methods", "models", "numerics", "probability", "selection", "storage", "estimators")


def is_base_of_estimators(value: Any) -> bool:
    """Return whether a class has parameters that the docstrings of estimators explain."""
    return any(value in estimator.__mro__ for estimator in ESTIMATORS)


def documented_rooms() -> Iterator[tuple[str, Any]]:
    """Every public function, class and method of a class that the modules of some rooms define."""
    for room in DOCUMENTED:
        package = importlib.import_module(f"distkern.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"distkern.{room}."):
            for name, value in vars(importlib.import_module(module.name)).items():
                if name.startswith("_") or getattr(value, "__module__", "") != module.name or not callable(value):
                    continue
                if is_base_of_estimators(value) and name not in PUBLIC:
                    continue
                yield f"{module.name}.{name}", value
                for attribute, method in vars(value).items() if isinstance(value, type) else ():
                    function = getattr(method, "__func__", method)
                    if not attribute.startswith("_") and inspect.isfunction(function):
                        yield f"{module.name}.{name}.{attribute}", function


def defaults(value: Any) -> dict[str, Any]:
    """Return the defaults that a callable declares itself, by parameter."""
    if isinstance(value, type) and "__init__" not in vars(value):
        return {}
    parameters = inspect.signature(value).parameters.items()
    return {name: parameter.default for name, parameter in parameters if parameter.default is not parameter.empty}


def states_default(text: str, default: Any) -> bool:
    """Return whether the text of a parameter holds its default, in the form of numpydoc."""
    if default is None:
        return "optional" in text or "default None" in text
    shown = f'"{default}"' if isinstance(default, str) else getattr(default, "__name__", repr(default))
    if shown in ("<lambda>", "<factory>"):  # the text says in words what they return
        return "default" in text
    forms = {shown, shown.replace("e-0", "e-")}
    return any(re.search(rf"default {re.escape(form)}(?!\.?\w)", text) for form in forms)


def field_texts(cls: type) -> dict[str, str]:
    """The text below each field of a dataclass, and in the entry of its Parameters section."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = entries(cls.__doc__ or "")
    for node, after in pairwise(body.body):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
            texts[ast.unparse(node.target)] = ast.unparse(after)
    return texts


DEFAULTS = {
    name: value
    for name, value in (CALLABLES | dict(documented_rooms())).items()
    if not (isinstance(value, type) and issubclass(value, (enum.Enum, Warning))) and defaults(value)
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_default_is_in_the_docstring(name: str) -> None:
    value = DEFAULTS[name]
    docstring = value.__doc__ or ""
    if has_documented_fields(value):
        texts = field_texts(value)
    elif "Parameters" in sections(docstring):
        texts = entries(docstring)
    elif "see `" in docstring:
        return  # An override, which its base explains.
    else:
        texts = dict.fromkeys(defaults(value), docstring)
    assert not {key for key, default in defaults(value).items() if not states_default(texts.get(key, ""), default)}


@pytest.mark.parametrize("name", [name for name in PUBLIC if re.search(r"Regressor|Classifier|Discriminant", name)])
def test_estimators_document_what_they_set(name: str) -> None:
    import numpy as np

    cls = getattr(distkern, name)
    X = np.random.default_rng(0).standard_normal((40, 2))
    few = {"max_centers": 3} if "max_centers" in inspect.signature(cls).parameters else {}
    with warnings.catch_warnings():
        # Where centres are not chosen one after another, few of them are a limit to be warned of.
        warnings.simplefilter("ignore", distkern.DistkernWarning)
        model = cls(**few).fit(X, (X[:, 0] > 0).astype(int))
    fitted = {key for key in dir(model) if key.endswith("_") and not key.startswith("_") and hasattr(model, key)}
    assert set(documented(sections(cls.__doc__)["Attributes"])) == fitted
