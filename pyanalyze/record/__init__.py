"""Capture safely: sample NVML beside a command, look at this moment, and say what this machine can capture.

Needs neither polars nor the compiled core: copy the package to the machine with the GPU, with click and nvidia-ml-py.
"""

from pyanalyze.record.doctor import Finding, diagnose
from pyanalyze.record.manifest import pod_manifest
from pyanalyze.record.now import now, setup
from pyanalyze.record.sampler import Recording, record

__all__ = ["Finding", "Recording", "diagnose", "now", "pod_manifest", "record", "setup"]
