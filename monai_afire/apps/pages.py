# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pages for any browser and without a network, from the templates of the applications."""

from __future__ import annotations

import warnings
from base64 import b64encode
from io import BytesIO
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from PIL import Image, ImageOps

from monai_afire.transforms import LoadRadiograph
from monai_afire.transforms.radiograph_files import RadiographError

_SIDE, _QUALITY = 160, 75  # of a thumbnail


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


def thumbnail_url(path: str) -> str:
    """A radiograph as a small JPEG in a URL with its data; "" for a file that cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = np.asarray(LoadRadiograph()(path)[0])
    except RadiographError:
        return ""
    gray = Image.fromarray(np.rint(255 * image.clip(0, 1)).astype(np.uint8))
    content = BytesIO()
    small = ImageOps.contain(gray, (_SIDE, _SIDE), Image.Resampling.BOX)
    small.save(content, "JPEG", quality=_QUALITY)
    return f"data:image/jpeg;base64,{b64encode(content.getvalue()).decode()}"
