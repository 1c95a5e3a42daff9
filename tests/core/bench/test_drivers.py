"""Bench drivers: those that a profile may name, and programs that find on a host all that they import."""

import ast
import sys
from typing import get_args

import pytest

from tests.support.generator import ORDER
from tui.core.bench.drivers import DRIVERS
from tui.core.profiles import schema


def test_a_profile_may_name_each_driver():
    (names, _) = get_args(schema.Bench.model_fields["driver"].annotation)
    assert set(get_args(names)) == set(DRIVERS)


@pytest.mark.parametrize("name", ["eagletui", "sglang"])
def test_a_program_travels_with_every_module_that_it_imports(name):
    files = DRIVERS[name].program(ORDER).files
    modules = {path.removeprefix("program/").removesuffix(".py").replace("/", ".") for path in files}
    for path, data in files.items():
        for node in ast.walk(ast.parse(data)) if path.endswith(".py") else ():
            if isinstance(node, ast.ImportFrom):
                named = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                assert named & modules or node.module.split(".")[0] in sys.stdlib_module_names, (path, node.module)
            elif isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names, path
