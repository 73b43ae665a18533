"""One quantity, one name and one number: the first screen, every command, JSON and the report say the same.

Of all committed captures: the verdict, the victim with its factor, the cause, the action and the GPU time of tenants.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import run

from pyanalyze.analysis.impact import impact_of
from pyanalyze.results.labels import main_device, tenant_labels
from pyanalyze.results.report import Report
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"
NAMES = sorted([path.name for path in CAPTURES.glob("*.sqlite")] + ["containers-same-pid"])


@dataclass
class Said:
    """What is printed of a capture."""

    report: Report
    json: dict[str, Any]
    summary: str
    parts: dict[str, Any]
    texts: dict[str, str]


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module", params=NAMES)
def said(request: pytest.FixtureRequest) -> Said:
    capture = CAPTURES / request.param

    def printed(*words: str) -> str:
        result = run(*words, capture)
        assert result.returncode == 0, result.stderr
        return result.stdout

    whole = json.loads(printed("report", "-f", "json"))
    parts = {
        verb: json.loads(printed(verb, "-f", "json")) for verb in ("classify", "residency", "interference", "advise")
    }
    texts = {verb: printed(verb) for verb in ("classify", "residency", "interference", "advise")}
    texts["report"] = printed("report", "-f", "txt")
    texts["markdown"] = printed("report", "-f", "md")
    return Said(Report.model_validate(whole), whole, printed("summary"), parts, texts)


def test_the_same_key_has_the_same_value_in_every_json(said: Said) -> None:
    """A command computes what it prints, and not something else: to the last digit."""
    compared = 0
    for verb, part in said.parts.items():
        for device, whole in zip(part["devices"], said.json["devices"], strict=True):
            for key, value in device.items():
                if key == "tenants":
                    for tenant, full in zip(value, whole["tenants"], strict=True):
                        assert tenant == {name: full[name] for name in tenant}, (verb, tenant["name"])
                        compared += len(tenant)
                elif key == "sharing":
                    # What is missing is that of the parts that were computed.
                    assert {k: v for k, v in value.items() if k != "missing"} == {
                        k: v for k, v in whole["sharing"].items() if k != "missing"
                    }
                elif key != "missing":
                    assert value == whole[key], (verb, key)
                    compared += 1
    assert compared > 20


def test_every_text_names_the_same_mode(said: Said) -> None:
    for device in said.report.devices:
        sharing = device.sharing
        mode = re.escape(str(sharing.mode))
        first = said.report.devices[0] is device
        if sharing.mode == "undetermined":
            assert re.search(rf"Mode +{mode}", said.summary) or not first
            continue
        # Of a mode that holds if no other process was there, that is all that is said.
        alone = sharing.condition == "unless-untraced-tenant"
        surely = rf"\({sharing.basis}, confidence {sharing.confidence:.2f}"
        # What the number was measured in stands wherever it does.
        of = " in simulations" if sharing.basis in ("observed", "inferred") else ""
        known = rf"\({sharing.basis}\)" if alone else rf"{surely}{of}\)"
        assert re.search(rf"GPU {device.device_id} .*: {mode}\b.*{known}", said.texts["classify"])
        for text in (said.texts["report"], said.texts["markdown"]) if first else ():
            assert re.search(rf"{mode}[^.]* {known}", re.sub(r"\\(.)", r"\1", flat(text)))
        if device is main_device(said.report) and len(said.report.devices) == 1:
            assert re.search(rf"Mode {mode}.* {known}", flat(said.summary))


def test_the_victim_has_one_factor_everywhere(said: Said) -> None:
    (device, *more) = said.report.devices
    impact = impact_of(device)
    if impact.victim is None or more:
        pytest.skip("no tenant whose slowdown is known, or several devices")
    name = tenant_labels(device.tenants)[impact.victim.tenant.tenant_id]
    factor = fmt.ratio(impact.victim.estimate.value)
    kinds = {"elapsed": "elapsed time", "latency": "kernel latency", "resident": "execution (while resident)"}
    shown = rf"{re.escape(name)}, {re.escape(kinds[impact.victim.kind])} (?:at least |at most )?{re.escape(factor)}"
    assert re.search(rf"Largest (?:known )?slowdown: {shown}", flat(said.texts["interference"]))
    assert re.search(rf"Largest (?:known )?slowdown: {shown}", flat(said.texts["report"]))
    if impact.victim.slowed:
        assert re.search(rf"Slow {shown}", flat(said.summary))
    # And the number is that of the contract.
    (entry,) = [t for t in said.json["devices"][0]["tenants"] if t["tenant_id"] == impact.victim.tenant.tenant_id]
    assert fmt.ratio(entry["slowdown"][impact.victim.kind]["value"]) == factor


def test_a_pair_has_one_slowdown_and_the_pairs_of_a_victim_make_no_more_than_its_own(said: Said) -> None:
    """What each aggressor adds to the latency of a victim adds up to what all of them add."""
    for device in said.report.devices:
        cells = [] if device.interference is None else device.interference.matrix or []
        pairs = [(cell.victim, cell.aggressor) for cell in cells]
        assert len(pairs) == len(set(pairs))
        for tenant in device.tenants:
            added = [one.latency - 1 for one in cells if one.victim == tenant.tenant_id and one.latency is not None]
            if added and tenant.slowdown.latency is not None:
                assert sum(added) <= tenant.slowdown.latency.value - 1 + 0.01


def test_the_cause_is_one_sentence_everywhere(said: Said) -> None:
    (device, *more) = said.report.devices
    if more or not device.tenants:
        pytest.skip("several devices, or none with tenants")
    cause = device.sharing_is_the_cause
    assert cause is not None
    answer = f"Sharing is the cause: {cause.answer}"
    why = flat(cause.why)[:40].lower()
    for text in (said.summary, said.texts["interference"], said.texts["report"]):
        found = flat(text)
        assert answer in found
        assert why in found.lower()
        # No other answer stands beside it.
        assert set(re.findall(r"Sharing is the cause: (\w+)", found)) == {cause.answer}


def test_the_first_action_is_one_everywhere(said: Said) -> None:
    (device, *more) = said.report.devices
    if more or not device.advice:
        pytest.skip("several devices, or nothing to do")
    action = flat(visible(device.advice[0].action, None))
    assert f"Do {action}"[:90] in flat(said.summary)
    for text in (said.texts["advise"], said.texts["report"]):
        assert re.search(rf"\* 1a?\. (?:Small: )?{re.escape(action[:80])}", flat(text)), action


def test_gpu_time_is_one_number_everywhere(said: Said) -> None:
    """One denominator, the window of the device: on bars, in sentences and in tables."""
    checked = 0
    for device in said.report.devices:
        labels = tenant_labels(device.tenants)
        for tenant in device.tenants:
            if tenant.gpu_time_share is None:
                continue
            label, share = labels[tenant.tenant_id], fmt.percent(tenant.gpu_time_share)
            # A bar: the name (a server names its clients behind it), the share, the bar.
            bar = re.search(
                rf"^(?:GPU time)? +{re.escape(label)}\b.* ([\d.]+ %) [█░]*(?: [\d.]+ % with kernels)?$",
                said.summary,
                re.MULTILINE,
            )
            if bar is not None:
                assert bar[1] == share
                checked += 1
            if device.residency_summary is not None:
                for total in [t for t in device.residency_summary.tenants if t.tenant_id == tenant.tenant_id]:
                    assert total.gpu_time_share == pytest.approx(tenant.gpu_time_share, rel=1e-6)
                    checked += 1
            if device.window is not None and tenant.resident_ns is not None and tenant.gpu_time_basis == "observed":
                whole = device.window.end_ns - device.window.start_ns
                assert tenant.gpu_time_share == pytest.approx(tenant.resident_ns / whole, abs=5e-4)
                checked += 1
    assert (
        checked
        or all(not device.tenants for device in said.report.devices)
        or said.report.devices[0].residency_summary is None
    )
