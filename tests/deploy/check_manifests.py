#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the manifests in deploy/kubernetes.

    check_manifests.py --serve BINARY [--schemas]

Without --schemas it checks what needs PyYAML alone: that drains fit their grace periods, that flags and settings exist,
that the metric of the autoscaler is one of the server's. --schemas also checks every manifest against its schema, with
the packages of PyPI that tests/deploy/schemas installs. Exits with 77 where a package is missing.
"""
import argparse
import ast
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


def settings_of(container, help_text):
    """The server's settings by flag, from arguments and environment; each must be a setting that it has."""
    values = {}
    for argument in container.get("args", []):
        if argument.startswith("--"):
            name, _, value = argument[2:].partition("=")
            values[name] = value
    for variable in container.get("env", []):
        if variable["name"].startswith("QUERN_SERVE_"):
            values[variable["name"][len("QUERN_SERVE_"):].lower().replace("_", "-")] = variable.get("value")
    for name in values:
        expect(re.search(rf"^  --{name}( |$)", help_text, re.M), f"the server has no --{name}")
    return values


def check_container(container, help_text, grace_s):
    name = container["name"]
    settings = settings_of(container, help_text)
    default = {flag: float(value) for flag, value in re.findall(r"--(drain-\w+) SECONDS .*?\[(\d+)\]$", help_text, re.M)}
    drain_s = sum(float(settings.get(flag, default[flag])) for flag in ("drain-delay", "drain-timeout"))
    expect(grace_s >= drain_s + 5, f"{name}: a drain of {drain_s} s, and a grace period of {grace_s} s")
    ready = container["readinessProbe"]
    expect(ready["httpGet"]["path"] == "/v2/health/ready", f"{name}: readiness")
    expect(container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live", f"{name}: liveness")
    seen_s = ready["periodSeconds"] * (ready["failureThreshold"] + 1)
    delay_s = float(settings.get("drain-delay", default["drain-delay"]))
    expect(seen_s <= delay_s, f"{name}: the probe sees the drain after {seen_s} s, and it begins to refuse after {delay_s} s")
    security = container["securityContext"]
    expect(security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], f"{name}: security")
    expect(security["capabilities"]["drop"] == ["ALL"], f"{name}: capabilities")
    for kind in ("requests", "limits"):
        expect({"cpu", "memory"} <= set(container["resources"][kind]), f"{name}: {kind}")


