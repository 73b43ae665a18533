"""`name=value` pairs in one line of text, as values of the table `configured` have them."""

from __future__ import annotations

#: The value of `owner` for a pod that nobody makes anew.
NO_OWNER = "none"


def pairs(**fields: object) -> str:
    """Several properties of one thing as one value.

    Parameters
    ----------
    **fields
        Properties; spaces are allowed in the last one only.

    Returns
    -------
    str
        `name=value` pairs separated by spaces, without those that are `None`.

    Examples
    --------
    >>> pairs(gpu=0, uuid="GPU-1", name="NVIDIA H200")
    'gpu=0 uuid=GPU-1 name=NVIDIA H200'
    """
    return " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)


def parse_pairs(value: str) -> dict[str, str]:
    """Take apart what `pairs` put together.

    Examples
    --------
    >>> parse_pairs("gpu=0 uuid=GPU-1 name=NVIDIA H200")
    {'gpu': '0', 'uuid': 'GPU-1', 'name': 'NVIDIA H200'}
    """
    found: dict[str, str] = {}
    last = ""
    for word in value.split(" "):
        name, equals, rest = word.partition("=")
        # `name` is the one field with spaces, and product names are hostile text: nothing after it is a pair.
        if equals and last != "name":
            found[name] = rest
            last = name
        elif last:
            found[last] += f" {word}"
    return found


def names_gpu(value: str) -> bool:
    """Whether a value says which GPU it is about: without a device, it is about one that the session does not show.

    Examples
    --------
    >>> names_gpu("gpu=3 timeslice=short"), names_gpu("strategy=mps replicas=4"), names_gpu("50")
    (True, False, False)
    """
    fields = parse_pairs(value)
    return fields.get("uuid", "").startswith(("GPU-", "MIG-")) or fields.get("gpu", "").isdecimal()
