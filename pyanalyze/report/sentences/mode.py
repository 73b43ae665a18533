"""The sharing mode: verdict, confidence, weights of the evidence, and the configured mode beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing.condition import covers
from pyanalyze.analysis.sharing.rules import RULES
from pyanalyze.results.labels import device_title
from pyanalyze.results.sharing import likeliest, most_likely
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import TRAITS, Mode, condition_text, unless

if TYPE_CHECKING:
    from pyanalyze.results.report import Device
    from pyanalyze.results.sharing import Evidence, Sharing


def verdict_sentence(device: Device) -> str:
    """Name the sharing mode of a device, with confidence and basis."""
    return f"Sharing mode of {device_title(device)}: {mode_text(device)}"


def mode_text(device: Device) -> str:
    """The sharing mode with confidence and basis, to stand behind a label."""
    sharing = device.sharing
    if sharing.mode == Mode.UNDETERMINED and not device.tenants:
        if device.missing_for("kernels") and device.missing_for("context_switches"):
            # Its summary begins with MIG, which is no question there.
            return f"{'' if sharing.open_in_mig else 'undetermined. '}{visible(sharing.summary, None)}"
        return "none, because no activity was recorded on it."
    if sharing.mode == Mode.UNDETERMINED:
        return f"undetermined ({likely_text(sharing)})."
    known = fmt.certainty(sharing.basis, sharing.stated_confidence)
    return f"{sharing.mode} {known}{mode_clauses(device)}."


def mode_clauses(device: Device) -> str:
    """What holds of a mode that was named, to stand behind its confidence: what no record shows, and its condition."""
    caps = ", its caps configured" if device.sharing.basis != "configured" and _caps_only_configured(device) else ""
    sharing = device.sharing
    if sharing.condition is not None and sharing.stated_confidence is None:
        # A share of correct verdicts would count how often simulated recordings had a hidden process.
        return f"{caps}, but {condition_text(sharing.condition, sharing.mode)}"
    return f"{caps}{unless(sharing.condition, sharing.mode)}"


def likely_text(sharing: Sharing) -> str:
    """The most likely mode where none is certain."""
    likely = most_likely(sharing.alternatives)
    if sharing.open_in_mig and TRAITS[sharing.alternatives[0].mode].one_process:
        return sharing.open_in_mig
    # Of modes that nothing tells apart, the number is no finding.
    if len(likeliest(sharing.alternatives)) > 1:
        return likely
    return f"{likely}, {sharing.confidence:.2f}" if likely else "no evidence"


def confidence_scope(sharing: Sharing) -> str:
    """Say among which modes the confidence holds, to stand behind the verdict; empty: among all, or there is none."""
    unweighed = _unweighed(sharing)
    if sharing.stated_confidence is None or unweighed is None or not TRAITS[unweighed].mps:
        return ""
    return " The confidence holds among the modes that are weighed; modes with MPS are not."


def _weighed_mode(sharing: Sharing) -> Mode:
    """The mode that the weights of the evidence are for: the one that was named, else the likeliest."""
    likeliest = sharing.mode == Mode.UNDETERMINED and sharing.alternatives
    return sharing.alternatives[0].mode if likeliest else sharing.mode


def weights_text(sharing: Sharing) -> str:
    """Say what the weights of the evidence are for, and what they compare with."""
    return (
        f"Evidence, largest weight first. Weights are for {_weighed_mode(sharing)} (log odds, base e): +3 makes it "
        f"about 20 times as likely.{_not_weighed(sharing)}"
    )


def _not_weighed(sharing: Sharing) -> str:
    """Of which modes no row of the evidence says anything, because the condition of the verdict leaves them open."""
    unweighed = _unweighed(sharing)
    if unweighed is None:
        return ""
    if TRAITS[unweighed].mps:
        return " Modes with MPS are not weighed: MPS clients are not excluded."
    return " Modes of several processes are not weighed: nothing shows whether there were any others."


def _unweighed(sharing: Sharing) -> Mode | None:
    """Time-slicing or MPS, for all modes like it: the condition leaves them open, and nothing was weighed for them."""
    weighed = {mode for one in sharing.evidence for mode in (*one.supports, *one.against)}
    # What speaks for others, and weighed less than what speaks for one process, was weighed.
    if sharing.condition is None or any(covers(sharing.condition, mode) for mode in weighed):
        return None
    return next((mode for mode in (Mode.TIME_SLICING, Mode.MPS) if covers(sharing.condition, mode)), None)


def weighed_evidence(sharing: Sharing) -> list[tuple[Evidence, float]]:
    """The evidence with its weight for the mode of :func:`weights_text`, the largest first.

    What says something of other modes only has the largest of their weights in the results; for this one it is 0.
    """
    mode = _weighed_mode(sharing)
    found = [(one, one.weight if mode in (*one.supports, *one.against) else 0.0) for one in sharing.evidence]
    return sorted(found, key=lambda one: -abs(one[1]))


def weight_text(sharing: Sharing, evidence: Evidence, weight: float) -> str:
    """The weight of a row as :func:`weighed_evidence` has it; of one that says nothing of that mode, for which it is.

    The results have that number: the largest of the weights for other modes.
    """
    if weight or not evidence.weight:
        return f"{weight:+.1f}" if weight else "0"
    weights = {rule.mode: rule.weights[evidence.name][0] for rule in RULES if evidence.name in rule.weights}
    told = (*evidence.supports, *evidence.against)
    mode = next((one for one in told if one in weights and math.isclose(weights[one], evidence.weight)), None)
    if mode is None:
        return "0"
    return f"{evidence.weight:+.1f} for {mode}, 0 for {_weighed_mode(sharing)}"


def not_told_apart(sharing: Sharing) -> list[list[str]]:
    """Alternatives on which all evidence has the same weight: what differs is how likely they are without any."""
    names = [one.name for one in sharing.evidence]
    alike: dict[tuple[float, ...], list[str]] = {}
    for rule in RULES:
        if any(one.mode == rule.mode for one in sharing.alternatives):
            weights = tuple(rule.weights[name][0] if name in rule.weights else 0.0 for name in names)
            alike.setdefault(weights, []).append(str(rule.mode))
    return [modes for modes in alike.values() if len(modes) > 1]


def agreement_text(device: Device) -> str:
    """Compare the configured mode with the one that was found."""
    sharing = device.sharing
    if sharing.configured is None:
        return fmt.UNKNOWN
    if sharing.agrees is None:
        if sharing.taken_from_configuration:
            return f"{sharing.configured}; the mode is taken from it, so there is nothing to compare it with"
        return f"{sharing.configured}; whether it took effect is not known"
    if sharing.agrees and (itself := _by_itself(device)):
        return f"{sharing.configured}; {itself}"
    if sharing.agrees and _caps_only_configured(device):
        return f"{sharing.configured}; MPS matches, no record shows the caps"
    return f"{sharing.configured}; " + ("matches" if sharing.agrees else f"MISMATCH: {sharing.found}")


def agreement_note(device: Device) -> str:
    """Compare the configured mode with the one that was found in a few words."""
    agrees = device.sharing.agrees
    if agrees is None:
        if device.sharing.configured is None:
            return "no configuration given"
        return "the mode is taken from it" if device.sharing.taken_from_configuration else "effect not known"
    if agrees and (itself := _by_itself(device)):
        return itself
    if agrees and _caps_only_configured(device):
        return "MPS matches, no record shows the caps"
    return "matches" if agrees else f"does not match: {device.sharing.found}"


def _caps_only_configured(device: Device) -> bool:
    """Whether nothing but the configuration tells MPS with caps from MPS without: it does not confirm itself."""
    mode, traits = device.sharing.mode, TRAITS[device.sharing.mode]
    without = {other for other, of in TRAITS.items() if of.mps and of.capped is False}
    telling = [one for one in device.sharing.evidence if mode in one.supports and not without.isdisjoint(one.against)]
    return traits.mps and traits.capped is True and all(one.basis == "configured" for one in telling)


def _by_itself(device: Device) -> str:
    """What the device is, where the configured mode and the observed one are both only that; empty: they are not."""
    if device.sharing.mode == Mode.UNDETERMINED:
        # Nothing was found that could match: only that MIG is on.
        return "samples show that it is on" if device.sharing.basis == "sampled" else "the device is a MIG instance"
    if TRAITS[device.sharing.mode].vgpu:
        return "the device is a virtual GPU"
    stated = any(one.basis == "configured" for one in device.sharing.evidence)
    stated = stated or any(one.key.startswith("mig_") for one in device.settings)
    return "the device is a MIG instance" if TRAITS[device.sharing.mode].mig_instance and not stated else ""
