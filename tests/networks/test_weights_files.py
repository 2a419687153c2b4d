# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Finding encoders in checkpoint files of every nesting, and refusing what is broken, dangerous or foreign."""

from __future__ import annotations

import argparse
import logging
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.engines import SupervisedTrainer
from safetensors.torch import save_file
from torch import nn

from monai_afire.handlers import Training
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.networks.weights.description import describe, with_description
from monai_afire.networks.weights.weight_loading import load_encoder_weights

State = dict[str, torch.Tensor]


def build(seed: int = 0, **options: Any) -> ViTEncoder:
    """An encoder of which every parameter is random."""
    torch.manual_seed(seed)
    default = {"img_size": 32, "patch_size": 16, "hidden_size": 24, "num_layers": 2, "num_heads": 2}
    encoder = ViTEncoder(**(default | options))
    for parameter in encoder.parameters():
        parameter.data = torch.randn_like(parameter)
    return encoder


def build_afire(seed: int) -> AFiRe:
    """A network whose teacher differs from its student."""
    network = AFiRe(
        build(seed), num_clusters=4, head_dim=8, decoder_dim=8, decoder_layers=1, decoder_heads=2
    )
    network.teacher_encoder.load_state_dict(build(seed + 1).state_dict())
    return network


def timm_names(encoder: ViTEncoder) -> State:
    names = {
        "patch_embedding.patch_embeddings": "patch_embed.proj",
        "patch_embedding.position_embeddings": "pos_embed",
    }
    names |= {"attn.out_proj": "attn.proj", "mlp.linear": "mlp.fc"}
    state = {
        name: tensor for name, tensor in encoder.state_dict().items() if "norm_cross" not in name
    }
    for old, new in names.items():
        state = {name.replace(old, new): tensor for name, tensor in state.items()}
    return state


def prefixed(prefix: str, state: State) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}


def same(first: nn.Module, second: nn.Module) -> bool:
    """Whether all parameters that the forward pass uses are equal."""
    other = second.state_dict()
    return all(
        torch.equal(tensor, other[name])
        for name, tensor in first.state_dict().items()
        if "cross" not in name
    )


STUDENT, TEACHER = build(1), build(2)
ONE, TWO = timm_names(STUDENT), timm_names(TEACHER)
DECODER = {"decoder_blocks.0.norm1.weight": torch.ones(4), "decoder_embed.weight": torch.ones(4, 4)}
DECODER |= {"mask_token": torch.ones(1, 1, 4), "decoder_pos_embed": torch.ones(1, 5, 4)}

