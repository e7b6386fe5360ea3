"""Rows of features that stay on disk, read a chunk at a time.

The objective of a linear head is a function of the logits (N, C), which fit in memory long after the features (N, A) do
not. All it needs of the features is a pass over them, forward and backward; `row_chunks` gives that pass for features in
memory and on disk alike.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from icda.errors import InputError, InputTypeError

CHUNK_BYTES = 4 * 2**20  # small enough for the last level of cache: a block is read from memory once and used twice
BLOCK = 16_384  # rows scaled at once, so that a memory-mapped array is never copied as a whole in float64
IN_MEMORY_BYTES = 256 * 2**20  # a mapped file whose rows take less than this is simply read


class StoredRows:
    """A (N, A) array on disk, of which no more than a chunk is in memory at any time.

    `array` is usually a `np.memmap`, of any real dtype and order; float64 is computed in as it is, all else in float32.
    Pages of the file are given back after each chunk, so that they do not count as this process's memory. Selecting rows,
    with a mask or ascending row numbers, copies nothing.

    >>> rows = StoredRows(np.arange(6, dtype=np.float16).reshape(3, 2))
    >>> rows.shape, rows.dtype, len(rows[np.array([True, False, True])])
    ((3, 2), torch.float32, 2)
    >>> [(span, block.tolist()) for span, block in rows[[0, 2]].chunks()]
    [(slice(0, 2, None), [[0.0, 1.0], [4.0, 5.0]])]
    """

    def __init__(self, array: np.ndarray, selected: np.ndarray | None = None) -> None:
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise InputError(f"StoredRows expects a (N, A) array of real numbers, got {array.shape} of {array.dtype}.")
        self.array, self.selected = array, selected
        self.dtype = torch.float64 if array.dtype == np.float64 else torch.float32
        self._mapping = mapping_of(array)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.array.shape[1]

    def __len__(self) -> int:
        return len(self.array) if self.selected is None else len(self.selected)

    def __getitem__(self, rows: Any) -> StoredRows:
        rows = np.asarray(rows)
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise InputError(f"a mask over {len(self)} rows must have that many entries, got {rows.shape}.")
            rows = rows.nonzero()[0]
        if rows.ndim != 1 or (len(rows) and (rows[0] < 0 or rows[-1] >= len(self) or (np.diff(rows) <= 0).any())):
            raise IndexError(f"rows on disk are selected by a mask or by ascending numbers in 0..{len(self) - 1}.")
        return StoredRows(self.array, rows if self.selected is None else self.selected[rows])

    def numpy(self) -> np.ndarray:
        """The array itself, or a copy of the rows that are selected."""
        return self.array if self.selected is None else self.array[self.selected]

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Spans of rows and their values (n, A), in order. A block is overwritten by the next one."""
        step = max(1, min(len(self), rows_per_chunk(self.shape[1], self.dtype)))
        buffer = torch.empty(step, self.shape[1], dtype=self.dtype)
        for start in range(0, len(self), step):
            span = slice(start, min(start + step, len(self)))
            block = buffer[: span.stop - start]
            block.numpy()[...] = self._read(span)
            # Mapped pages that were read count as resident until the machine needs them: say that we do not.
            if self._mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
                self._mapping.madvise(mmap.MADV_DONTNEED)
            yield span, block

    def _read(self, span: slice) -> np.ndarray:
        if self.selected is None:
            return self.array[span]
        numbers = self.selected[span]
        near = self.array[numbers[0] : numbers[-1] + 1]
        return near if len(near) == len(numbers) else near[numbers - numbers[0]]


Rows = Tensor | StoredRows


def row_chunks(rows: Rows) -> Iterator[tuple[slice, Tensor]]:
    """Spans of rows and their values; views where the rows are in memory."""
    if isinstance(rows, StoredRows):
        yield from rows.chunks()
        return
    step = rows_per_chunk(rows.shape[1], rows.dtype)
    for start in range(0, len(rows), step):
        span = slice(start, min(start + step, len(rows)))
        yield span, rows[span]


def rows_per_chunk(width: int, dtype: torch.dtype) -> int:
    return max(1, CHUNK_BYTES // (max(width, 1) * dtype.itemsize))


def times(rows: Rows, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """rows @ weight.T: (N, A), (C, A) -> (N, C)."""
    if isinstance(rows, Tensor):
        return torch.mm(rows, weight.T, out=out)
    if out is None:
        out = torch.empty(len(rows), len(weight), dtype=rows.dtype)
    for span, block in row_chunks(rows):
        torch.mm(block, weight.T, out=out[span])
    return out


def transposed_times(rows: Rows, gradient: Tensor) -> Tensor:
    """gradient.T @ rows: (N, A), (N, C) -> (C, A)."""
    if isinstance(rows, Tensor):
        return gradient.T @ rows
    out = torch.zeros(gradient.shape[1], rows.shape[1], dtype=rows.dtype)
    for span, block in row_chunks(rows):
        out.addmm_(gradient[span].T, block)
    return out


def feature_moments(X: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature in float64, a few rows at a time; 0 for a feature that is constant.

    >>> [part.tolist() for part in feature_moments(np.array([[1.0, 5.0], [3.0, 5.0]], dtype=np.float16))]
    [[2.0, 5.0], [1.0, 0.0]]
    """
    share = np.full(len(X), 1 / len(X)) if weights is None else weights / weights.sum(dtype=np.float64)
    spans = [slice(start, start + BLOCK) for start in range(0, len(X), BLOCK)]
    mean = sum(share[span].astype(np.float64) @ X[span] for span in spans)
    deviation = np.sqrt(sum(share[span].astype(np.float64) @ np.square(X[span] - mean) for span in spans))
    # A sum of N equal numbers is off by up to N eps of itself: what rounding leaves a constant feature is no signal.
    return mean, np.where(deviation <= len(X) * np.finfo(np.float64).eps * np.abs(mean), 0.0, deviation)


def is_large_on_disk(array: Any) -> bool:
    """Whether an array is mapped from a file and too large to be read as a whole."""
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiub":
        return False
    return array.size * 4 >= IN_MEMORY_BYTES and _memmap_of(array) is not None


def mapping_of(array: np.ndarray) -> mmap.mmap | None:
    """The mapping whose pages may be given back; None for memory, and for copy-on-write maps, which would lose writes."""
    mapped = _memmap_of(array)
    return None if mapped is None or mapped.mode == "c" else mapped._mmap  # type: ignore[attr-defined]


def _memmap_of(array: Any) -> np.memmap | None:
    """The memmap that an array is, or is a view of."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and getattr(array, "_mmap", None) is not None:
            return array
        array = array.base
    return None


def refuse_sparse(X: Any, name: str, owner: str) -> None:
    if issparse(X):
        raise InputTypeError(
            f"{owner} takes dense features, and {name} is a sparse matrix of shape {X.shape}: use {name}.toarray(), or "
            "reduce it first (sklearn.decomposition.TruncatedSVD in a Pipeline)."
        )
