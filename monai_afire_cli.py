# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
The command ``monai-afire``: lists, copies, explains and runs the bundles, and starts the applications.

``run`` is MONAI's own workflow in this process. The command reads overrides once and refuses wrong ones before it
imports MONAI and PyTorch, which takes seconds.
"""

from __future__ import annotations

import argparse
import ast
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["CommandError", "check_call", "main"]

HERE = Path(__file__).resolve().parent
BUNDLES = next(
    (each for each in (HERE / "monai_afire" / "bundles", HERE / "bundles") if each.is_dir()), HERE
)
APPLICATIONS = {
    "audit": ("monai_afire.apps.audit.__main__", "check a folder of radiographs"),
    "compare": ("monai_afire.apps.compare.__main__", "compare encoders on labeled radiographs"),
    "data": ("monai_afire.apps.readers.__main__", "make a datalist of a label table"),
    "experiments": ("monai_afire.apps.experiments", "repeat a bundle, one table of all"),
    "watch": ("monai_afire.apps.worklist.watch", "score radiographs as they arrive in a folder"),
}
EXAMPLES = """\
examples:
  monai-afire score FOLDER                      an anomaly score for each radiograph, with the released detector
  monai-afire fit FOLDER                        fit a detector to your own normal radiographs
  monai-afire options afire train               what can be set, and to what
  monai-afire run afire train --dataset_dir FOLDER --epochs 100
  monai-afire run afire train paper --dataset_dir FOLDER
  monai-afire copy peac my_peac                 a copy to edit, then: monai-afire run my_peac train
  monai-afire evaluate radiograph_classification --datalist labels.json
  monai-afire audit FOLDER                      are these images fit for training?
