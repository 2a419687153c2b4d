# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A radiograph classifier, exported to ONNX, as an application of MONAI Deploy's App SDK 4.0.0."""

import json
import logging
from pathlib import Path
from typing import Any

import onnxruntime
from monai.deploy.conditions import CountCondition
from monai.deploy.core import AppContext, Application, Fragment, Operator, OperatorSpec
from monai.transforms import Compose, Resize
from scipy.special import expit

from monai_afire.transforms import LoadRadiograph


class ReadRadiograph(Operator):
    """The first DICOM file of the input folder as an image (1, 128, 128) in [0, 1], bright = dense."""

    def __init__(self, fragment: Fragment, *args: Any, folder: Path, **kwargs: Any) -> None:
        self.folder = folder
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("image")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Read the file."""
        file = min(self.folder.glob("*.dcm"))
        read = Compose([LoadRadiograph(), Resize((128, 128), mode="area")])
        op_output.emit(read(file).numpy(), "image")


class Classify(Operator):
    """Probabilities of the classes, written as JSON."""

    def __init__(
        self, fragment: Fragment, *args: Any, model: Path, output: Path, **kwargs: Any
    ) -> None:
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.output = output
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the input."""
        spec.input("image")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Classify the image."""
        image = op_input.receive("image")
        (logits,) = self.session.run(["pred"], {"image": image[None]})
        names = json.loads(self.session.get_modelmeta().custom_metadata_map["class_names"])
        found = dict(zip(names, expit(logits[0]).tolist(), strict=True))
        (self.output / "findings.json").write_text(json.dumps(found, indent=4))


class RadiographApplication(Application):
    """Read, then classify."""

    def compose(self) -> None:
        """Connect the operators."""
        context: AppContext = Application.init_app_context(self.argv)
        read = ReadRadiograph(
            self, CountCondition(self, 1), folder=Path(context.input_path), name="read"
        )
        classify = Classify(
            self, model=Path(context.model_path), output=Path(context.output_path), name="classify"
        )
        self.add_flow(read, classify, {("image", "image")})


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    RadiographApplication().run()
