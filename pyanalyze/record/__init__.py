"""Capture safely: sample NVML beside a command, look at this moment, and say what this machine can capture."""

from pyanalyze.record.doctor import Finding, diagnose
from pyanalyze.record.now import now, setup
from pyanalyze.record.sampler import Recording, nsys_command, record

__all__ = ["Finding", "Recording", "diagnose", "now", "nsys_command", "record", "setup"]