# content, expected prefix; each holds the teacher, some the student too
CHECKPOINTS: dict[str, tuple[Any, str]] = {
    "flat": (TWO, ""),
    "ordered": (OrderedDict(TWO), ""),
    "dino": (
        {
            "student": prefixed("module.backbone.", ONE)
            | {"module.head.mlp.0.weight": torch.ones(2, 2)},
            "teacher": prefixed("backbone.", TWO) | {"head.mlp.0.weight": torch.ones(2, 2)},
            "optimizer": {
                "state": {0: {"exp_avg": torch.ones(2), "step": 3}},
                "param_groups": [{"lr": 0.1}],
            },
            "epoch": 100,
        },
        "teacher.backbone.",
    ),
    "dino backbone": (prefixed("module.", TWO), ""),
    "mae": ({"model": TWO | DECODER, "epoch": 3, "scaler": {"scale": 2.0}}, "model."),
    "afire official": (
        {"teacher": prefixed("module.encoder.", TWO), "student": prefixed("encoder.", ONE)},
        "teacher.encoder.",
    ),
    "ema": ({"state_dict": ONE, "state_dict_ema": TWO, "arch": "vit_tiny"}, "state_dict_ema."),
    "momentum": (
        {"state_dict": prefixed("base_encoder.", ONE) | prefixed("momentum_encoder.", TWO)},
        "state_dict.momentum_encoder.",
    ),
    "compiled": (prefixed("_orig_mod.module.encoder.", TWO), "encoder."),
    "monai": (TEACHER.state_dict(), ""),
    "classifier": (
        {"model": prefixed("encoder.", TEACHER.state_dict()) | {"head.weight": torch.ones(2, 2)}},
        "model.encoder.",
    ),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("kind", ["memory", "torch", "legacy"])
def test_every_nesting_is_found(name: str, kind: str, tmp_path: Path) -> None:
    content, prefix = CHECKPOINTS[name]
    given = content
    if kind != "memory":
        given = tmp_path / "weights.pth"
        torch.save(content, given, _use_new_zipfile_serialization=kind == "torch")
    encoder = build(5)
    report = load_encoder_weights(encoder, given)
    assert same(encoder, TEACHER)
    assert report.prefix == prefix
    assert (report.missing, report.unexpected, report.resized) == ([], [], [])
    assert len(report.loaded) == len(ONE) + (4 if name in ("monai", "classifier") else 0)
    if kind != "memory":
        assert report.file == str(given)


@pytest.mark.parametrize("name", ["dino", "afire official", "ema", "momentum"])
def test_student_on_demand(name: str) -> None:
    encoder = build(5)
    load_encoder_weights(encoder, CHECKPOINTS[name][0], branch="student")
    assert same(encoder, STUDENT)


def test_mae_decoder_is_dropped() -> None:
    report = load_encoder_weights(build(5), CHECKPOINTS["mae"][0], strict=True)
    assert sorted(report.dropped) == sorted(DECODER)


def test_safetensors_by_name_or_content(tmp_path: Path) -> None:
    for name in ("weights.safetensors", "weights.bin"):
        save_file(ONE, tmp_path / name, metadata={"format": "pt"})
        encoder = build(5)
        assert load_encoder_weights(encoder, str(tmp_path / name)).missing == []
        assert same(encoder, STUDENT)


def test_half_precision_files_and_inputs_left_alone() -> None:
    halves = {name: tensor.half() for name, tensor in ONE.items()}
    before = {name: tensor.clone() for name, tensor in halves.items()}
    encoder = build(5)
    load_encoder_weights(encoder, halves)
    assert encoder.norm.weight.dtype == torch.float32
    torch.testing.assert_close(encoder.norm.weight.data, halves["norm.weight"].float())
    encoder.norm.weight.data.zero_()
    assert list(halves) == list(before)
    assert all(torch.equal(halves[name], before[name]) for name in before)


@pytest.mark.parametrize("branch", ["teacher", "student"])
@pytest.mark.parametrize("file", ["model.pt", "checkpoint.pt"])
def test_own_training_runs(branch: str, file: str, tmp_path: Path) -> None:
    network = build_afire(10)
    optimizer = torch.optim.AdamW(network.encoder.parameters())
    network.encoder(torch.rand(1, 1, 32, 32)).sum().backward()
    optimizer.step()
    SupervisedTrainer(
        device="cpu",
        max_epochs=1,
        train_data_loader=[None],
        network=network,
        optimizer=optimizer,
        loss_function=nn.Identity(),
        iteration_update=lambda engine, batch: {"loss": torch.zeros(())},
        train_handlers=[Training(network, None, str(tmp_path))],
        decollate=False,
    ).run()
    encoder = build(5)
    report = load_encoder_weights(encoder, tmp_path / "models" / file, branch=branch)
    assert same(encoder, network.teacher_encoder if branch == "teacher" else network.encoder)
    assert (report.missing, report.unexpected) == ([], [])
    assert encoder.norm.eps == 1e-5


def test_student_and_teacher_of_a_network_both_start_from_the_weights() -> None:
    network = build_afire(10)
    head = network.head.state_dict()["mlp.0.weight"].clone()
    load_encoder_weights(network, ONE)
    assert same(network.encoder, STUDENT)
    assert same(network.teacher_encoder, STUDENT)
    assert network.encoder.norm.eps == network.teacher_encoder.norm.eps == 1e-6
    assert not any(parameter.requires_grad for parameter in network.teacher_encoder.parameters())
    assert torch.equal(network.head.state_dict()["mlp.0.weight"], head)


def test_one_of_several_by_key() -> None:
    several = {"first": {"encoder": ONE}, "second": {"encoder": TWO}}
    with pytest.raises(
        ValueError, match=r"holds 2 encoders, below \['first.encoder.', 'second.encoder.'\].*key="
    ):
        load_encoder_weights(build(5), several)
    for key, expected in (
        ("first", STUDENT),
        ("second.encoder", TEACHER),
        ("second.encoder.", TEACHER),
    ):
        encoder = build(5)
        load_encoder_weights(encoder, several, key=key)
        assert same(encoder, expected)
    with pytest.raises(ValueError, match=r"nothing lies below key='third'.*first.encoder"):
        load_encoder_weights(build(5), several, key="third")


class Payload:
    """Unpickling it would make a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("writer", ["torch", "legacy", "pickle"])
def test_code_in_a_pickle_never_runs(writer: str, tmp_path: Path) -> None:
    file, marker = tmp_path / "model.pth", tmp_path / "executed"
    content = ONE | {"extra": Payload(marker)}
    if writer == "pickle":
        file.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=writer == "torch")
    encoder = build(5)
    with pytest.raises(
        ValueError, match=r"model\.pth.*(refused|not a readable PyTorch checkpoint)"
    ) as caught:
        load_encoder_weights(encoder, file)
    assert not marker.exists()
    assert "\n" not in str(caught.value)
    assert same(encoder, build(5))
    if writer != "pickle":
        assert "mkdir" in str(caught.value)
        assert "weights_only=False" in str(caught.value)
        torch.load(file, weights_only=False)  # the payload is live
        assert marker.exists()


def test_training_arguments_beside_the_weights_are_no_code(tmp_path: Path) -> None:
    arguments = argparse.Namespace(lr=0.1, arch="vit")
    torch.save({"model": ONE, "args": arguments}, tmp_path / "full.pth")
    encoder = build(5)
    load_encoder_weights(encoder, tmp_path / "full.pth")
    assert same(encoder, STUDENT)
    with pytest.raises(pickle.UnpicklingError):  # the permission ends with the load
        torch.load(tmp_path / "full.pth", weights_only=True)


BROKEN = {
    "empty.pth": b"",
    "page.pth": b"<!DOCTYPE html><html>Sign in</html>",
    "noise.bin": bytes(range(256)) * 8,
    "empty.safetensors": b"",
    "noise.safetensors": bytes(range(256)) * 8,
    "header.safetensors": (2**40).to_bytes(8, "little") + b"{}",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(BROKEN[name])
    with pytest.raises(ValueError, match=rf"{name} is not a readable .*again") as caught:
        load_encoder_weights(build(5), tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_truncated_files(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"weights.{kind}"
    torch.save(ONE, file) if kind == "pth" else save_file(ONE, file)
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="is not a readable"):
        load_encoder_weights(build(5), file)


def test_torchscript_archive(tmp_path: Path) -> None:
    scripted = torch.jit.trace(nn.Linear(2, 2), torch.rand(1, 2))
    torch.jit.save(scripted, tmp_path / "scripted.pt")
    with pytest.raises(
        ValueError,
        match=r"TorchScript archive: open it with torch.jit.load and save its state_dict",
    ):
        load_encoder_weights(build(5), tmp_path / "scripted.pt")


def test_missing_file_folder_and_files_without_weights(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.pth"):
        load_encoder_weights(build(5), tmp_path / "absent.pth")
    torch.save(ONE, tmp_path / "model.pt")
    with pytest.raises(FileNotFoundError, match=tmp_path.name):
        load_encoder_weights(build(5), tmp_path)
    torch.save([1, 2, 3], tmp_path / "list.pt")
    with pytest.raises(ValueError, match="holds no floating-point tensors, it is a list"):
        load_encoder_weights(build(5), tmp_path / "list.pt")
    with pytest.raises(ValueError, match="holds no floating-point tensors"):
        load_encoder_weights(build(5), {})


def swin_names() -> State:
    keys = [
        "patch_embed.proj.weight",
        "layers.0.blocks.0.norm1.weight",
        "layers.0.blocks.0.attn.qkv.weight",
    ]
    return {name: torch.ones(4, 4) for name in keys}


@pytest.mark.parametrize(
    "content",
    [
        {"conv1.weight": torch.ones(2, 2)},
        swin_names(),
        {"patch_embed.proj.weight": torch.ones(2)},
        prefixed(
            "another_",
            {"patch_embed.proj.weight": torch.ones(2), "blocks.0.norm1.weight": torch.ones(2)},
        ),
    ],
)
def test_nothing_matched_shows_both_sides(content: State) -> None:
    with pytest.raises(ValueError, match=r"no encoder weights found") as caught:
        load_encoder_weights(build(5), content)
    assert next(iter(content)) in str(caught.value)
    assert "patch_embedding.position_embeddings" in str(caught.value)


def test_branch_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="branch must be"):
        load_encoder_weights(build(5), ONE, branch="both")


def test_another_width_is_an_error_that_names_the_settings() -> None:
    encoder = build(5, hidden_size=32)
    with pytest.raises(
        ValueError, match=r"position_embeddings: \(1, 4, 24\) in the file, \(1, 4, 32\) in the"
    ) as caught:
        load_encoder_weights(encoder, ONE)
    assert "hidden_size=24, mlp_dim=96, num_layers=2" in str(caught.value)
    assert same(encoder, build(5, hidden_size=32))
    with pytest.raises(
        ValueError,
        match=r"8 tensors .*blocks.0.mlp.linear1.weight: \(96, 24\).*\(40, 24\)|mlp_dim=96",
    ):
        load_encoder_weights(build(5, mlp_dim=40), ONE)


def test_values_that_are_not_finite() -> None:
    bad = ONE | {"blocks.1.norm2.bias": torch.full((24,), float("nan"))}
    encoder = build(5)
    with pytest.raises(
        ValueError, match=r"NaN or infinite values in 1 tensors \(blocks.1.norm2.bias\)"
    ):
        load_encoder_weights(encoder, bad)
    assert same(encoder, build(5))


@pytest.mark.parametrize("normalization", [([0.5, 0.5], 0.5), (0.5, 0.0), (0.5, [1.0, -1.0, 1.0])])
def test_normalization_out_of_range(normalization: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r"source_normalization must be \(mean, std > 0\)"):
        load_encoder_weights(build(5), ONE, source_normalization=normalization)


def test_what_does_not_fit_exactly_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    odd = ONE | {"odd.weight": torch.ones(2)}
    with caplog.at_level(logging.INFO, logger="monai_afire"):
        exact = load_encoder_weights(build(5), ONE)
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert str(exact) == caplog.records[0].message
        caplog.clear()
        assert load_encoder_weights(build(5), odd).unexpected == ["odd.weight"]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
    encoder = build(5)
    with pytest.raises(ValueError, match="strict is set"):
        load_encoder_weights(encoder, odd, strict=True)
    assert same(encoder, build(5))


def test_surplus_blocks_are_an_error_as_missing_ones_are() -> None:
    encoder = build(5, num_layers=1)
    with pytest.raises(
        ValueError, match=r"1 blocks that the encoder lacks \(blocks\.1\).*num_layers=2"
    ):
        load_encoder_weights(encoder, ONE)
    assert same(encoder, build(5, num_layers=1))


@pytest.mark.parametrize(
    ("size", "grid"), [((256, 64), (16, 4)), ((128, 128), (8, 8)), ((128, 512), (8, 32))]
)
@pytest.mark.parametrize("kind", ["state dict", "model.pt", "checkpoint.pt"])
def test_grid_that_a_file_states_is_not_guessed(
    tmp_path: Path, kind: str, size: tuple, grid: tuple
) -> None:
    """Positions of 4 x 16 patches are resampled (bicubic, antialiased, as by timm), also to as many patches."""

    def make(img_size: tuple[int, int]) -> ViTEncoder:
        return ViTEncoder(
            img_size=img_size, patch_size=16, hidden_size=48, num_layers=2, num_heads=2
        )

    old, new = TransferClassifier(make((64, 256)), num_classes=1), make(size)
    state = with_description(old.state_dict(), describe(old))
    source: Any = state
    if kind != "state dict":
        source = tmp_path / kind
        torch.save(state if kind == "model.pt" else {"network": state, "optimizer": {}}, source)
    load_encoder_weights(new, source)
    positions = old.encoder.patch_embedding.position_embeddings.detach()
    picture = positions.mT.reshape(1, -1, 4, 16)
    expected = (
        nn.functional.interpolate(picture, grid, mode="bicubic", antialias=True).flatten(2).mT
    )
    torch.testing.assert_close(
        new.patch_embedding.position_embeddings.detach(), expected, rtol=0, atol=1e-5
    )


def test_networks_without_a_known_encoder() -> None:
    for net, part in (
        (nn.Linear(2, 2), "none"),
        (nn.ModuleDict({"encoder": nn.Linear(2, 2)}), "encoder"),
    ):
        with pytest.raises(TypeError, match=rf"is no .*ViTEncoder.*its parts: {part}"):
            load_encoder_weights(net, ONE)
