"""Collect the tenants that samples, listings and Kubernetes objects name, device by device.

One tenant is one process, or one container of a pod where no process of it is known. What several inputs say of it is
put together. A value of the whole device that an exporter repeats for each pod bounds each of them; it is never summed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import polars as pl

from pyanalyze.analysis.hardware import MPS_PERCENTAGE
from pyanalyze.results.listed import ConfiguredSharing, ListedNode, ListedTenant, SampledShare, Setting, WithoutGpu
from pyanalyze.tables.process_lists import graphics_only
from pyanalyze.text.numbers import bounded_int
from pyanalyze.text.pairs import parse_pairs
from pyanalyze.vocabulary import MPS_SERVER, TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyanalyze.results.listed import ListedKind
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import Basis

__all__ = ["Listed", "configured_sharing", "listed_tenants", "sharing_of"]

#: How busy a device was, best first: all are shares of time, under MIG only the later ones have values.
UTILIZATION = (("gpu_utilization_pct", 100.0), ("gr_engine_active_ratio", 1.0), ("sm_active_ratio", 1.0))
#: Engines beside the SMs that the driver counts, for the whole device and for each process.
VIDEO_ENGINES = ("encoder", "decoder", "jpeg", "ofa")
#: Resource of whole GPUs, or of their replicas.
_GPU = "nvidia.com/gpu"
#: Label of a node whose GPUs the device plugin offers once each.
_NOT_SHARED = "none"
_STRATEGIES = {"time-slicing": Mode.TIME_SLICING, "mps": Mode.MPS}


@dataclass(frozen=True)
class Listed:
    """What the inputs name.

    Attributes
    ----------
    by_device
        Tenants of each device.
    elsewhere
        Tenants of which no input says the GPU.
    sharing
        How each device was set up to be shared.
    settings
        Settings that concern each device.
    general
        Settings that concern no single device.
    nodes
        Nodes of Kubernetes that have GPUs.
    without_gpu
        Pods that ask for GPUs and hold none.
    """

    by_device: Mapping[int, tuple[ListedTenant, ...]]
    elsewhere: tuple[ListedTenant, ...]
    sharing: Mapping[int, ConfiguredSharing]
    settings: Mapping[int, tuple[Setting, ...]]
    general: tuple[Setting, ...]
    nodes: tuple[ListedNode, ...] = ()
    without_gpu: tuple[WithoutGpu, ...] = ()

    @cached_property
    def in_cluster(self) -> bool:
        """Whether the inputs are of a Kubernetes cluster.

        Examples
        --------
        >>> Listed({}, (), {}, {}, ()).in_cluster
        False
        """
        settings = [*self.general, *(one for found in self.settings.values() for one in found)]
        tenants = [*self.elsewhere, *(one for found in self.by_device.values() for one in found)]
        return any(one.key.startswith("k8s_") for one in settings) or any(one.pod for one in tenants)


@dataclass
class _Draft:
    """A tenant while it is put together."""

    kind: ListedKind
    device_id: int | None = None
    placed_by: Basis | None = None
    pid: int | None = None
    process: str | None = None
    process_type: str | None = None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    node: str | None = None
    gi: int | None = None
    ci: int | None = None
    requested: list[str] = field(default_factory=list)
    gpus: int | None = None
    share: float | None = None
    utilization: SampledShare | None = None
    engines: dict[str, SampledShare] = field(default_factory=dict)
    memory: tuple[int | None, int | None, int | None] = (None, None, None)
    times: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)

    def named_by(self, source: str) -> None:
        if source not in self.sources:
            self.sources.append(source)

    def is_of(self, namespace: str | None, pod: str, container: str | None) -> bool:
        """Whether it is of that container; what one of two inputs does not say is no difference."""
        same = [(self.namespace, namespace), (self.container, container)]
        return self.pod == pod and all(a is None or b is None or a == b for a, b in same)


def listed_tenants(tables: TableSet) -> Listed:
    """Collect what samples and configuration name.

    Parameters
    ----------
    tables
        The tables.

    Returns
    -------
    Listed
        Every process, pod and claim once.

    Examples
    --------
    >>> import pyanalyze
    >>> listed_tenants(pyanalyze.load(capture).tables).by_device[0]
    ()
    """
    settings = [_setting(row) for row in tables.configured.iter_rows(named=True)]
    places = tables.configured["device_id"].to_list()
    devices = tables.devices["device_id"].sort().to_list()
    sharing = {number: sharing_of(tables, number) for number in devices}
    drafts = [*_processes(tables)]
    drafts += _pods(tables, sharing)
    _name_pods(drafts, settings)
    _add_clients(drafts, settings, places)
    _add_requests(drafts, settings)
    _add_claims(drafts, tables, settings)
    _place(drafts, tables)
    _limits(drafts, sharing)
    made = [(draft.device_id, _tenant(draft, tables, drafts)) for draft in drafts]
    return Listed(
        {number: tuple(one for place, one in made if place == number) for number in devices},
        tuple(one for place, one in made if place is None),
        sharing,
        {number: tuple(s for s, place in zip(settings, places, strict=True) if place == number) for number in devices},
        tuple(s for s, place in zip(settings, places, strict=True) if place is None),
        _nodes(tables, [one for _, one in made]),
        tuple(
            WithoutGpu(namespace=namespace, pod=name, phase=phase)
            for text, phase in _without_gpu(settings).items()
            for namespace, name in (_split(text),)
            if name is not None
        ),
    )


def _setting(row: Mapping[str, Any]) -> Setting:
    return Setting(source=str(row["source"]), key=str(row["key"]), value=row["value"], pid=row["pid"])


def sharing_of(tables: TableSet, device_id: int) -> ConfiguredSharing:
    """Say how settings share a device, and which nodes' settings were not applied to it.

    Examples
    --------
    >>> import pyanalyze
    >>> sharing_of(pyanalyze.load(capture).tables, 0).shared
    False
    """
    found = configured_sharing(_setting(row) for row in tables.settings_of(device_id))
    others = tables.concerned.other_nodes(device_id)
    if not others:
        return found
    products = list(dict.fromkeys(node.product or "" for node in others))
    mine = len(tables.concerned.candidates.get(device_id, ()))
    return found.model_copy(update={"other_nodes": products, "candidate_nodes": mine})


def configured_sharing(settings: Iterable[Setting]) -> ConfiguredSharing:
    """Say how settings share a device; the names of resources and products say only that they do.

    The label of a node is what took effect there: beside it, configurations that the cluster holds say nothing.

    Examples
    --------
    >>> row = Setting(source="kubernetes", key="k8s_sharing", value="strategy=time-slicing replicas=4", pid=None)
    >>> found = configured_sharing([row])
    >>> found.strategy, found.replicas, found.conflict
    ('time-slicing', 4, False)
    >>> shared = Setting(source="kubernetes", key="k8s_resource", value="resource=nvidia.com/gpu.shared", pid=None)
    >>> configured_sharing([shared]).shared, configured_sharing([shared]).strategy
    (True, None)
    """
    rows = [(setting.key, parse_pairs(setting.value)) for setting in settings]
    chosen = {fields["plugin_config"] for key, fields in rows if key == "k8s_node" and "plugin_config" in fields}
    chosen = chosen or {fields["config"] for key, fields in rows if key == "k8s_policy" and "config" in fields}
    labels = {fields["sharing"] for key, fields in rows if key == "k8s_node" and "sharing" in fields}
    said = [
        fields
        for key, fields in rows
        # A config map may hold several configurations; the label of the node chooses one, else the policy.
        if key == "k8s_sharing" and (not chosen or fields.get("config", None) in {None, *chosen})
        if not labels or "node" in fields or "claim" in fields
    ]
    strategies = {fields["strategy"] for fields in said if "strategy" in fields}
    replicas = {fields["replicas"] for fields in said if "replicas" in fields}
    if labels == {_NOT_SHARED} and not said:
        replicas = {"1"}
    named = any(
        fields.get("resource", "").endswith(".shared") or fields.get("product", "").endswith("-SHARED")
        for _, fields in rows
    )
    return ConfiguredSharing(
        shared=named or bool(said),
        strategy=_STRATEGIES.get(next(iter(strategies))) if len(strategies) == 1 else None,
        replicas=bounded_int(next(iter(replicas)), 1, 1 << 20) if len(replicas) == 1 else None,
        conflict=len(strategies) > 1,
        strategies=[mode for name, mode in _STRATEGIES.items() if name in strategies],
    )


def _processes(tables: TableSet) -> Iterator[_Draft]:
    """Processes that samples list, on each device."""
    rows = tables.samples.filter(pl.col("pid").is_not_null()).with_columns(
        pl.col("metric", "format", "process_type").cast(pl.String)
    )
    rows = _in_instances(rows, tables)
    graphics = {device: graphics_only(tables, device) for device in rows["device_id"].unique()}
    for (device, pid), own in rows.group_by("device_id", "pid", maintain_order=True):
        name, kind = _longest(own["process_name"]), _last(own["process_type"])
        yield _Draft(
            kind=_kind(name, kind, graphics=bool(own.select(graphics[device].any()).item())),
            device_id=device,
            placed_by=None if device is None else "sampled",
            pid=pid,
            process=name,
            process_type=kind,
            gi=_number(own["mig_gi"]),
            ci=_number(own["mig_ci"]),
            utilization=_process_share(own, "sm"),
            engines={name: share for name in VIDEO_ENGINES if (share := _process_share(own, name)) is not None},
            memory=_process_memory(own.filter(pl.col("metric") == "process_memory_bytes")["value"]),
            times=own["time_ns"].drop_nulls().to_list(),
            sources=own["format"].unique(maintain_order=True).to_list(),
        )


def _in_instances(rows: pl.DataFrame, tables: TableSet) -> pl.DataFrame:
    """Rows of processes, those of lists that name the board alone put on the one instance where another list has it.

    `pmon` and `--query-compute-apps` know no instances; the table of nvidia-smi and `-q` do.
    """
    boards = dict(tables.devices.select("device_id", "gpu_uuid").iter_rows())
    numbered = rows.filter(pl.col("mig_gi").is_not_null() & pl.col("device_id").is_not_null())
    found: dict[tuple[str, int], set[int]] = {}
    for device, pid in numbered.select("device_id", "pid").unique(maintain_order=True).iter_rows():
        if boards.get(device) is not None:
            found.setdefault((boards[device], pid), set()).add(device)
    only = [(uuid, pid, devices.pop()) for (uuid, pid), devices in found.items() if len(devices) == 1]
    if not only:
        return rows
    kinds = {"gpu_board": pl.String(), "pid": rows.schema["pid"], "instance": rows.schema["device_id"]}
    instances = pl.DataFrame(only, schema=pl.Schema(kinds), orient="row")
    devices = tables.devices.select("device_id", gpu_board=pl.col("gpu_uuid").cast(pl.String))
    joined = rows.join(devices, on="device_id", how="left", maintain_order="left").join(
        instances, on=["gpu_board", "pid"], how="left", maintain_order="left"
    )
    of_board = pl.col("mig_gi").is_null() & pl.col("instance").is_not_null()
    return joined.with_columns(pl.when(of_board).then("instance").otherwise("device_id").alias("device_id")).drop(
        "gpu_board", "instance"
    )


def _longest(values: pl.Series) -> str | None:
    """The last name of a process; a list that cuts names (pmon, at 15 characters) does not hide the whole one."""
    last = _last(values)
    if last is None:
        return None
    names: list[str] = values.drop_nulls().unique(maintain_order=True).cast(pl.String).to_list()
    return max((name for name in names if _begins(name, last)), key=len)


def _begins(name: str, short: str) -> bool:
    return PurePosixPath(name).name.startswith(PurePosixPath(short).name)


def _number(values: pl.Series) -> int | None:
    known = values.drop_nulls()
    return int(known[0]) if len(known) else None


def _last(values: pl.Series) -> str | None:
    known = values.drop_nulls()
    return str(known[-1]) if len(known) else None


def _kind(name: str | None, process_type: str | None, *, graphics: bool) -> ListedKind:
    if MPS_SERVER in (name or ""):
        return "mps-server"
    if graphics:
        return "graphics"
    return "mps-client" if process_type == "M+C" else "process"


def _process_share(own: pl.DataFrame, engine: str) -> SampledShare | None:
    """Use of an engine by a process; a dash may be no use or no value: it widens the bound and counts for none."""
    rows = own.filter(pl.col("metric") == f"process_{engine}_pct")
    values = rows["value"].drop_nulls()
    if values.is_empty():
        return None
    mean = _mean(values) / 100
    return SampledShare(value=mean, low=mean * len(values) / rows.height, high=mean, n=len(values), listed=rows.height)


def _process_memory(values: pl.Series) -> tuple[int | None, int | None, int | None]:
    known = values.drop_nulls()
    return (None, None, None) if known.is_empty() else (round(_mean(known)), round(max(known)), None)


def _mean(values: pl.Series) -> float:
    return sum(values) / len(values)


def _pods(tables: TableSet, sharing: Mapping[int, ConfiguredSharing]) -> list[_Draft]:
    """Containers that an exporter ascribes values of a device to."""
    rows = tables.samples.filter(pl.col("pods").is_not_null() & pl.col("pid").is_null()).with_columns(
        pl.col("metric", "format").cast(pl.String), pl.col("pods").str.split(" ").alias("each")
    )
    found: list[_Draft] = []
    for (device,), own in rows.group_by("device_id", maintain_order=True):
        several = own.explode("each")["each"].n_unique() > 1 or (device in sharing and sharing[device].shared)
        for (text,), mine in own.explode("each").group_by("each", maintain_order=True):
            namespace, _, rest = str(text).partition("/")
            pod, _, container = rest.partition("/")
            memory = mine.filter(pl.col("metric") == "memory_used_bytes")["value"].drop_nulls()
            peak = None if memory.is_empty() else round(max(memory))
            found.append(
                _Draft(
                    kind="pod",
                    device_id=device,
                    placed_by=None if device is None else "sampled",
                    namespace=namespace or None,
                    pod=pod,
                    container=container or None,
                    gi=mine["mig_gi"][0],
                    utilization=_ascribed(mine, several=several),
                    memory=(None, None, peak) if several or peak is None else (round(_mean(memory)), peak, None),
                    times=mine["time_ns"].drop_nulls().to_list(),
                    sources=mine["format"].unique(maintain_order=True).to_list(),
                )
            )
    return found


def _ascribed(rows: pl.DataFrame, *, several: bool) -> SampledShare | None:
    """What a value of the device says of one of its pods: all of it where the pod is the only one, else a bound."""
    for metric, whole in UTILIZATION:
        values = rows.filter(pl.col("metric") == metric)["value"].drop_nulls()
        if len(values):
            mean = min(_mean(values) / whole, 1.0)
            return SampledShare(value=None if several else mean, low=0.0 if several else mean, high=mean, n=len(values))
    return None


def _split(pod: str | None) -> tuple[str | None, str | None]:
    namespace, slash, name = (pod or "").rpartition("/")
    return (namespace or None) if slash else None, name or None


def _name_pods(drafts: list[_Draft], settings: Sequence[Setting]) -> None:
    """Give processes the pods and containers in which a recording of the node saw them; a pod is then its process."""
    for setting in settings:
        if setting.pid is None or setting.key not in ("k8s_pod", "container"):
            continue
        mine = [draft for draft in drafts if draft.pid == setting.pid]
        for draft in mine:
            draft.named_by(setting.source)
            if setting.key == "container":
                draft.container = draft.container or setting.value
                continue
            fields = parse_pairs(setting.value)
            draft.namespace, draft.pod = _split(fields.get("pod"))
            draft.container = fields.get("container") or draft.container
    for draft in [one for one in drafts if one.pid is not None and one.pod is not None]:
        for twin in [one for one in drafts if one.kind == "pod" and one.device_id == draft.device_id]:
            if draft.pod is not None and twin.is_of(draft.namespace, draft.pod, draft.container):
                draft.sources += [source for source in twin.sources if source not in draft.sources]
                draft.times += twin.times
                drafts.remove(twin)


def _add_clients(drafts: list[_Draft], settings: Sequence[Setting], places: Sequence[int | None]) -> None:
    """Clients that the MPS daemon names, whether or not a list shows them."""
    kinds: dict[str, ListedKind] = {"mps_client": "mps-client", "mps_server": "mps-server"}
    for setting, place in zip(settings, places, strict=True):
        if setting.key not in kinds or setting.pid is None:
            continue
        known = [draft for draft in drafts if draft.pid == setting.pid]
        if not known:
            placed: Basis | None = None if place is None else "configured"
            known = [_Draft(kind=kinds[setting.key], device_id=place, placed_by=placed, pid=setting.pid)]
            drafts += known
        for draft in known:
            draft.named_by(setting.source)
            draft.kind = kinds[setting.key]
            draft.process = draft.process or parse_pairs(setting.value).get("name")
            if setting.key == "mps_server":
                draft.process = draft.process or MPS_SERVER


def _container(drafts: list[_Draft], fields: Mapping[str, str], source: str) -> list[_Draft]:
    """Tenants of the container that a row names; a new one where there is none."""
    namespace, pod = _split(fields.get("pod"))
    if pod is None:
        return []
    found = [draft for draft in drafts if draft.is_of(namespace, pod, fields.get("container"))]
    if not found:
        found = [_Draft(kind="pod", namespace=namespace, pod=pod, container=fields.get("container"))]
        drafts += found
    for draft in found:
        draft.named_by(source)
        draft.namespace = draft.namespace or namespace
        draft.container = draft.container or fields.get("container")
        draft.node = draft.node or fields.get("node")
    return found


def _add_requests(drafts: list[_Draft], settings: Sequence[Setting]) -> None:
    """What containers ask Kubernetes for, and the caps in their environment; a pod that holds no GPU is no tenant."""
    idle = _without_gpu(settings)
    for setting in settings:
        if setting.pid is not None or setting.key not in ("k8s_pod", "k8s_env"):
            continue
        fields = parse_pairs(setting.value)
        if fields.get("pod") in idle:
            continue
        for draft in _container(drafts, fields, setting.source):
            if "resource" in fields:
                draft.requested.append(f"{fields.get('count', '1')} {fields['resource']}")
                if fields["resource"].removesuffix(".shared") == _GPU:
                    draft.gpus = (draft.gpus or 0) + (bounded_int(fields.get("count", "1"), 0, 1 << 10) or 0)
            elif "claim" in fields:
                draft.requested.append(f"claim {fields['claim']}")
            cap = bounded_int(fields.get(MPS_PERCENTAGE, ""), 1, 100)
            if cap is not None:
                draft.requested.append(f"{cap} % of the MPS threads")
                draft.share = cap / 100


def _without_gpu(settings: Sequence[Setting]) -> dict[str, str]:
    """Pods that hold no GPU, with their phase: they have ended, or are on no node yet."""
    fields = (parse_pairs(one.value) for one in settings if one.key == "k8s_pod" and one.pid is None)
    return {one["pod"]: one["phase"] for one in fields if {"pod", "phase"} <= one.keys()}


def _nodes(tables: TableSet, tenants: Sequence[ListedTenant]) -> tuple[ListedNode, ...]:
    """Nodes with GPUs, how each was set up to share them, and the tenants on each."""
    devices = tables.devices["device_id"].sort().to_list()
    settings = [_setting(row) for row in tables.configured.iter_rows(named=True)]
    of_all = [one for one in settings if "node" not in parse_pairs(one.value)]
    found = []
    for name, node in tables.concerned.nodes.items():
        mine = [one for one in settings if parse_pairs(one.value).get("node") == name]
        if not any(one.key in ("k8s_node", "k8s_resource") for one in mine):
            continue
        found.append(
            ListedNode(
                name=name,
                product=node.product,
                gpus=node.gpus,
                sharing=configured_sharing([*of_all, *mine]),
                tenants=[one for one in tenants if one.node == name and one.computes],
                device_ids=[number for number in devices if tables.concerned.may_be_of(number, name)],
            )
        )
    return tuple(found)


def _add_claims(drafts: list[_Draft], tables: TableSet, settings: Sequence[Setting]) -> None:
    """Devices that claims hold, and for which pods."""
    offered = [parse_pairs(s.value) for s in settings if s.key == "k8s_device"]
    asked = {(f := parse_pairs(s.value)).get("claim", ""): f for s in settings if s.key == "k8s_request"}
    known = {row["uuid"]: row["device_id"] for row in tables.devices.iter_rows(named=True) if row["uuid"]}
    held: set[str] = set()
    for setting in settings:
        if setting.key != "k8s_claim":
            continue
        fields = parse_pairs(setting.value)
        claim = fields.get("claim", "")
        held.add(claim)
        namespace, name = _split(claim)
        of = [o for o in offered if o.get("device") == fields.get("device")]
        of = [o for o in of if o.get("node") in (None, fields.get("node")) or fields.get("node") is None]
        uuid = of[0].get("uuid") if len(of) == 1 else None
        pods = [pod for pod in fields.get("pods", "").split(",") if pod]
        node = {} if "node" not in fields else {"node": fields["node"]}
        mine = [
            one
            for pod in pods
            for one in _container(drafts, {"pod": f"{namespace}/{pod}" if namespace else pod, **node}, setting.source)
        ]
        if not mine:
            mine = [_Draft(kind="claim", namespace=namespace, process=name, node=fields.get("node"))]
            mine[0].named_by(setting.source)
            drafts += mine
        for draft in mine:
            profile = f", {of[0]['profile']}" if len(of) == 1 and "profile" in of[0] else ""
            draft.requested.append(f"claim {claim} (device {fields.get('device', 'not said')}{profile})")
            if draft.device_id is None and uuid in known:
                draft.device_id, draft.placed_by = known[uuid], "configured"
    for claim, fields in asked.items():
        if claim not in held:
            namespace, name = _split(claim)
            wanted = f"{fields.get('count', '1')} {fields.get('class', '')}"
            waiting = _Draft(kind="claim", namespace=namespace, process=name, requested=[wanted])
            waiting.named_by("kubernetes")
            drafts.append(waiting)


def _place(drafts: list[_Draft], tables: TableSet) -> None:
    """Place pods of a node with one GPU, and clients of the daemon that serves the only GPU: there is no other."""
    boards = tables.devices.filter(pl.col("mig_profile").is_null())["device_id"].to_list()
    instances = tables.devices.filter(pl.col("mig_profile").is_not_null())
    known = tables.concerned
    nodes = {draft.node for draft in drafts if draft.node is not None}
    gpus = {name: node.gpus for name, node in known.nodes.items()}
    for draft in drafts:
        if draft.device_id is not None or draft.kind == "graphics" or len(boards) > 1:
            continue
        profiles = [r.partition("nvidia.com/mig-")[2] for r in draft.requested if "nvidia.com/mig-" in r]
        fitting = instances.filter(pl.col("mig_profile").is_in(profiles))["device_id"].to_list()
        only = fitting if profiles else boards if instances.is_empty() else []
        if len(only) != 1 or (known.served.get(only[0]) is False and draft.kind in ("mps-client", "mps-server")):
            continue
        if draft.node is not None:
            # Of several nodes that may have the GPU, nothing says whose pods are on it.
            mine = [name for name in nodes if known.may_be_of(only[0], name)]
            if mine != [draft.node] or gpus.get(draft.node) not in (None, 1):
                continue
        elif nodes and (len(nodes) > 1 or any(gpus.get(node) not in (None, 1) for node in nodes)):
            continue
        draft.device_id, draft.placed_by = only[0], "inferred"


def _limits(drafts: list[_Draft], sharing: Mapping[int, ConfiguredSharing]) -> None:
    """What replicas give: under MPS a part of the threads, under time-slicing no limit at all."""
    for draft in drafts:
        found = None if draft.device_id is None else sharing.get(draft.device_id)
        asks = any("nvidia.com/gpu" in text for text in draft.requested)
        if found is None or not found.shared or found.replicas is None or not asks:
            continue
        draft.requested.append(f"one of {found.replicas} replicas")
        if found.strategy is not None and TRAITS[found.strategy].mps and draft.share is None:
            draft.share = 1 / found.replicas


def _tenant(draft: _Draft, tables: TableSet, everyone: Sequence[_Draft]) -> ListedTenant:
    mean, peak, bound = draft.memory
    return ListedTenant(
        name=_name(draft, everyone),
        kind=draft.kind,
        pid=draft.pid,
        process_type=draft.process_type,
        namespace=draft.namespace,
        pod=draft.pod,
        container=draft.container,
        node=draft.node,
        device_id=draft.device_id,
        placed_by=draft.placed_by,
        mig=_instance(draft, tables),
        requested=", ".join(dict.fromkeys(draft.requested)) or None,
        requested_gpus=draft.gpus,
        requested_share=draft.share,
        utilization=draft.utilization,
        engines=draft.engines,
        memory_mean_bytes=mean,
        memory_peak_bytes=peak,
        memory_bound_bytes=bound,
        first_ns=min(draft.times, default=None),
        last_ns=max(draft.times, default=None),
        listings=len(set(draft.times)) or None,
        sources=draft.sources,
    )


def _name(draft: _Draft, everyone: Sequence[_Draft]) -> str:
    if draft.pod is not None:
        containers = {one.container for one in everyone if one.pod == draft.pod and one.namespace == draft.namespace}
        return f"{draft.pod}/{draft.container}" if len(containers) > 1 and draft.container else draft.pod
    if draft.process is None:
        return f"process {draft.pid}"
    path = PureWindowsPath(draft.process) if "\\" in draft.process else PurePosixPath(draft.process)
    return path.name or draft.process


def _instance(draft: _Draft, tables: TableSet) -> str | None:
    profiles = dict(tables.devices.select("device_id", "mig_profile").iter_rows())
    profile = None if draft.device_id is None else profiles.get(draft.device_id)
    numbers = [f"{name} {n}" for name, n in (("GI", draft.gi), ("CI", draft.ci)) if n is not None]
    parts = [*([profile] if profile else []), *numbers]
    return ", ".join(parts) or None
