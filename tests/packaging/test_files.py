"""What is shipped to run the server: files that no container engine has read here are at least whole."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.commands import parse

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
_SERVICE_KEYS = {
    "build",
    "command",
    "depends_on",
    "environment",
    "healthcheck",
    "image",
    "ports",
    "restart",
    "volumes",
}


@pytest.fixture
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
    return found


@pytest.fixture
def objects() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((PACKAGING / "kubernetes.yaml").read_text())
    return {each["kind"]: each for each in found}


def test_compose_names_only_what_is_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        assert service.keys() <= _SERVICE_KEYS
        assert "image" in service
        assert set(service.get("depends_on", ())) <= services.keys()
        named = {volume.split(":")[0] for volume in service.get("volumes", ())}
        assert named <= compose["volumes"].keys()
    build = services["server"]["build"]
    context = (PACKAGING / build["context"]).resolve()
    assert (context / build["dockerfile"]).is_file()
    waited = services["server"]["depends_on"]
    assert all("healthcheck" in services[name] for name in waited)


def test_compose_opens_no_port_to_others_and_holds_no_password(compose: dict[str, Any]) -> None:
    wanted = set((PACKAGING / "env.example").read_text().replace("=\n", "\n").split("\n")[1:-1])
    asked = set()
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for name, value in service["environment"].items():
            if re.search("PASSWORD|PWD|AUTH", name):
                reference = re.fullmatch(r"\$\{(\w+):\?[^}]+\}", value)
                assert reference, f"{name} is written out"
                asked.add(reference[1])
    assert asked == wanted


def test_the_image_is_built_of_files_that_are_there_and_runs_without_root() -> None:
    text = (PACKAGING / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    copied = [line for line in lines if line.startswith("COPY ") and "--from" not in line]
    sources = [name for line in copied for name in shlex.split(line)[1:-1]]
    assert sources
    assert all((ROOT / name).exists() for name in sources)
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in sources} <= set(kept), "what is not named there is not sent"
    user = [line for line in lines if line.startswith("USER ")][-1]
    assert int(user.split()[1]) > 0
    assert lines.index(user) < lines.index('ENTRYPOINT ["truecopy"]')


def test_kubernetes_objects_refer_to_each_other(objects: dict[str, dict[str, Any]]) -> None:
    assert objects.keys() == {"Namespace", "PersistentVolumeClaim", "Deployment", "Service"}
    versions = {kind: each["apiVersion"] for kind, each in objects.items()}
    assert versions.pop("Deployment") == "apps/v1"
    assert set(versions.values()) == {"v1"}
    space = objects["Namespace"]["metadata"]["name"]
    assert {each["metadata"].get("namespace", space) for each in objects.values()} == {space}
    deployment, service = objects["Deployment"]["spec"], objects["Service"]["spec"]
    template = deployment["template"]
    labels = template["metadata"]["labels"]
    assert labels == deployment["selector"]["matchLabels"] == service["selector"]
    pod = template["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    for first in pod["initContainers"]:
        assert first["image"] == container["image"]
        assert {mount["name"] for mount in first["volumeMounts"]} <= volumes
    claims = [v["persistentVolumeClaim"] for v in pod["volumes"] if "persistentVolumeClaim" in v]
    assert claims == [{"claimName": objects["PersistentVolumeClaim"]["metadata"]["name"]}]
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= ports
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


def test_containers_run_as_the_user_of_the_image(objects: dict[str, dict[str, Any]]) -> None:
    user = re.findall(r"^USER (\d+)$", (PACKAGING / "Dockerfile").read_text(), re.MULTILINE)[-1]
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == int(user)
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_program_takes_the_commands_that_are_shipped(
    objects: dict[str, dict[str, Any]],
) -> None:
    dockerfile = (PACKAGING / "Dockerfile").read_text()
    unit = (PACKAGING / "truecopy.service").read_text()
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    commands = [
        json.loads(re.findall(r"^CMD (.+)$", dockerfile, re.MULTILINE)[-1]),
        re.findall(r"^ExecStart=\S+ (.+)$", unit, re.MULTILINE)[0].split(),
        container["args"],
    ]
    for words in commands:
        assert words[0] == "serve"
        parse(words)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "truecopy.service"
    program = Path(sys.executable).with_name("truecopy")
    text = (PACKAGING / "truecopy.service").read_text()
    assert "/opt/truecopy/bin/truecopy" in text
    unit.write_text(text.replace("/opt/truecopy/bin/truecopy", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
