# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What MONAI would run of a config: its callables, expressions and other files, listed without running anything."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monai_afire_cli.bundles.configs import read_json
from monai_afire_cli.options.words import SEPARATOR

__all__ = ["Code", "code_in_config", "config_paths", "listing"]

KNOWN_PACKAGES = frozenset({"monai", "torch", "ignite", "monai_afire"})
"""Packages whose callables are not marked."""

_TARGET, _EXPRESSION, _MACRO = "_target_", "$", "%"
_REFERENCE = re.compile(r"@(?:::|#)*\w+(?:(?:::|#)\w+)*")
_PLACEHOLDER = "_reference_"
_SAFE_BUILTINS = frozenset(
    {
        *(
            "abs",
            "all",
            "any",
            "bool",
            "dict",
            "enumerate",
            "float",
            "frozenset",
            "int",
            "isinstance",
            "iter",
            "len",
        ),
        *(
            "list",
            "max",
            "min",
            "next",
            "pow",
            "print",
            "range",
            "round",
            "set",
            "slice",
            "sorted",
            "str",
            "sum",
        ),
        *("tuple", "zip"),
    }
)
_STANDARD_MODULES = sys.stdlib_module_names - {"random"}  # torch.random is PyTorch's


@dataclass(frozen=True)
class Code:
    """
    One text of a config that MONAI runs.

    Args:
        id: place in the config, with "::".
        text: what is run.
        reason: why it is marked; empty if it is not.
    """

    id: str
    text: str
    reason: str = ""


def config_paths(names: Sequence[str]) -> list[Path]:
    """
    Config files of a list of files and folders.

    Args:
        names: files, or folders, whose JSON files are taken.

    Returns:
        Paths.

    Raises:
        FileNotFoundError: when there is no such file, or a folder has no JSON file.
    """
    paths: list[Path] = []
    for name in names:
        found = sorted(Path(name).rglob("*.json")) if Path(name).is_dir() else [Path(name)]
        if not found or not all(path.is_file() for path in found):
            raise FileNotFoundError(f"{name}: no such file, or a folder without JSON files")
        paths += found
    return paths


def code_in_config(path: Path) -> list[Code]:
    """
    Everything in a config that MONAI imports, calls or evaluates, or takes from another file.

    Marked are callables of other packages than MONAI, PyTorch, Ignite and this one, modules of Python reached by way of
    these, and expressions that do more than compute. A mark asks to read the line; a line without one may do harm, too.

    Args:
        path: JSON file.

    Returns:
        Texts in the order of the file.

    Raises:
        ValueError: when the file is no JSON.

    Example:
        >>> from monai_afire_cli.bundles.bundle import bundles_folder
        >>> code_in_config(bundles_folder() / "afire/configs/inference.json")[0].text
        '$import monai_afire'
    """
    if path.suffix != ".json":
        raise ValueError(f"{path}: only JSON is checked; rewrite a YAML config as JSON")
    return list(_code(read_json(path), ()))


def listing(path: Path, codes: Sequence[Code]) -> str:
    """
    The lines of one file, marked ones with their reason.

    Args:
        path: the file.
        codes: what it runs.

    Example:
        >>> print(listing(Path("a.json"), [Code("run", "$print(1)"), Code("x", "os.system", "of the package os")]))
        a.json
            run: $print(1)
          ! x: os.system    <- of the package os
    """
    lines = [f"  {'!' if code.reason else ' '} {code.id}: {code.text}" for code in codes]
    reasons = [f"    <- {code.reason}" if code.reason else "" for code in codes]
    return "\n".join(
        [str(path), *(line + reason for line, reason in zip(lines, reasons, strict=True))]
    )


def _code(entry: Any, id: tuple[str, ...]) -> Iterator[Code]:
    if isinstance(entry, dict):
        for name, value in entry.items():
            yield from _code(value, (*id, str(name)))
    elif isinstance(entry, list):
        for place, value in enumerate(entry):
            yield from _code(value, (*id, str(place)))
    elif isinstance(entry, str) and (is_code := _is_code(entry, id)):
        yield Code(SEPARATOR.join(id), entry, is_code(entry))


def _is_code(text: str, id: tuple[str, ...]) -> Any:
    """The function that says why a text is marked; None for a text that is not run."""
    if text.startswith(_EXPRESSION):
        return _about_expression
    if id[-1:] == (_TARGET,):
        return _about_target
    return _about_macro if text.startswith(_MACRO) and re.search(r"\.(json|ya?ml)", text) else None


def _about_target(text: str) -> str:
    """MONAI finds names without a dot among its own."""
    return _about_names(text.split(".")) if "." in text else ""


def _about_macro(text: str) -> str:
    return "the content of another file"


def _about_names(names: Sequence[str]) -> str:
    """What is wrong with a name such as monai.data.Dataset, in parts."""
    if names[0] not in KNOWN_PACKAGES:
        return f"of the package {names[0]}"
    modules = [name for name in names[1:] if name in _STANDARD_MODULES]
    return f"reaches Python's module {modules[0]}" if modules else ""


def _about_expression(text: str) -> str:
    source = _REFERENCE.sub(_PLACEHOLDER, text[len(_EXPRESSION) :]).strip()
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return "no Python that can be read"
    bound = {_PLACEHOLDER, *(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))}
    bound |= {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return next(filter(None, (_about_node(node, bound) for node in ast.walk(tree))), "")


def _about_node(node: ast.AST, bound: set[str]) -> str:
    if isinstance(node, ast.Import):
        return next(filter(None, (_about_names(name.name.split(".")) for name in node.names)), "")
    if isinstance(node, ast.ImportFrom):
        return _about_names((node.module or "").split("."))
    if (
        isinstance(node, ast.Attribute)
        and node.attr.startswith("__")
        and node.attr != "__version__"
    ):
        return f"uses {node.attr}"
    if isinstance(node, ast.Attribute) and node.attr in _STANDARD_MODULES:
        return f"reaches Python's module {node.attr}"
    if not isinstance(node, ast.Name) or node.id in bound | _SAFE_BUILTINS | KNOWN_PACKAGES:
        return ""
    return (
        f"calls Python's {node.id}" if hasattr(builtins, node.id) else f"of the package {node.id}"
    )
