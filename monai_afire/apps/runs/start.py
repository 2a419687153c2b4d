# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The start of a run: its process is prepared, its options are checked, and it says on what it computes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from monai.bundle import ConfigParser

from monai_afire.apps.runs.call import BundleCall, bundle_call
from monai_afire.apps.runs.cpu import tune_cpu
from monai_afire.apps.runs.options.check import check_call
from monai_afire.apps.runs.options.help_text import help_text
from monai_afire.apps.runs.process_end import show_cause_last, stop_early
from monai_afire.apps.runs.weights import are_of_phantoms
from monai_afire.networks.weights.description import KNOWS_PHANTOMS
from monai_afire.utils.device import chosen_device, described_precision
from monai_afire_cli.bundles.bundle import bundles_folder
from monai_afire_cli.process.pipes import until_unread
from monai_afire_cli.process.starting import check_package

_PAPER = "paper.json"
_BF16 = ("train::inferer::enabled", "inferer::enabled")  # of a training, of other runs
_STARTS = ("encoder_weights", "pretrained")  # files that a training goes on from


def start_bundle() -> None:
    """
    Prepare the process for a bundle's run; the first entry of every ``initialize``.

    A CPU is made fast (:func:`tune_cpu`). Where ``python -m monai.bundle`` runs, its words in ``sys.argv`` are checked
    (:func:`check_call`) or ``--help`` is answered, errors name their cause last (:func:`show_cause_last`), and device
    and weights are named. What a Python program passes to MONAI is not checked. Changes settings of the whole process.

    Raises:
        OptionError: see :func:`check_call`.
        OSError: when a folder beside the command hides the package.
        SystemExit: with code 0, after it printed the help.

    Example:
        >>> start_bundle()
    """
    stop_early()
    call = bundle_call(sys.argv)
    if call is not None:
        show_cause_last()
        check_package()
        # MONAI's command line takes "--help" and "-h" for overrides
        if "help" in call.overrides or "h" in call.overrides:
            raise SystemExit(until_unread(lambda: print(help_text(call))) or 0)
        check_call(call)
        if "device" in call.overrides:
            chosen_device(str(call.value("device")))
    fewer_threads = tune_cpu()
    if call is not None:
        print_first_lines(call, fewer_threads)


def print_first_lines(call: BundleCall, fewer_threads: str | None = None) -> None:
    """
    Print the first lines of a run, once for all its processes.

    Args:
        call: the start of the run, whose options are checked.
        fewer_threads: what :func:`tune_cpu` returned.
    """
    lines = list(first_lines(call, fewer_threads))
    if lines and int(os.environ.get("RANK", 0)) == 0:
        print("\n".join(lines), flush=True)


def first_lines(call: BundleCall, fewer_threads: str | None = None) -> Iterator[str]:
    """
    Whose configs run, on what, with which weights, and a hint at the paper's settings for a training on own images.

    Args:
        call: the start of the run.
        fewer_threads: what :func:`tune_cpu` returned.

    Yields:
        Lines.

    Example:
        >>> list(first_lines(BundleCall({}, {"device": "cpu", "inferer": {"enabled": False}})))
        ['computing on cpu in float32']
    """
    if call.layers:
        yield origin(map(Path, call.layers))
    for switch in _BF16:
        if "device" in call.config and switch in call.parser:
            line = described_precision(call.value("device"), bool(call.value(switch)))
            is_told = fewer_threads and str(call.value("device")) == "cpu"
            yield f"{line} ({fewer_threads})" if is_told else line
    if "ckpt_path" in call.config and "ckpt_path" in call.read_names:
        yield _weights_line(call)
    has_own_images = call.config.get("dataset_dir") or call.config.get("datalist")
    if not has_own_images and "phantom" in call.read_names:
        yield "images: drawn phantoms, since neither --dataset_dir nor --datalist is given"
    if has_own_images and _could_be_as_in_paper(call):
        yield "the settings of train.json are small, for a first try; the overlay paper has those of the paper"
    if has_own_images:
        yield from _phantom_encoders(call)


def _weights_line(call: BundleCall) -> str:
    """Which weights run, and whether someone chose them."""
    path = str(call.value("ckpt_path"))
    line = f"weights: {path}"
    is_default = isinstance(call.config["ckpt_path"], Mapping)  # else somebody has named a file
    is_chosen = not is_default or call.config.get("weights_of") is not None
    if not is_chosen:
        line = f"{line}, which come with the bundle (--weights_of takes your own)"
    return f"{line}; they were trained on drawn phantoms" if are_of_phantoms(path) else line


def _phantom_encoders(call: BundleCall) -> Iterator[str]:
    """A warning for each file to start from that knows drawn phantoms alone."""
    for name in _STARTS:
        if name not in call.config or name not in call.read_names:
            continue
        path = call.value(name)
        if isinstance(path, (str, os.PathLike)) and path and are_of_phantoms(path):
            remedy = "for radiographs take --encoder_weights released, or pre-train on your own"
            yield f"warning: {path} {KNOWS_PHANTOMS}; {remedy}"


def origin(paths: Iterable[Path]) -> str:
    """
    Whose configs a run is made of, beside MONAI's warning that configs are code.

    Args:
        paths: config files.

    Returns:
        A sentence: they are the package's, or which of them are not.

    Example:
        >>> from monai_afire_cli.bundles.bundle import bundles_folder
        >>> origin([bundles_folder() / "mae/configs/train.json"])
        'configs: as they come with monai_afire'
    """
    others = [path for path in paths if not _is_packaged(path)]
    if not others:
        return "configs: as they come with monai_afire"
    return f"configs: not as monai_afire has them: {', '.join(map(str, others))}; monai-afire check says what they run"


def _is_packaged(path: Path) -> bool:
    """Whether a config has the content of one of the package's."""
    content = path.read_bytes()
    packaged = bundles_folder().glob(f"*/configs/**/{path.name}")
    return any(each.read_bytes() == content for each in packaged)


def _could_be_as_in_paper(call: BundleCall) -> bool:
    """Whether a pre-training has an overlay with the settings of its paper, and was started with none of these."""
    paths = [Path(path) for path in call.layers]
    papers = [path.with_name(_PAPER) for path in paths if path.name == "train.json"]
    papers = [path for path in papers if path.is_file()]
    is_detector = "detector_def" in call.config  # fitted or adapted, from an encoder that is there
    if not papers or is_detector or any(path.name.startswith("paper") for path in paths):
        return False
    return not ConfigParser.load_config_file(papers[0]).keys() & call.overrides.keys()
