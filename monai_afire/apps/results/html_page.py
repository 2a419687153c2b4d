# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pages for any browser, from the templates of this package."""

from __future__ import annotations

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

_SHARED = "monai_afire.apps.results"


def render_page(package: str, template: str, **values: Any) -> str:
    """
    Fill in a template, which includes the look that all pages share, ``page_style.html``.

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
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader(_SHARED, ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template).render(**values)
