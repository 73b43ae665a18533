"""How does the recorder run on a Kubernetes node, beside pods that are already there?"""

from __future__ import annotations

import json

from pyanalyze.record.sampler import DURATION_S


def pod_manifest(
    node: str, image: str, *, duration_s: float = DURATION_S, rate_hz: float = 10.0, nsys: bool = False
) -> str:
    """Return the manifest of a pod that records one node and then waits for `kubectl cp`.

    It asks for no GPU of the scheduler (it would take one from somebody), sees all GPUs through the NVIDIA runtime,
    and all processes through the host's pid namespace. It is privileged only where `nsys` needs it.

    Parameters
    ----------
    node
        Name of the node.
    image
        An image with this package, click, nvidia-ml-py and, with `nsys`, Nsight Systems.
    duration_s, rate_hz
        As for :func:`pyanalyze.record.record`.
    nsys
        Record GPU context switches and GPU metrics of the node too.

    Returns
    -------
    str
        YAML.

    Examples
    --------
    >>> print(pod_manifest("gpu-7", "registry.example/pyanalyze:1"))  # doctest: +ELLIPSIS
    # kubectl apply -f this; ...
    apiVersion: v1
    kind: Pod
    ...
    """
    command = [
        "pyanalyze",
        "record",
        "-o",
        "/recordings/node",
        "--duration",
        f"{duration_s:g}",
        "--rate",
        f"{rate_hz:g}",
    ]
    command += ["--nsys"] if nsys else []
    shell = " ".join(command) + "; sleep 3600"
    quoted = json.dumps  # every JSON string is a YAML string
    security = (
        '{"capabilities": {"add": ["SYS_ADMIN", "SYS_PTRACE"]}}'
        if nsys
        else '{"capabilities": {"add": ["SYS_PTRACE"]}}'
    )
    return f"""# kubectl apply -f this; kubectl wait --for=condition=Ready pod/pyanalyze-record
# then, {duration_s:g} s later: kubectl cp pyanalyze-record:/recordings/node node && pyanalyze node
# at last: kubectl delete pod pyanalyze-record
apiVersion: v1
kind: Pod
metadata:
  name: pyanalyze-record
spec:
  nodeName: {quoted(node)}
  hostPID: true  # pids that NVML and switch records give are the host's
  restartPolicy: Never
  runtimeClassName: nvidia  # leave out where the NVIDIA runtime is the default one
  tolerations: [{{operator: Exists}}]
  containers:
    - name: record
      image: {quoted(image)}
      command: ["sh", "-c", {quoted(shell)}]
      env:
        - {{name: NVIDIA_VISIBLE_DEVICES, value: all}}
        - {{name: NVIDIA_DRIVER_CAPABILITIES, value: "utility,compute"}}
      securityContext: {security}
      volumeMounts:
        - {{name: recordings, mountPath: /recordings}}
        - {{name: pod-logs, mountPath: /var/log/pods, readOnly: true}}  # names of pods
  volumes:
    - {{name: recordings, emptyDir: {{sizeLimit: 2Gi}}}}
    - {{name: pod-logs, hostPath: {{path: /var/log/pods}}}}
"""
