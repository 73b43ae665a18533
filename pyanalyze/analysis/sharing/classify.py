"""Weigh what was seen, name the mode, explain, or abstain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.listed import configured_sharing
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.calibration import calibration, state
from pyanalyze.analysis.sharing.condition import condition_of, covers, others_open
from pyanalyze.analysis.sharing.details import details
from pyanalyze.analysis.sharing.evidence import observe
from pyanalyze.analysis.sharing.missing import HOW, gaps
from pyanalyze.analysis.sharing.rules import RULES, Rule
from pyanalyze.results.listed import Setting
from pyanalyze.results.model import Missing, Text
from pyanalyze.results.sharing import Alternative, Evidence, Sharing, open_in_mig
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import MIN_CONFIDENCE, TRAITS, Condition, Mode, condition_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyanalyze.analysis.sharing.facts import Case, Observation
    from pyanalyze.vocabulary import Basis


class Verdict(Sharing):
    """How one device was shared, with what the report leaves out: whose verdict it is, and the bare posterior.

    A report holds it as its `sharing`.

    Attributes
    ----------
    device_id, device
        Device in `session.devices`, and its name.
    posterior
        What the stated weights make of the evidence; `confidence` is how often verdicts of this kind were right.
    """

    device_id: int
    device: Text
    posterior: float = 0.0

    def __str__(self) -> str:
        """One paragraph for a terminal."""
        return f"{self.device}: {self.mode} ({self.confidence:.2f}, {self.basis}). {self.summary}"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(w.detail)}</td><td>{escape(', '.join(w.supports))}</td>"
            f"<td>{escape(', '.join(w.against))}</td><td>{w.weight:+.1f}</td><td>{w.basis}</td></tr>"
            for w in self.evidence
        )
        told = "".join(f"<li>{escape(detail.detail)}</li>" for detail in self.details)
        return (
            f"<p><b>{escape(self.device)}: {self.mode}</b> {fmt.certainty(self.basis, self.confidence)}<br>"
            f"{escape(self.summary)}</p><ul>{told}</ul><table><tr><th>evidence</th><th>for</th><th>against</th><th>weight</th>"
            f"<th>basis</th></tr>{rows}</table>"
        )


def judge(case: Case) -> Verdict:
    """Name the sharing mode of one device.

    Parameters
    ----------
    case
        Facts and configured rows of the device.

    Returns
    -------
    Verdict
        With evidence, alternatives and what is missing. Never raises for lack of evidence: that is `undetermined`.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing.facts import Case
    >>> case = Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ())
    >>> judge(case).mode
    'undetermined'
    """
    found = observe(case)
    if not case.captured:
        # Samples only: what they say of the device's name is a reading as well, but nothing was observed.
        found = {
            name: replace(seen, basis="sampled") if seen.basis == "observed" else seen for name, seen in found.items()
        }
    case = replace(case, observations=found)
    scores = {rule.mode: _score(rule, case) for rule in RULES}
    condition = condition_of(case) if _active(case) else None
    if condition is not None:
        # Of what the verdict leaves open nothing is said: the confidence is that of the other modes.
        scores = {mode: -math.inf if covers(condition, mode) else score for mode, score in scores.items()}
    posterior = _softmax(scores)
    ranked = sorted(posterior, key=lambda mode: -posterior[mode])
    best = ranked[0]
    missing = gaps(case)
    apart = _never_together(case)
    if apart is not None:
        missing.append(apart)
    # A GPU that was busy with work of which there is no record is judged by samples, capture or not.
    busy_unseen = not _active(case) and case.has("sm_active_outside_traced_kernels")
    by_samples = not case.captured or (busy_unseen and _told(case, best))
    if not case.observations if by_samples else not _active(case):
        # An idle GPU has no mode and no alternatives, whatever is configured; nor has one of which nothing was sampled.
        posterior = dict.fromkeys(posterior, 0.0)
    elif by_samples and not _told(case, best):
        # A list of processes says who was there, not that they ran, nor that nobody else did.
        posterior = {mode: min(value, MIN_CONFIDENCE - 0.01) for mode, value in posterior.items()}
    elif (
        # What would decide did not happen, unless it is that which decides; or it is not known who shared what: no
        # configuration makes up for it.
        (apart is not None and not case.has("turns_in_software"))
        or case.has("instance_unknown")
        or case.has("sms_like_mig")
    ):
        posterior = {mode: min(value, MIN_CONFIDENCE - 0.01) for mode, value in posterior.items()}
    decided = posterior[best] >= MIN_CONFIDENCE and bool(case.observations)
    mode = best if decided else Mode.UNDETERMINED
    # Modes that nothing here makes possible (an instance on a board without MIG) would only be noise.
    possible = [rule for rule in RULES if scores[rule.mode] > -math.inf]
    weighed = [(seen, _weighed(seen, best, possible)) for seen in case.observations.values()]
    # What tells no mode apart as it was recorded is shown, so that nobody takes it for evidence.
    evidence = sorted(
        (one for seen, one in weighed if one.supports or one.against or not seen.tells), key=lambda w: -abs(w.weight)
    )
    configured = _configured(case)
    # Samples observe nothing, and nothing is deduced from who did not show in them.
    basis = "sampled" if by_samples else _basis(evidence, best) if decided else "inferred"
    confidence = _claimed(basis, posterior[best]) if decided else posterior[best]
    if decided and confidence < MIN_CONFIDENCE:
        mode, basis, confidence = Mode.UNDETERMINED, "sampled" if by_samples else "inferred", posterior[best]
    if mode == Mode.UNDETERMINED:
        condition = None
    elif condition is None and TRAITS[mode].one_process and others_open(case):
        # What speaks for others weighed less than what speaks for this mode: it excludes nobody.
        condition = Condition.UNLESS_UNTRACED_TENANT
    return Verdict(
        device_id=case.device_id,
        device=case.name or f"GPU {case.device_id}",
        mode=mode,
        confidence=round(confidence, 3),
        basis=basis,
        condition=condition,
        summary=_summary(case, mode, condition, posterior, evidence, missing),
        configured=configured,
        # A mode that only settings name was not observed beside them.
        agrees=_instance_shown(configured, case) or (_agrees(configured, mode) if _shown(evidence, mode) else None),
        evidence=evidence,
        alternatives=[
            Alternative(mode=other, confidence=round(value, 3), why_not=_why_not(other, case))
            for other, value in _alternatives(posterior, ranked, mode, confidence)
        ],
        missing=missing if configured is not None else [*missing, _configured_missing(case)],
        posterior=posterior[best],
        details=[
            detail if case.captured or detail.basis != "observed" else detail.model_copy(update={"basis": "sampled"})
            for detail in details(case, mode)
        ],
    )


def _configured_missing(case: Case) -> Missing:
    """Say why the configured mode is not known: of what is missing the last, for it would change no other answer."""
    if case.set_up is not None and case.set_up.other_nodes:
        return Missing(what="configured_mode", why=case.set_up.nodes_text, how=HOW["node"])
    mps = case.has("mps_daemon_idle") or case.has("mps_pipe") or bool(case.mps_clients)
    no_mps = not mps and (case.mps_clients == 0 or case.no_mps_process)
    # In a pod the objects of Kubernetes still say something.
    if no_mps and case.mig_enabled is False and not any(row.key == "k8s_pod" for row in case.configured):
        why = (
            "the inputs show neither MIG nor MPS: only objects of Kubernetes may still say how the GPU was to be shared"
        )
        return Missing(what="configured_mode", why=why, how="")
    return Missing(
        what="configured_mode",
        why="no input says how MPS, MIG or Kubernetes were set up, if at all; time-slicing needs no setting",
        how=HOW["configured_mode"],
    )


def _shown(evidence: Sequence[Evidence], mode: Mode) -> bool:
    """Whether something besides settings speaks for a mode, and not for nearly every other as well."""
    return any(mode in one.supports and one.basis != "configured" and one.weight >= t.MODERATE for one in evidence)


#: Alternatives that are listed: so many, of at least this probability.
_MOST_ALTERNATIVES, _LEAST_ALTERNATIVE = 4, 0.01


def _alternatives(
    posterior: Mapping[Mode, float], ranked: Sequence[Mode], mode: Mode, confidence: float
) -> list[tuple[Mode, float]]:
    """Modes that were not chosen, with what the confidence of the likeliest leaves to them.

    That confidence is limited, or is how often such verdicts were right: what it lacks is shared among the others in
    proportion, so that all add up to 1. What the evidence excludes gets nothing of it.
    """
    best, *others = ranked
    rest = sum(posterior[other] for other in others)
    scale = (1 - confidence) / rest if rest > 0 else 0.0
    found = [(other, posterior[other] * scale) for other in others if posterior[other] >= _LEAST_ALTERNATIVE]
    if mode == Mode.UNDETERMINED and confidence >= _LEAST_ALTERNATIVE:
        found = [(best, confidence), *found]
    return found[:_MOST_ALTERNATIVES]


def _claimed(basis: Basis, posterior: float) -> float:
    """How often verdicts of this kind were right where the truth is known."""
    if basis in ("observed", "inferred"):
        return state(calibration()["bins"], basis, posterior)
    return min(posterior, t.MAX_CONFIDENCE_SAMPLED)


def _score(rule: Rule, case: Case) -> float:
    if not rule.requires <= case.observations.keys():
        return -math.inf
    if TRAITS[rule.mode].mps and case.has("mps_impossible"):
        return -math.inf
    if rule.requires_one_of and not rule.requires_one_of & case.observations.keys():
        return -math.inf
    return rule.prior + sum(weight for name, (weight, _) in rule.weights.items() if case.weighs(name))


def _softmax(scores: dict[Mode, float]) -> dict[Mode, float]:
    top = max(scores.values())
    raw = {mode: math.exp(score - top) for mode, score in scores.items()}
    total = sum(raw.values())
    return {mode: value / total for mode, value in raw.items()}


def _weighed(observation: Observation, best: Mode, possible: Sequence[Rule]) -> Evidence:
    """What an observation means: the modes it speaks for and against.

    Its weight is the log-likelihood ratio (nats) for the mode that was named, or else for the strongest.
    """
    concerned = [rule for rule in possible if observation.tells and observation.name in rule.weights]
    weights = {rule.mode: rule.weights[observation.name][0] for rule in concerned}
    strongest = max(weights.values(), key=abs, default=0.0)
    return Evidence(
        name=observation.name,
        supports=[mode for mode, weight in weights.items() if weight > 0],
        against=[mode for mode, weight in weights.items() if weight < 0],
        value=observation.value,
        unit=observation.unit,
        n=observation.n,
        n_of=observation.n_of,
        weight=round(weights.get(best, strongest), 2),
        basis=observation.basis,
        detail=observation.detail,
        sql=observation.sql,
        examples=list(observation.examples),
    )


def _active(case: Case) -> bool:
    """Whether anything ran: an idle GPU has no sharing mode."""
    busy = case.fact("busy_ns") or 0
    return busy > 0 or bool(case.fact("switch_records")) or bool(case.tenants)


def _told(case: Case, mode: Mode) -> bool:
    """Whether a single sample or setting names this mode."""
    traits = TRAITS[mode]
    # That the device is an instance says nothing of how it is shared inside.
    of_instance = _rule(Mode.MIG).requires if traits.mig_instance and not traits.one_process else frozenset()
    return any(
        weight >= t.STRONG and case.has(name) and name not in of_instance
        for name, (weight, _) in _rule(mode).weights.items()
    )


def _never_together(case: Case) -> Missing | None:
    """Two tenants that were never busy at once do not show how they share."""
    traced = case.fact("traced_tenants") or 0
    together = case.fact("co_busy_share")
    # Time-sliced tenants have less work in flight at once than by chance: that is what an exclusion shows.
    told = (
        "contexts_alternate",
        "mps_group_time_sliced",
        "short_kernels_exclude",
        "kernel_ran_in_preemption",
        "several_in_one_context",
    )
    alternate = any(case.has(name) for name in told)
    # A tenant that is nearly always idle may have met the other often enough all the same.
    if (
        traced < 2
        or alternate
        or case.has("short_kernels_overlap")
        or together is None
        or together >= t.MIN_CO_BUSY_SHARE
    ):
        return None
    return Missing(
        what="co_run",
        why=f"{traced:.0f} processes were traced, but they were busy at once for only {fmt.percent(together)} of the "
        "busy time, which does not show how they share",
        how=HOW["co_run"],
    )


def _basis(evidence: Sequence[Evidence], mode: Mode) -> Basis:
    """What the verdict mainly rests on: the basis of the strongest observations for it.

    For one-tenant modes the absence of other tenants is inferred, unless a record would have shown them.
    """
    # That the device is an instance says nothing of how it is shared inside.
    traits = TRAITS[mode]
    inside = traits.mig_instance and not traits.one_process
    telling = [w for w in evidence if mode in w.supports and not (inside and _one_process_in_instance(w.supports))]
    strong = [w for w in telling if w.weight >= t.STRONG]
    if inside:
        strong = strong or telling[:1]
    kinds = {w.basis for w in strong}
    settled = {"sole_resident", "contexts_alternate", "short_kernels_overlap", "busy_without_switches"}
    if _rule(mode).by_absence and not any(w.name in settled for w in evidence):
        return "inferred"
    # Of what the mode requires, nothing was recorded: a cap that only modelled waves show.
    if {w.basis for w in evidence if w.name in _rule(mode).requires_one_of} == {"inferred"}:
        return "inferred"
    if kinds == {"observed"} or (strong and strong[0].basis == "observed"):
        return "observed"
    if kinds == {"sampled"}:
        return "sampled"
    return "inferred"


def _one_process_in_instance(modes: Iterable[Mode]) -> bool:
    return any(TRAITS[mode].mig_instance and TRAITS[mode].one_process for mode in modes)


def _rule(mode: Mode) -> Rule:
    return next(rule for rule in RULES if rule.mode == mode)


def _configured(case: Case) -> Mode | None:
    """The configured mode, where a setting names one. A missing variable never means that nothing was set."""
    offered = _offered(case)
    # A daemon without a server has no client: it configures only those that were told where it is.
    daemon = case.has("mps_daemon") or (case.has("mps_daemon_idle") and case.has("mps_pipe"))
    if case.mig_profile is not None or case.has("mig_instance"):
        if daemon:
            return Mode.MIG_MPS
        if offered is not None:
            return _INSIDE_INSTANCE[offered]
        return Mode.MIG_SHARED_CI if case.has("mig_compute_instance") else Mode.MIG
    if any(row.key == "mig_mode" and row.value == "Enabled" for row in case.configured):
        # The board itself: its tenants run in its instances, each a device of its own.
        return Mode.MIG
    if case.vgpu_profile is not None:
        return Mode.VGPU_MIG if case.has("vgpu_mig_name") else Mode.VGPU_TIME_SLICED
    if case.has("mps_sm_partition"):
        return Mode.MPS_STATIC_PARTITION
    if daemon or case.has("mps_client_connected") or case.has("nvml_mps_server"):
        if case.has("pre_volta"):
            return Mode.MPS_PRE_VOLTA
        return Mode.MPS_PARTITIONED if case.has("mps_percentage") else Mode.MPS
    if case.has("software_limiter"):
        return Mode.SOFTWARE_LIMITED
    return offered


#: What Kubernetes' strategies make of a MIG instance.
_INSIDE_INSTANCE = {Mode.MPS: Mode.MIG_MPS, Mode.TIME_SLICING: Mode.MIG_TIME_SLICING}


def _offered(case: Case) -> Mode | None:
    """How Kubernetes offers the GPU to several, where everything that concerns it says the same."""
    rows = (Setting(source=row.source, key=row.key, value=row.value, pid=row.pid) for row in case.configured)
    return (case.set_up or configured_sharing(rows)).strategy


def _instance_shown(configured: Mode | None, case: Case) -> bool | None:
    """True where MIG is configured and was seen to be on: no setting says how many processes an instance is for."""
    shown = case.observations.get("mig_instance")
    if configured is None or shown is None or shown.basis == "configured":
        return None
    return True if TRAITS[configured].mig_instance and TRAITS[configured].one_process else None


def _agrees(configured: Mode | None, mode: Mode) -> bool | None:
    if configured is None or mode == Mode.UNDETERMINED:
        return None
    if configured == mode:
        return True
    # One process does not contradict a configuration for several, of the device or of the instance.
    found, intended = TRAITS[mode], TRAITS[configured]
    several = (intended.mps or intended.time_sliced) and not intended.vgpu
    return None if found.one_process and several and found.mig_instance == intended.mig_instance else False


def _why_not(mode: Mode, case: Case) -> str:
    rule = _rule(mode)
    against = [(w, why) for name, (w, why) in rule.weights.items() if w < 0 and case.weighs(name)]
    if against:
        return min(against)[1]
    return "not ruled out" if case.observations else "no evidence is available"


def _summary(
    case: Case,
    mode: Mode,
    condition: Condition | None,
    posterior: Mapping[Mode, float],
    evidence: Sequence[Evidence],
    missing: Sequence[Missing],
) -> str:
    best = max(posterior, key=lambda one: posterior[one])
    equal = [mode for mode in posterior if posterior[mode] == posterior[best]]
    likely = (
        f"Most likely mode: {best} ({posterior[best]:.2f})."
        if len(equal) == 1
        else f"Equally likely: {', '.join(equal)} ({posterior[best]:.2f} each)."
    )
    if mode == Mode.UNDETERMINED:
        if not case.captured:
            if case.has("mig_instance") and (unknown := open_in_mig(best)):
                # That MIG is on is no question: what is likely is said of its instances only.
                told = "" if TRAITS[best].one_process else f" {likely}"
                return (
                    f"{unknown}.{told} A capture can show which kernels overlap; under MIG it has no context switches."
                )
            lead = "Samples cannot show residency or concurrent execution; a capture can."
            return f"{lead} {likely}" if evidence else lead
        if not _active(case):
            if case.has("sm_active_outside_traced_kernels"):
                loud = case.observations["sm_active_outside_traced_kernels"].detail
                return f"No work on this GPU was traced, so its sharing mode is not known. {loud}."
            if case.launches is not None and case.launches.without_record:
                return f"CUDA was traced, but {case.launches.describe()}: the sharing mode is not known."
            return "The capture has no work on this GPU, so its sharing mode is not known."
        lead = f"{'The evidence does not decide' if evidence else 'No evidence is available'}. {likely}"
        # Some gaps nothing fills.
        gap = next((one for one in missing if one.how), None)
        return lead if gap is None else f"{lead} To decide: {gap.how} ({gap.why})."
    rule = _rule(mode)
    reasons = [w.detail for w in evidence if mode in w.supports and w.weight > 0][:2]
    text = "; ".join(reasons) if reasons else rule.shows
    text = text[0].upper() + text[1:]
    doubt = ""
    if condition is not None:
        doubt = f" The mode is {mode}: {condition_text(condition, mode)} in this capture."
    said = [case.observations[name].detail for name in ("cap_without_effect", "caps_over_100") if case.has(name)]
    return " ".join(
        (f"{text}.{doubt}", *(f"{detail[0].upper()}{detail[1:]}." for detail in said if detail not in reasons))
    )
