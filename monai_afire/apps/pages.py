# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pages for any browser and without a network, from the templates of the applications."""

from __future__ import annotations

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def render_page(package: str, template: str, **values: Any) -> str:
    """
    Fill in a template, which extends the page that all share, ``page.html`` beside this file.

    Names of files and texts of DICOM headers can be of anybody's making: every text is escaped.

    Args:
        package: that holds the template, such as "monai_afire.apps.audit".
        template: name of its file.
        values: what the template names.

    Returns:
        The page.

    Raises:
        jinja2.UndefinedError: when the template names another value.
    """
    folders = [PackageLoader(name, ".") for name in (package, "monai_afire.apps")]
    environment = Environment(
        loader=ChoiceLoader(folders), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(**values)
