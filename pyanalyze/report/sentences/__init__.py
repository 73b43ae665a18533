"""The sentences of a report: its summary and its sections, one module for each topic.

They are built here from enums and numbers, which other modules decide: :mod:`pyanalyze.analysis.impact`. A module
imports only from those that stand above it:

- ``words``: small words and lengths that several topics share
- ``tenants``: names of tenants and of MPS groups
- ``missing``: why something is not known, and what to record for it
- ``mode``: sharing mode, confidence, weights of the evidence, configured mode
- ``copies``: directions of copies, memory of the host, devices with copies only
- ``time_split``: where the time of one program goes, and what limits it
- ``streams``: streams of a process, and how much overlap they lost
- ``co_run``: the time in which all tenants co-ran
- ``residency``: residency intervals and context switches
- ``gpu_time``: GPU time of each tenant
- ``slowdown``: the victim, by how much, and its aggressors
- ``cause``: whether sharing is the cause, and what the added latency was spent on
- ``samples``: samples and hardware counters
- ``occupancy``: SM occupancy
- ``capture``: captures and what they lack, clocks, versions, GPUs without work
- ``window``: the analysed window, and how much of the recording it is
- ``lead``: the first sentences of page and summary

Sentences on what samples and listings alone say of a device are in :mod:`pyanalyze.report.sampled_text`.
"""