"""
COPIED = ("LICENSE", "NOTICE", "configs", "docs", "released", "models/model.pt")

# arguments of MONAI's ConfigWorkflow, beside entries of the config
OF_WORKFLOW = ("run_id", "init_id", "final_id", "logging_file", "tracking", "meta_file")
OF_MONAI = (*OF_WORKFLOW, "config_file", "args_file", "workflow_name", "workflow_type")
INPUTS = ("dataset_dir", "datalist", "calibrate", "ckpt_path")
TEXTS = (*INPUTS, "name", "weights", "output_dir", "cache_dir", "export_path", "bundle_root")
COUNTS = ("epochs", "batch_size", "accumulation_steps", "grid", "cell", "stride", "picture_size")
TABLES = (".csv", ".tsv", ".gz", ".xls", ".xlsx", ".ods")
LANGUAGE = ("$", "@", "%")  # begin an expression, a reference and a macro of MONAI
MEANINGS = {
    "dataset_dir": "folder of radiographs; null for those of the datalist, or else drawn phantoms",
    "datalist": "MONAI datalist (JSON): the images of each section; null for all of dataset_dir",
    "section": "of the datalist: training, validation or test",
    "label_key": "of the items, which holds the label",
    "weights": "null, released, demo, latest, a run (NAME or BUNDLE/NAME), its folder, or a file",
    "name": "of the run, whose folder is runs/BUNDLE/NAME; null for the time",
    "resume": "go on with the run of this name, or with the newest one",
    "output_dir": "folder of the results, in place of the run's",
    "phantom_weights": "use weights of drawn phantoms for radiographs, too",
    "cache": "decoded images: memory, disk, disk16, disk8 (the last two round) or none",
    "cache_dir": "folder of the cache on disk",
    "device": "where the network computes, such as cpu or cuda:0",
    "num_workers": "processes that load images",
    "seed": "of all random numbers",
    "standardize": "give every neighborhood of an image the same brightness and contrast",
    "channels": "of pictures: 1 for gray, 3 for color",
    "image_size": "side of the network's input in pixels",
    "encoder": "architecture: vit, residual, timm:NAME or hub:FOLDER",
    "patch_size": "side of a patch in pixels",
    "encoder_def::hidden_size": "width of a token of the ViT",
    "encoder_def::num_layers": "blocks of the ViT",
    "encoder_def::num_heads": "attention heads of the ViT, a divisor of hidden_size",
    "epochs": "passes over the training images",
    "batch_size": "images in a batch of one process",
    "accumulation_steps": "batches per optimizer step",
    "learning_rate": "of the optimizer after the warm-up",
    "train::run::val_interval": "epochs between two validations",
    "train::inferer::enabled": "compute in bfloat16 where the device has it",
    "grid": "cells on a side of the grid that crops are cut from",
    "cell": "side of a cell in pixels",
    "crop_scale": "smallest and largest random crop as shares of the image's area",
    "flip_prob": "probability of mirrored training images",
    "encoder_branch": "teacher or student, of a file with two encoders",
    "num_classes": "classes or landmarks; null for those that the datalist names",
    "class_names": "of the classes or landmarks",
    "label_kind": "multilabel (any number of findings) or multiclass (one class per image)",
    "uncertain": "what the label -1 counts as",
    "fit_masks": "resize masks to the size of their images",
    "window": "side of a heat map's window in pixels, odd",
    "score_fusion": "scores whose standardized mean is the fused score",
    "field_of_view": "image, or lungs for the square around them",
    "specificity": "of the threshold on normal images; null for the best F1",
    "calibrate": "folder, datalist or file of your own normal images to compare scores with",
    "saved": "what to write for each image: overlays, thumbnails, dicom, sr, maps, embeddings",
    "picture_size": "side of the pictures in pixels",
    "stride": "pixels between two dense features, a divisor of patch_size",
    "sliding_windows": "find landmarks also by windows that are encoded alone: slow",
}


class CommandError(ValueError):
    """A command that cannot be right, or a run that failed: the message is all that a person sees."""


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the command.

    Args:
        arguments: words of the command line; None for those of the process.

    Returns:
        Exit status: 0, 1 after an error, 130 after Ctrl-C, 141 where nobody reads the output.

    Example:
        >>> main(["--version"])
        monai-afire ...
        0
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        status = _started(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nstopped by Ctrl-C", file=sys.stderr)
        return 130
    except BrokenPipeError:  # "| head" has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (CommandError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return status


def _started(words: list[str]) -> int:
    """Start what the first word names; words from the first option on are overrides of a run."""
    if words[0] == "--version":
        from importlib.metadata import version  # takes a moment

        print(f"monai-afire {version('monai-afire')}")
        return 0
    if words[0] in APPLICATIONS:
        return import_module(APPLICATIONS[words[0]][0]).main(words[1:]) or 0
    if words[0] in VERBS and words[1:] and not words[1].startswith("-"):
        words = ["run", *VERBS[words[0]](words[1]), *words[2:]]
        print(f"$ monai-afire {shlex.join(words)}")
    first = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    is_run = words[0] == "run" and first > 1
    options = _parser().parse_args(words[:first] if is_run else words)
    options.overrides = words[first:]
    options.function(options)
    return 0


def _score(folder: str) -> list[str]:
    return ["afire", "inference", f"--dataset_dir={folder}"]


def _fit(folder: str) -> list[str]:
    settings = [f"--dataset_dir={folder}", "--weights=released_96", "--field_of_view=lungs"]
    return ["afire", "train", "finetune_anomaly", "fit_encoder", *settings]


def _evaluate(name: str) -> list[str]:
    is_detector = (find_bundle(name) / "configs" / "finetune_anomaly.json").is_file()
    return [name, "inference" if is_detector else "train", "evaluate", "--weights=latest"]


VERBS = {"score": _score, "fit": _fit, "evaluate": _evaluate}
"""Names for the words of a run, by its folder or bundle."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "monai-afire",
        description="Self-supervised learning on radiographs in MONAI: run the bundles of monai_afire.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version of the package")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(name: str, function: Callable, help: str, **arguments: str | int | None) -> None:
        command = commands.add_parser(name, help=help, description=f"{help}.")
        command.set_defaults(function=function)
        for argument, count in arguments.items():
            command.add_argument(argument, nargs=count)

    add("list", _list, "name the bundles")
    add("copy", _copy, "copy a bundle to bundles/NAME or FOLDER, to edit", NAME=None, FOLDER="?")
    add("options", _options, "show what can be set in a run", NAME=None, CONFIG="+")
    add("run", _run, "start a bundle: NAME CONFIG ... [--KEY VALUE ...]", NAME=None, CONFIG="+")
    add("score", _run, "score the radiographs of a folder; overrides as for run", FOLDER=None)
    add("fit", _run, "fit a detector to the normal radiographs of a folder", FOLDER=None)
    add("evaluate", _run, "evaluate the newest weights of a bundle", NAME=None)
    for name, (_, help) in APPLICATIONS.items():
        commands.add_parser(name, help=help)
    return parser


