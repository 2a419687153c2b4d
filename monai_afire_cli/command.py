# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The subcommands of ``monai-afire``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from monai_afire_cli.bundles.bundle import (
    Bundle,
    BundleError,
    find_bundle,
    packaged_bundles,
)
from monai_afire_cli.bundles.code_in_configs import code_in_config, config_paths, listing
from monai_afire_cli.options.overrides import wrong_options
from monai_afire_cli.options.words import option_words, passed_on, passed_word
from monai_afire_cli.process.interrupts import INTERRUPTED_EXIT_CODE, stopped_line
from monai_afire_cli.process.pipes import until_unread
from monai_afire_cli.process.starting import bundle_command, hand_over, quoted, run_in, shown
from monai_afire_cli.subcommands.wrong_words import wrong_words

__all__ = ["main"]

_DESCRIPTION = """\
Self-supervised learning on radiographs in MONAI: find, copy, explain and start the bundles of monai_afire.

The bundles are folders of JSON configs that MONAI runs. "run" only shortens MONAI's own command, which it prints, and
"copy" puts a bundle where that command finds it:

  monai-afire copy afire
  python -m monai.bundle run --config_file bundles/afire/configs/train.json
"""
_EXAMPLES = """\
examples:
  monai-afire demo                              pre-train in miniature, and look at a picture (two minutes)
  monai-afire list                              which bundles there are
  monai-afire options afire train               what can be set, and to what
  monai-afire run afire train --dataset_dir /path/to/images --epochs 100
  monai-afire run afire train paper --dataset_dir /path/to/images
  monai-afire check downloaded_bundle           what would its configs run? nothing is run
  monai-afire package my_peac dist              for a pull request to MONAI's Model Zoo, and its checks
  monai-afire copy peac my_peac                 a copy to edit, then: monai-afire run my_peac train
  monai-afire audit /path/to/images             are these images fit for training?
  monai-afire compare labels.json untrained released mine=model.pt      which encoder for my data?
  monai-afire data nih --help                   label files of public sets -> datalists
  monai-afire experiments --help                many runs, one table
  monai-afire watch IN OUT                      score what arrives in a folder
"""
_RUN_HELP = """\
Start a bundle as "python -m monai.bundle run" does. Paths and names are taken as they are written, whatever signs they
have, and true, false and null as Python's constants; every other word from the first --key on is MONAI's.

The bundle is ./NAME or ./bundles/NAME or, where neither is a bundle, the one that comes with the package. Each run
has a folder of its own, runs/NAME/<--name or the time>, to which runs/NAME/latest leads; --output_dir names another.
"""
_DEMO_HELP = """\
Pre-train AFiRe on drawn radiographs, smaller and shorter than by default: no data, GPU or download is needed. About two
minutes on two CPU cores.
"""
_CHECK_HELP = """\
List every callable ("_target_"), every expression ("$...") and every other file that configs name, without running
anything. "!" marks what is not of MONAI, PyTorch, Ignite or this package, and expressions that do more than compute:
read these lines first. A line without a mark may do harm, too. The exit status is 1 if a line is marked.
"""
# small batches: in two minutes, many steps restore better than few large ones
_DEMO = {
    "epochs": 10,
    "batch_size": 8,
    "phantom::num_patients::training": 512,
    "train::run::val_interval": 2,
}
_MODULES = {
    "audit": (
        "monai_afire.apps.audit",
        "check a folder of radiographs, write a page and a cleaned datalist",
    ),
    "compare": (
        "monai_afire.apps.compare",
        "compare encoders on your labeled radiographs, write a page and a table",
    ),
    "data": ("monai_afire.apps.readers", "read the label files of a public set, write a datalist"),
    "experiments": (
        "monai_afire.apps.experiments",
        "repeat a bundle over seeds, label fractions and initializations",
    ),
    "package": (
        "monai_afire.apps.zoo",
        "write a pull request to MONAI's Model Zoo, and run the zoo's checks",
    ),
    "watch": (
        "monai_afire.apps.worklist.watch",
        "score the radiographs that arrive in a folder, each once",
    ),
}
_PREPARATION = "monai_afire.apps.runs.start_bundle"
_COMMANDS = ("list", "copy", "options", "run", "demo", "check", *_MODULES)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the command.

    Args:
        arguments: words of the command line, those of the process if None.

    Returns:
        Exit status: that of what was started, 0, 130 after Ctrl-C, or 1 after an error, whose message goes to the
        standard error output.

    Example:
        >>> main(["copy", "afire", "."])
        1
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        return until_unread(lambda: _started(words)) or 0
    except KeyboardInterrupt:
        print(f"\n{stopped_line(words[0] == 'run')}", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE


def _started(words: list[str]) -> int:
    """Do what the words say."""
    try:
        if words[0] in _MODULES:
            if problem := wrong_words(words[0], words[1:]):
                raise ValueError(problem)
            return hand_over(["python", "-m", _MODULES[words[0]][0], *words[1:]])
        if problem := _unknown_command(words[0]):
            raise ValueError(problem)
        own, overrides = _split(words) if words[0] == "run" else (words, [])
        options = _parser().parse_args(own, argparse.Namespace(overrides=overrides))
        return options.function(options)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _unknown_command(word: str) -> str | None:
    """A first word that is no command, where one is near, or a bundle or config that "run" starts."""
    if word.startswith("-") or word in _COMMANDS:
        return None
    bundles = packaged_bundles()
    meanings = {
        config: f"run BUNDLE {config}" for each in bundles.values() for config in each.configs()[0]
    }
    meanings |= {name: f"run {name} train" for name in bundles}
    meanings |= {name: name for name in _COMMANDS}
    close = get_close_matches(word, meanings, n=1)
    return f"there is no command {word!r}; did you mean {meanings[close[0]]!r}?" if close else None


def _version() -> str:
    """Of the installed package, which is not imported."""
    try:
        return version("monai-afire")
    except PackageNotFoundError:
        return "not installed"


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Words before the first option, and the others; "run --help" without a name prints our own help."""
    first = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    return (words, []) if first == 1 else (words[:first], words[first:])


def _list(options: argparse.Namespace) -> int:
    bundles = packaged_bundles()
    width = max(map(len, bundles))
    for name, bundle in bundles.items():
        print(f"{name:{width}}  {bundle.title}")
    return 0


def _copy(options: argparse.Namespace) -> int:
    copy = find_bundle(options.name).copy_to(Path(options.folder or Path("bundles", options.name)))
    print(f"{copy.folder}: a copy of the bundle {options.name}")
    print(f"start it: monai-afire run {quoted(options.folder or options.name)} train")
    return 0


def _options(options: argparse.Namespace) -> int:
    bundle = find_bundle(options.name)
    files = bundle.config_files(options.config or ["train"])
    return hand_over(["python", "-m", "monai_afire.apps.runs", *map(str, files)])


def _run(options: argparse.Namespace) -> int:
    if not options.config and {"--help", "-h"} & set(options.overrides):
        return _options(options)
    bundle = _bundle_to_run(options)
    root = [] if "bundle_root" in option_words(options.overrides) else _root_option(bundle)
    files = _checked_files(bundle, options)
    command = bundle_command(files, [*root, *passed_on(options.overrides)])
    print(f"$ {shown(command)}")
    return hand_over(command, says_its_stop=_prepare_process(files))


def _prepare_process(files: Sequence[Path]) -> bool:
    """Whether configs prepare their process as the package's do; others may write before they answer Ctrl-C."""
    return any(_PREPARATION in path.read_text(encoding="utf-8") for path in files)


def _bundle_to_run(options: argparse.Namespace) -> Bundle:
    """The bundle by its name, which comes before that of the config."""
    try:
        return find_bundle(options.name)
    except BundleError as error:
        first = next(iter(options.config), "")
        if first not in packaged_bundles():
            raise
        raise BundleError(f"{error}; the bundle comes first: run {first} {options.name}") from None


def _checked_files(bundle: Bundle, options: argparse.Namespace) -> list[Path]:
    """Configs of a run, whose overrides have paths that are there."""
    files = bundle.config_files(options.config)
    if problems := wrong_options(files, options.overrides, bundle.folder):
        raise BundleError("nothing was started: " + "; ".join(problems))
    return files


def _check(options: argparse.Namespace) -> int:
    marked = 0
    for path in config_paths(options.config):
        codes = code_in_config(path)
        print(listing(path, codes))
        marked += sum(bool(code.reason) for code in codes)
    print(
        f"{marked} marked: {'read them before you run these configs' if marked else 'read the others, too'}"
    )
    return 1 if marked else 0


def _demo(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    bundle = packaged_bundles()["afire"]
    settings = [word for name, value in _DEMO.items() for word in (f"--{name}", str(value))]
    command = bundle_command(bundle.config_files(["train"]), [*_root_option(bundle), *settings])
    print(f"$ cd {shown([str(folder)])}\n$ {shown(command)}")
    status = run_in(folder, command)
    picture = folder / "runs" / "afire" / "latest" / "restoration.png"
    if status == 0:
        print(
            f"\nOpen {picture}: normal radiographs, the same with painted lesions, where "
            "these are, and what the network restores."
        )
    return status


def _root_option(bundle: Bundle) -> list[str]:
    """The option that names the bundle's folder; configs know ``bundles/NAME`` without it."""
    name = bundle.folder.as_posix()
    if bundle.folder == Path("bundles", bundle.name):
        return []
    return ["--bundle_root", passed_word("bundle_root", name)]


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "monai-afire", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=layout
    )
    parser.add_argument("--version", action="version", version=f"monai-afire {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(
        name: str, function: Callable[[argparse.Namespace], int], help: str, more: str = ""
    ) -> Callable[..., Any]:
        command = commands.add_parser(
            name, help=help, description=more or f"{help}.", formatter_class=layout
        )
        command.set_defaults(function=function)
        return command.add_argument

    add("list", _list, "name the bundles")
    argument = add("copy", _copy, "copy a bundle to a folder to edit; nothing is overwritten")
    argument("name", metavar="NAME", help="of a bundle, see list")
    argument("folder", metavar="FOLDER", nargs="?", help="new folder (default: bundles/NAME)")
    config = (
        "of the bundle, such as train; then overlays of it, such as paper, or paths of your own"
    )
    for argument in (
        add("options", _options, "show what can be set in a run: name, default, meaning"),
        add("run", _run, "start a bundle; MONAI gets any --key value after its configs", _RUN_HELP),
    ):
        argument("name", metavar="NAME", help="of a bundle, see list, or the folder of a copy")
        argument("config", metavar="CONFIG", nargs="*", help=config)
    argument = add("demo", _demo, "pre-train in miniature, and look at a picture", _DEMO_HELP)
    argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        default="monai_afire_demo",
        help="default: %(default)s",
    )
    argument = add("check", _check, "list what configs would run, without running it", _CHECK_HELP)
    argument(
        "config",
        metavar="CONFIG",
        nargs="+",
        help="JSON file, or a folder of them, such as a bundle",
    )
    for name, (_, summary) in _MODULES.items():
        commands.add_parser(name, help=summary)
    return parser
