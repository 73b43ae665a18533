"""The page docs/reference/json.md: every object of the JSON Schema of reports, with its keys."""

from __future__ import annotations

from typing import Any

INTRO = """# JSON

`pyanalyze report -f json` writes one object, `pyanalyze.report/1`; [its JSON Schema](../report-1.schema.json) is what
`pyanalyze schema` prints. Inside version 1 keys are added, never renamed. `pyanalyze schema VERB` prints the schema of
another command's `-f json`, which is made of the same objects.

What is not known is `null`, and an entry of `missing` names the key and says why. Times are nanoseconds; positions
count from `clock.origin_utc_ns`.

Hostile text is a string that a program, a kernel or a file chose, as it was recorded: it may hold markup, control
characters or a formula. Escape it before you show it.
"""


def json_page(schema: dict[str, Any]) -> str:
    """Make the page of a schema: the whole first, then its parts by name."""
    out = [INTRO]
    for name, one in (("Report", schema), *sorted(schema["$defs"].items())):
        out.append(f"\n## {name}\n\n{one['description'].splitlines()[0]}\n")
        if "enum" in one:
            out.append(f"One of {_words(one['enum'])}.")
            continue
        out.append("| key | type | meaning |\n|---|---|---|")
        for key, value in one["properties"].items():
            meaning = value["description"].split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            out.append(f"| `{key}` | {_kind(value)} | {meaning} |")
    return "\n".join(out) + "\n"


def _words(values: list[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _kind(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(_kind(one) for one in value["anyOf"])
    if "const" in value or "enum" in value:
        return _words(value.get("enum", [value.get("const")]))
    if "prefixItems" in value:
        return f"list of {', '.join(map(_kind, value['prefixItems']))}"
    if value["type"] == "array":
        return f"list of {_kind(value['items'])}"
    if value["type"] == "object":
        return f"object of {_kind(value['additionalProperties'])}"
    return str(value["type"])
