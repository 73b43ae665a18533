"""Kernels of NVIDIA's closed libraries, told by their names: no program can edit them, only call them differently."""

from __future__ import annotations

import re
from typing import Final

from pyanalyze.vocabulary import Word

__all__ = ["Library", "library_of"]


class Library(Word):
    """A library whose kernels are chosen by the shapes and types of a call."""

    CUBLAS = "cuBLAS"
    CUDNN = "cuDNN"


#: How the libraries name their kernels; there is no list of NVIDIA's. `nvjet_*` is of cuBLAS from 12 on, kernels named
#: after an architecture (`ampere_sgemm_*`, `sm80_xmma_gemm_*`) or a generator (`cutlass_80_*`) of earlier ones as well.
#: Names of templates of CUTLASS (`cutlass::Kernel<cutlass::gemm::...>`) are of whoever compiled them.
_NAMED: Final = {
    Library.CUDNN: r"^cudnn_|\bcudnn::|^\w+_xmma_(fprop|dgrad|wgrad)|_s?cudnn_|^implicit_convolve_\w*gemm",
    Library.CUBLAS: r"^nvjet_|^(sm\d+_xmma|maxwell|pascal|volta|turing|ampere|hopper)_\w*gemm|(^|<)cutlass_\d+_"
    r"|\bcublas(Lt)?::|^gemv(2T|2N|NSP)_kernel",
}


def library_of(*names: str | None) -> Library | None:
    """Say which library a kernel is of; None: none that is known by its name.

    Parameters
    ----------
    *names
        What the kernel is called: short, or demangled.

    Examples
    --------
    >>> [str(library_of(name)) for name in ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", "ampere_sgemm_64x64_tn", "saxpy")]
    ['cuBLAS', 'cuBLAS', 'None']
    >>> str(library_of("Kernel2", "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_64x64_32x6_nn_align8>"))
    'cuBLAS'
    >>> library_of("Kernel", "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<...>>") is None
    True
    """
    known = [re.sub(r"^void ", "", name) for name in names if name is not None]
    return next(
        (library for library, pattern in _NAMED.items() if any(re.search(pattern, name) for name in known)), None
    )
