"""Print a constraint for each dependency of pyproject.toml, extras included: the lowest version that it allows."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
for requirement in sorted(map(Requirement, lines), key=lambda requirement: requirement.name):
    for specifier in requirement.specifier:
        if specifier.operator == ">=":
            print(
                f"{requirement.name}=={specifier.version}" + (f"; {requirement.marker}" if requirement.marker else "")
            )
