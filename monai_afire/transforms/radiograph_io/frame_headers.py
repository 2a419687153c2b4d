# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a compressed frame says of itself: its codec, size, samples and bits, read without a decoder."""

from __future__ import annotations

from dataclasses import dataclass

# Markers of ISO/IEC 10918-1 and 14495-1: a frame header is SOF0 to SOF15, less DHT, JPG and DAC, or SOF55 of JPEG-LS.
_JPEG_LS = 0xF7
_JPEG_FRAMES = {*range(0xC0, 0xD0), _JPEG_LS} - {0xC4, 0xC8, 0xCC}
_JPEG_CODECS = {
    0xC0: "JPEG baseline",
    0xC1: "JPEG extended",
    0xC3: "JPEG lossless",
    _JPEG_LS: "JPEG-LS",
}
_FILL, _START_OF_SCAN = 0xFF, 0xDA
_JPEG_START = b"\xff\xd8\xff"
_JPEG_2000_START = b"\xff\x4f\xff\x51"  # SOC and SIZ of ISO/IEC 15444-1
_JP2_START = b"\x00\x00\x00\x0cjP  "  # a file around the code stream, which the standard forbids and some writers leave


@dataclass(frozen=True)
class FrameHeader:
    """Codec, size in pixels, samples per pixel and bits per sample of a compressed frame."""

    codec: str
    rows: int
    columns: int
    samples: int
    precision: int


def codec_of(frame: bytes) -> str:
    """Name of the codec by a frame's header, "" where it is none of the JPEG families."""
    try:
        return read_frame_header(frame).codec
    except ValueError:
        return ""


def read_frame_header(frame: bytes) -> FrameHeader:
    """
    Header of a frame of JPEG, JPEG-LS or JPEG 2000.

    Raises:
        ValueError: When there is none.
    """
    if frame.startswith(_JP2_START):
        frame = frame[max(frame.find(_JPEG_2000_START), 0) :]
    if frame.startswith(_JPEG_2000_START):
        return _jpeg_2000_header(frame)
    if frame.startswith(_JPEG_START):
        return _jpeg_header(frame)
    raise ValueError("the frame has no header")


def _jpeg_header(frame: bytes) -> FrameHeader:
    """Find the frame header among the marker segments of a JPEG or JPEG-LS stream."""
    position = 2  # after the start of image
    while position + 10 <= len(frame):
        fill, marker, start = frame[position], frame[position + 1], position + 4
        if fill != _FILL or marker == _START_OF_SCAN:
            break
        if marker in _JPEG_FRAMES:
            rows, columns = _number(frame, start + 1, 2), _number(frame, start + 3, 2)
            return FrameHeader(
                _JPEG_CODECS.get(marker, "JPEG"), rows, columns, frame[start + 5], frame[start]
            )
        position += 1 if marker == _FILL else 2 + _number(frame, position + 2, 2)
    raise ValueError("the frame has no header")


def _jpeg_2000_header(frame: bytes) -> FrameHeader:
    """The segment SIZ: the picture is what lies between its offset and the end of the reference grid."""
    if len(frame) < 43:
        raise ValueError("the frame has no header")
    right, bottom, left, top = (_number(frame, start, 4) for start in (8, 12, 16, 20))
    samples, precision = _number(frame, 40, 2), (frame[42] & 0x7F) + 1
    return FrameHeader("JPEG 2000", bottom - top, right - left, samples, precision)


def _number(frame: bytes, start: int, length: int) -> int:
    return int.from_bytes(frame[start : start + length], "big")
