"""Checks the manifests without a cluster: every document against Kubernetes' published schemas, and the
rules between documents that a schema cannot say. Prints a line a check; exits 1 when one fails.

Usage: check.py FOLDER [KUBERNETES-VERSION ...]
"""

import pathlib
import sys

import kubernetes_validate
import yaml

failures = 0
passes = 0


def check(holds: bool, what: str) -> None:
    """Counts one check and prints it."""
    global failures, passes
    if holds:
        passes += 1
        print(f"ok: {what}")
    else:
        failures += 1
        print(f"FAILED: {what}")


def seconds(text: str) -> int:
    """`100s` or `2m` as seconds."""
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def main(folder: pathlib.Path, versions: list[str]) -> None:
    documents = []
    for path in sorted(folder.glob("*.yaml")):
        if path.name == "kustomization.yaml":
            listed = yaml.safe_load(path.read_text())["resources"]
            present = sorted(p.name for p in folder.glob("*.yaml") if p != path)
            check(sorted(listed) == present, "kustomization.yaml lists every manifest")
            continue
        documents += [(path.name, doc) for doc in yaml.safe_load_all(path.read_text()) if doc]

    for version in versions:
        for name, doc in documents:
            label = f"{name}: {doc['kind']} {doc['metadata']['name']} is valid for Kubernetes {version}"
            try:
                kubernetes_validate.validate(doc, version, strict=True)
                check(True, label)
            except kubernetes_validate.ValidationError as error:
                check(False, f"{label}: {error.message}")

    by_kind = {}
    for _, doc in documents:
        by_kind.setdefault(doc["kind"], {})[doc["metadata"]["name"]] = doc
    config = by_kind["ConfigMap"]["kreplicator"]["data"]
    workloads = {**by_kind["Deployment"], **by_kind["StatefulSet"]}
    for name, doc in workloads.items():
        pod = doc["spec"]["template"]["spec"]
        labels = doc["spec"]["template"]["metadata"]["labels"]
        container = pod["containers"][0]
        check(pod["securityContext"]["runAsNonRoot"], f"{name} runs without root")
        check(container["securityContext"]["readOnlyRootFilesystem"], f"{name} cannot write its own image")
        check(
            {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys(),
            f"{name} has its three probes",
        )
        ports = {port["name"] for port in container["ports"]}
        probed = {container[p]["httpGet"]["port"] for p in ("startupProbe", "livenessProbe", "readinessProbe")}
        check(probed <= ports, f"{name}: probes ask a port that exists")
        file = container["args"][2].rsplit("/", 1)[1]
        check(file in config, f"{name} starts with a file of the ConfigMap")
        budget = by_kind["PodDisruptionBudget"].get(name, {}).get("spec", {})
        check(budget.get("selector", {}).get("matchLabels") == labels, f"{name} has a disruption budget")
        service = by_kind["Service"][name]["spec"]
        check(service["selector"] == labels, f"{name}: its service selects its pods")

    worker = by_kind["StatefulSet"]["kreplicator-worker"]["spec"]["template"]["spec"]
    grace = seconds(yaml.safe_load(config["worker.yaml"])["worker"]["drain_timeout"])
    check(
        grace < worker["terminationGracePeriodSeconds"],
        "a worker leaves by itself before Kubernetes kills it",
    )
    scaled = by_kind["HorizontalPodAutoscaler"]["kreplicator-worker"]["spec"]
    target = scaled["scaleTargetRef"]
    check(target["name"] in by_kind[target["kind"]], "the autoscaler's target exists")
    check(scaled["minReplicas"] >= 2, "the autoscaler keeps at least two workers")
    for autoscaler in by_kind["HorizontalPodAutoscaler"].values():
        owned = autoscaler["spec"]["scaleTargetRef"]
        spec = by_kind.get(owned["kind"], {}).get(owned["name"], {}).get("spec", {})
        # An apply would put the number back that the autoscaler had changed.
        check("replicas" not in spec, f"{owned['name']} leaves its number to its autoscaler")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:] or [kubernetes_validate.latest_version()])
    print(f"deploy: {passes} passed, {failures} failed")
    sys.exit(1 if failures else 0)