def check_deployment(documents, help_text):
    one = {document["kind"]: document for document in documents}
    pod = one["Deployment"]["spec"]["template"]
    spec = pod["spec"]
    for container in spec["containers"]:
        check_container(container, help_text, spec["terminationGracePeriodSeconds"])
    expect(spec["securityContext"]["runAsNonRoot"], "the Deployment runs as root")
    user = re.search(r"^USER (\d+):\d+$", (ROOT / "deploy" / "Dockerfile").read_text(), re.M)
    expect(spec["securityContext"]["runAsUser"] == int(user[1]), "the Deployment's user is not the Dockerfile's")
    labels = pod["metadata"]["labels"]
    for selector in (one["Deployment"]["spec"]["selector"]["matchLabels"], one["Service"]["spec"]["selector"],
                     one["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]):
        expect(selector.items() <= labels.items(), f"no pod has {selector}")
    ports = {port["name"] for port in spec["containers"][0]["ports"]}
    expect({port["targetPort"] for port in one["Service"]["spec"]["ports"]} <= ports, "the Service's port")
    scaler = one["HorizontalPodAutoscaler"]["spec"]
    expect(scaler["scaleTargetRef"]["name"] == one["Deployment"]["metadata"]["name"], "what is scaled")
    expect("replicas" not in one["Deployment"]["spec"], "replicas are the autoscaler's")
    sources = (ROOT / "serve" / "metrics.inc").read_text() + (ROOT / "serve" / "metrics.c").read_text()
    for metric in scaler["metrics"]:
        if metric["type"] == "Pods":
            name = metric["pods"]["metric"]["name"]
            expect(f'"{name}"' in sources, f"the server has no metric {name}")


def read_kserve(name):
    """A type of KServe from the source of its client, which needs no imports: fields by JSON name, and required ones."""
    found = importlib.util.find_spec("kserve")
    file = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    text = (pathlib.Path(found.submodule_search_locations[0]) / "models" / f"{file}.py").read_text()
    tables = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("openapi_types", "attribute_map"):
            tables[node.targets[0].id] = ast.literal_eval(node.value)
    names = tables["attribute_map"]
    required = re.findall(r"Invalid value for `(\w+)`, must not be `None`", text)
    return {names[key]: kind for key, kind in tables["openapi_types"].items()}, {names[key] for key in required}


def check_kserve(value, kind, where, core):
    """Checks a value against a type as the client writes it: str, list[X], dict(str, X), V1alpha1X, or V1X of Kubernetes."""
    simple = {"str": str, "int": int, "bool": bool, "object": object, "float": (int, float)}
    if kind in simple:
        expect(isinstance(value, simple[kind]) and (kind == "bool" or not isinstance(value, bool)), f"{where}: not {kind}")
    elif kind.startswith("list["):
        for i, item in enumerate(value):
            check_kserve(item, kind[5:-1], f"{where}[{i}]", core)
    elif kind.startswith("dict("):
        for key, item in value.items():
            check_kserve(item, kind[5:-1].partition(", ")[2], f"{where}.{key}", core)
    elif kind.startswith("V1alpha1"):
        fields, required = read_kserve(kind)
        for key in sorted(required - value.keys()):
            expect(False, f"{where}: no {key}")
        for key, item in value.items():
            if key not in fields:
                expect(False, f"{where}: there is no {key}")
            else:
                check_kserve(item, fields[key], f"{where}.{key}", core)
    else:
        core(value, kind[2:], where)


def check_schemas(paths, yaml):
    for package in ("kubernetes_validate", "kserve"):
        if not importlib.util.find_spec(package):
            print(f"skipped: {package} is not installed (tests/deploy/schemas)")
            return False
    import jsonschema
    import kubernetes_validate
    version = kubernetes_validate.latest_version()
    folder = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{version}-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text())

    def core(value, name, where):
        area = "apimachinery.pkg.apis.meta" if name == "ObjectMeta" else "api.core"
        schema = dict(definitions, **{"$ref": f"#/$defs/io.k8s.{area}.v1.{name}"})
        for error in jsonschema.Draft202012Validator(schema).iter_errors(value):
            expect(False, f"{where}: {error.message}")

    for path in paths:
        for document in yaml.safe_load_all(path.read_text()):
            where = f"{path.name}: {document['kind']}"
            if document["apiVersion"] == "serving.kserve.io/v1alpha1":
                check_kserve(document, "V1alpha1" + document["kind"], where, core)
                continue
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                expect(False, f"{where}: {error.message}")
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", required=True)
    parser.add_argument("--schemas", action="store_true")
    given = parser.parse_args()
    try:
        import yaml
    except ImportError:
        print("skipped: PyYAML is not installed")
        return 77
    paths = sorted(FOLDER.glob("*.yaml"))
    help_text = subprocess.run([given.serve, "--help"], check=True, capture_output=True, text=True).stdout
    check_deployment(list(yaml.safe_load_all((FOLDER / "quern-serve.yaml").read_text())), help_text)
    runtime = yaml.safe_load((FOLDER / "servingruntime.yaml").read_text())
    for container in runtime["spec"]["containers"]:
        check_container(container, help_text, 30)  # Kubernetes' own grace period: a runtime cannot say another
    if given.schemas and not check_schemas(paths, yaml):
        return 77
    for problem in problems:
        print(f"deploy/kubernetes: {problem}", file=sys.stderr)
    print(f"{len(paths)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