# --- bundles and their configs


def find_bundle(name: str) -> Path:
    """The folder of a bundle: a path, ``bundles/NAME``, or one that comes with the package."""
    for folder in (Path(name), Path("bundles", name), BUNDLES / name):
        if (folder / "configs" / "metadata.json").is_file():
            return folder
    known = sorted(path.parents[1].name for path in BUNDLES.glob("*/configs/metadata.json"))
    meant = _nearest(name, known)
    raise CommandError(f"there is no bundle {name!r}: there are {', '.join(known)}{meant}")


def config_files(bundle: Path, names: Sequence[str]) -> list[Path]:
    """The files of a run, each of which changes those before it: configs of the bundle by name, or paths."""
    folder = bundle / "configs"
    paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.json"))
    known = sorted(path.as_posix() for path in paths if path.name != "metadata")
    files = []
    for name in names:
        own = folder / f"{name.removesuffix('.json')}.json"
        path = own if own.is_file() else Path(name)
        if not path.is_file():
            choice = ", ".join(known) + _nearest(name.removesuffix(".json"), known)
            raise CommandError(f"{bundle.name} has no config {name!r}: it has {choice}")
        files.append(path)
    return files


def merged_config(files: Sequence[Path]) -> dict[str, Any]:
    """The config of some files, as MONAI merges them: a key may be a path, and ``+`` adds to what is there."""
    config: dict[str, Any] = {}
    for path in files:
        for key, value in _content(path).items():
            *parents, name = key.removeprefix("+").replace("#", "::").split("::")
            holder = _entry(config, parents)
            if not isinstance(holder, dict):
                lacking = "::".join(parents)
                raise CommandError(f"{path} changes {lacking}, which no config before it has")
            old = holder.get(name)
            if key.startswith("+") and isinstance(old, dict):
                value = {**old, **value}
            elif key.startswith("+") and isinstance(old, list):
                value = [*old, *value]
            holder[name] = value
    return config


def _entry(config: Any, names: Sequence[str]) -> Any:
    """The entry at a path; None where there is none."""
    for name in names:
        if isinstance(config, list) and name.isdecimal():
            config = dict(enumerate(config)).get(int(name))
        else:
            config = config.get(name) if isinstance(config, Mapping) else None
    return config


def _content(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    try:
        if path.suffix == ".json":
            return json.loads(text)
        import yaml  # takes a moment

        return yaml.safe_load(text)
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from error


def entries(holder: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All paths in a config, such as ``train::lr_schedule::end``, and what is there."""
    if isinstance(holder, Mapping):
        for name, value in holder.items():
            yield f"{prefix}{name}", value
            yield from entries(value, f"{prefix}{name}::")


# --- overrides


def overrides(words: Sequence[str]) -> dict[str, str | None]:
    """The words of ``--key value`` and ``--key=value`` by key; None for a switch, which has no value."""
    given: dict[str, str | None] = {}
    rest = list(words)
    while rest:
        key, is_joined, text = rest.pop(0).partition("=")
        if not key.startswith("--"):
            raise CommandError(
                f"{key!r} is no --KEY and no value of one: quote a value with blanks"
            )
        follows = bool(rest) and not rest[0].startswith("--")
        given[_id(key)] = text if is_joined else rest.pop(0) if follows else None
    return given


def _id(key: str) -> str:
    return key[2:].replace("-", "_").replace("#", "::")


def value_of(id: str, text: str | None, default: Any) -> Any:
    """
    Read the word of an option: JSON, or Python's literals, or else a text.

    Paths and names, and options that are a text in the config, keep a text, ``null`` and ``None`` apart.
    """
    if text is None:
        return True
    value: Any = text
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
            break
        except (ValueError, SyntaxError, TypeError):
            continue
    if id in TEXTS and not isinstance(default, (dict, list)):
        return None if value is None else os.path.expanduser(text)
    is_text = isinstance(default, str) and not default.startswith(LANGUAGE)
    return text if is_text and isinstance(value, (bool, int, float)) else value


def check(config: Mapping[str, Any], given: Mapping[str, str | None]) -> dict[str, Any]:
    """
    Read overrides, and refuse those that cannot be right.

    Args:
        config: merged from its files.
        given: words of the command line by id.

    Returns:
        Value of each override.

    Raises:
        CommandError: for names that the config does not have, values of another type, counts below 1 and missing paths.
    """
    known = dict(entries(config))
    values = {id: value_of(id, text, known.get(id)) for id, text in given.items()}
    problems = {}
    for id, value in values.items():
        if id not in OF_WORKFLOW:
            problem = unknown_name(config, id, given)
            problems[id] = problem or _wrong_value(id, value, given[id], known.get(id))
    lines = [f"--{id}: {problem}" for id, problem in problems.items() if problem]
    if lines:
        raise CommandError(
            "nothing was started: " + "\n  ".join(["", *lines] if lines[1:] else lines)
        )
    return values


def unknown_name(config: Mapping[str, Any], id: str, given: Mapping[str, str | None]) -> str | None:
    """What is wrong with the name of an override, and what was meant; arguments of a component are left to it."""
    *parents, name = id.split("::")
    holder = _entry(config, parents)
    is_known = name in holder or "_target_" in holder if isinstance(holder, Mapping) else False
    is_place = isinstance(holder, list) and name.isdecimal()
    is_used = any(f"@{id}" in (text or "") for text in given.values())  # a new entry
    if is_known or is_place or is_used:
        return None
    known = dict(entries(config))
    ends = [path for path in known if path.endswith(f"::{id}")]
    settings = dict.fromkeys(_setting(path, known[path]) for path in ends)
    named = " or ".join(f"--{path}" for path in list(settings)[:3])
    meant = f"; did you mean {named}?" if named else _nearest(id, known)
    return f"there is no such option{meant}"


def _setting(path: str, value: Any) -> str:
    """Where an entry is set: what refers to another one is set there."""
    return value[1:] if isinstance(value, str) and value.startswith("@") else path


def _wrong_value(id: str, value: Any, text: str | None, default: Any) -> str | None:
    """What is wrong with a value."""
    is_text, is_switch = isinstance(value, str), isinstance(default, bool)
    if text is None and (id in TEXTS or not (is_switch or default is None)):
        return "a value is missing"
    if is_text and id not in TEXTS and value.startswith(LANGUAGE):
        return None
    if id in COUNTS:
        is_count = type(value) is int and value >= 1
        return None if is_count else f"found {text}, needs a whole number >= 1"
    if is_switch and not isinstance(value, bool):
        return f"found {text}, needs True or False"
    if type(default) in (int, float) and isinstance(value, (str, bool)):
        return f"found {text}, needs a number, such as {default}"
    return _wrong_path(id, value) if id in INPUTS and value is not None else None


def _wrong_path(id: str, value: str) -> str | None:
    """What is wrong with a file or folder to read."""
    path = Path(value)
    if not path.exists():
        return f"there is no {value}: check the name, or connect its disk"
    if id in ("dataset_dir", "datalist") and path.is_file() and path.name.endswith(TABLES):
        return f"{value} is a table, not a datalist: monai-afire data table makes one of it"
    if id == "dataset_dir" and path.suffix == ".json":
        return f"{value} is no folder of images: give it by --datalist"
    return None


def _nearest(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_call() -> None:
    """
    Refuse an override that the config does not have; the first entry of every bundle's ``initialize``.

    Only where MONAI's own command runs (``python -m monai.bundle run``), which would go on without a word after
    ``--epoch 3``. What a Python program passes is not checked.

    Raises:
        SystemExit: with the name, and the nearest one that there is.

    Example:
        >>> check_call()
    """
    if Path(sys.argv[0]).parts[-3:] != ("monai", "bundle", "__main__.py"):
        return
    from fire.parser import DefaultParseValue
    from monai.bundle import ConfigParser

    words = sys.argv[1:]
    keys = [place for place, word in enumerate(words) if word.startswith("--") and word != "--"]
    given: dict[str, str | None] = {}
    for place in keys:
        key, _, text = words[place].partition("=")
        given[_id(key)] = text or next(iter(words[place + 1 : place + 2]), "")
    parser = ConfigParser()
    parser.read_config(DefaultParseValue(given.get("config_file") or "[]"))
    problems = {id: unknown_name(parser.get(), id, given) for id in given if id not in OF_MONAI}
    lines = [f"--{id}: {problem}" for id, problem in problems.items() if problem]
    if lines:
        raise SystemExit("\n".join(["error: nothing was started", *lines]))
    sys.excepthook = _cause_last


def _cause_last(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print a traceback, and at its end the message for users, around which MONAI has its own."""
    from monai_afire.utils.text import innermost_cause

    sys.__excepthook__(kind, error, trace)
    print(f"error: {innermost_cause(error)}", file=sys.stderr)


# --- commands


def _list(options: argparse.Namespace) -> None:
    for path in sorted(BUNDLES.glob("*/configs/metadata.json")):
        print(f"{path.parents[1].name:26}{_content(path)['name']}")


def _copy(options: argparse.Namespace) -> None:
    source = find_bundle(options.NAME)
    target = Path(options.FOLDER or Path("bundles", options.NAME))
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise CommandError(
            f"{target} is there already, and nothing is overwritten: name another folder"
        )
    target.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        # content only: files of an installation may be write-protected
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, copy_function=shutil.copyfile)
        elif (source / name).is_file():
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, target / name)
    print(f"{target}: a copy of {source.name}; start it: monai-afire run {target} train")


def _options(options: argparse.Namespace) -> None:
    config = merged_config(config_files(find_bundle(options.NAME), options.CONFIG))
    known = dict(entries(config))
    print("  --KEY and its default" + " " * 31 + "meaning")
    for id in [*config, *(each for each in MEANINGS if "::" in each)]:
        if id in known and (id in MEANINGS or isinstance(known[id], (bool, int, float))):
            print(f"  {f'--{id} {json.dumps(known[id])}':52}{MEANINGS.get(id, '')}".rstrip())
    print("\nAny other entry is set by its path, such as --optimizer::weight_decay 0.1.")


def _run(options: argparse.Namespace) -> None:
    if {"--help", "-h"} & set(options.overrides):
        return _options(options)
    bundle = find_bundle(options.NAME)
    files, given = config_files(bundle, options.CONFIG), overrides(options.overrides)
    config = merged_config(files)
    if not {"imports", "initialize"} & config.keys():
        raise CommandError(f"{options.CONFIG[0]} changes another config, which comes before it")
    values = {"bundle_root": str(bundle), **check(config, given)}
    try:
        run_workflow(files, values)
    except Exception as error:
        from monai_afire.utils.text import innermost_cause

        cause = innermost_cause(error)
        if os.environ.get("MONAI_AFIRE_TRACEBACK") or isinstance(cause, BrokenPipeError):
            raise cause from error
        is_sentence = isinstance(cause, (OSError, RuntimeError, ValueError)) and str(cause)
        text = str(cause) if is_sentence else f"{type(cause).__name__}: {cause}"
        raise CommandError(f"{text} (MONAI_AFIRE_TRACEBACK=1 shows where)") from error
    return None


def run_workflow(files: Sequence[Path], values: Mapping[str, Any]) -> None:
    """Run configs in this process, as ``python -m monai.bundle run`` does."""
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # PyTorch reads it when it is loaded
    from monai.bundle import ConfigWorkflow

    from monai_afire.utils.text import literal

    sys.path.insert(
        0, os.getcwd()
    )  # for components of one's own; a clone of the package may lie here
    texts = {id: literal(value, is_text=id in TEXTS) for id, value in values.items()}
    workflow = ConfigWorkflow([str(file) for file in files], **texts)
    for handler in logging.getLogger().handlers:  # of logging.conf
        handler.addFilter(_is_news)
    workflow.initialize()
    workflow.run()
    workflow.finalize()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line says more than that an error, which ends the run in a line of its own, passes an engine."""
    return "terminating due to exception" not in str(record.msg)


if __name__ == "__main__":
    sys.exit(main())
