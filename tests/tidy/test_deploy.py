"""What stands in ``deploy`` can be read by who reads it, and names only what is there."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families
from typer.exceptions import TyperException

from celeriac.config import Settings
from celeriac.programs.process import wait_until
from celeriac.store.recorder_status import RecorderStatus
from celeriac.web.metrics import metrics_text
from celeriac.wire.names import event_exchange
from tests.component.web.kit import PATIENCE, Rig
from tests.component.web.kit import rig as made
from tests.promql import Kind, Promql
from tests.promtool import promtool
from tests.tidy.command_line import read_command
from tests.tidy.repository import ROOT, blocks, named
from tests.warehouses import publish

DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
COMPOSE = DEPLOY / "docker" / "compose.yaml"
DASHBOARD = DEPLOY / "grafana" / "celeriac.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
SCRAPE = DEPLOY / "prometheus" / "scrape.yaml"
KUBERNETES = DEPLOY / "kubernetes"
KUSTOMIZATION = KUBERNETES / "kustomization.yaml"
PAGE = ROOT / "docs" / "howto" / "deploy.md"
SERVICES = sorted((DEPLOY / "systemd").glob("*.service"))
TIMERS = sorted((DEPLOY / "systemd").glob("*.timer"))
#: Who everything runs as, in an image.
USER = 10001
#: Where the units look for the program.
PROGRAM = "/opt/celeriac/bin/celeriac"
VERSION = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


MANIFESTS = [
    (path, each)
    for path in sorted(KUBERNETES.glob("*.yaml"))
    if path != KUSTOMIZATION
    for each in documents(path)
]
OF_COMPOSE: dict[str, Any] = documents(COMPOSE)[0]["services"]
OURS = {name: each for name, each in OF_COMPOSE.items() if each["image"].startswith("celeriac:")}


def pods() -> dict[str, Any]:
    """Return what runs in Kubernetes, by name."""
    found = {}
    for _, manifest in MANIFESTS:
        spec = manifest.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            found[manifest["metadata"]["name"]] = spec["template"]["spec"]
    return found


PODS = pods()


def containers(pod: Any) -> list[Any]:
    return [*pod["containers"], *pod.get("initContainers", ())]


def unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """Return the sections of a unit, each a list of values by name; a line that is none of them raises."""
    told: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] | None = None
    # A line that ends so goes on in the next.
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            assert head[1] not in told
            section = told.setdefault(head[1], {})
        elif line and not line.startswith("#"):
            setting = re.fullmatch(r"([A-Z]\w+)=(.*)", line)
            assert section is not None, line
            assert setting is not None, line
            section.setdefault(setting[1], []).append(setting[2])
    return told


# -- commands


def of_images() -> Iterator[tuple[str, list[str]]]:
    """Yield what containers run and are asked with: arguments of the program that is their entry point."""
    for name, service in OURS.items():
        yield f"compose: {name}", service["command"]
        check = service.get("healthcheck", {}).get("test")
        if check is not None:
            assert check[:2] == ["CMD", "celeriac"]
            yield f"compose: check of {name}", check[2:]
    for name, pod in PODS.items():
        for container in pod["containers"]:
            assert "command" not in container
            yield f"kubernetes: {name}", container["args"]
            for kind in ("readinessProbe", "livenessProbe", "startupProbe"):
                words = container.get(kind, {}).get("exec", {}).get("command", ["celeriac"])
                assert words[0] == "celeriac"
                if len(words) > 1:
                    yield f"kubernetes: {kind} of {name}", words[1:]


def of_units() -> Iterator[tuple[str, list[str]]]:
    for path in SERVICES:
        (line,) = unit(path)["Service"]["ExecStart"]
        program, *words = shlex.split(line)
        assert program == PROGRAM
        yield f"systemd: {path.name}", words


def of_texts() -> Iterator[tuple[str, list[str]]]:
    """Yield what alerts and comments, and the page, tell people to run."""
    for path in (ALERTS, SCRAPE):
        for line in re.findall(r"`celeriac ([^`]+)`", " ".join(path.read_text().split())):
            yield f"{path.name}: {line}", shlex.split(line)
    said = "\n".join(block.code.replace("\\\n", " ") for block in blocks(PAGE.read_text()))
    # The program itself, or what an image of it is given.
    for line in re.findall(
        rf"(?:{PROGRAM}|(?<=^\$ )celeriac|docker run .* celeriac:[\d.]+) (.+)$", said, re.MULTILINE
    ):
        yield f"{PAGE.name}: {line}", shlex.split(line)


COMMANDS = [*of_images(), *of_units(), *of_texts()]


@pytest.mark.parametrize("words", [words for _, words in COMMANDS], ids=[place for place, _ in COMMANDS])
def test_the_program_understands_every_command(words: list[str]) -> None:
    program, *path = read_command(words).split()

    assert program == "celeriac"
    assert path == words[: len(path)] != []


def test_commands_are_found_in_every_file_that_has_some() -> None:
    places = {place.partition(":")[0] for place, _ in COMMANDS}

    assert places == {"compose", "kubernetes", "systemd", ALERTS.name, SCRAPE.name, PAGE.name}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("record --chek", "No such option: --chek"),
        ("pipeline runs", "No such command 'runs'"),
        ("web --port 99999", "less than or equal to 65535"),
        ("log compact a b", r"unexpected extra argument\(s\) \(b\)"),
        ("", "^$"),
    ],
)
def test_a_command_that_the_program_would_refuse_is_found(line: str, complaint: str) -> None:
    with pytest.raises(TyperException, match=complaint):
        read_command(shlex.split(line))


def test_every_role_is_deployed_in_every_way() -> None:
    roles = {"record", "pipeline run", "log compact", "web"}

    told = {
        way: {role for role in roles for words in lines if " ".join(words).startswith(role)}
        for way, lines in (
            ("compose", [words for place, words in of_images() if place.startswith("compose")]),
            ("kubernetes", [words for place, words in of_images() if place.startswith("kubernetes")]),
            ("systemd", [words for _, words in of_units()]),
        )
    }

    assert told == dict.fromkeys(("compose", "kubernetes", "systemd"), roles)


def test_every_variable_for_the_program_is_a_setting_with_a_value_of_its_kind() -> None:
    given = [
        {name: re.sub(r"^\$\{\w+:-(.*)}$", r"\1", value) for name, value in service["environment"].items()}
        for service in OURS.values()
    ]
    given += [
        {each["name"]: each.get("value", "redis://told-elsewhere") for each in container.get("env", ())}
        for pod in PODS.values()
        for container in containers(pod)
    ]
    example = (DEPLOY / "systemd" / "celeriac.env.example").read_text()
    given.append(dict(re.findall(r"^#?([A-Z_]+)=(.*)$", example, re.MULTILINE)))

    for environ in given:
        Settings.load({}, environ=environ)

    names = {name for environ in given for name in environ}
    assert {"CELERIAC_BROKER_URL", "CELERIAC_LOG_SPOOL", "CELERIAC_LOG_KEEP"} <= names
    assert {name for name in names if not name.startswith("CELERIAC_")} == set()


def audit_of(words: Sequence[str]) -> str:
    """Return the folder of the file that a dashboard notes actions in."""
    return words[words.index("--audit") + 1].rpartition("/")[0]


def test_every_dashboard_notes_actions_where_it_can_write_and_where_it_stays() -> None:
    (web,) = PODS["celeriac-web"]["containers"]
    claims = {each["name"] for each in PODS["celeriac-web"]["volumes"] if "persistentVolumeClaim" in each}
    service = unit(DEPLOY / "systemd" / "celeriac-web.service")["Service"]

    assert f"audit:{audit_of(OURS['web']['command'])}" in OURS["web"]["volumes"]
    # A volume has the owner of the folder of the image that it is mounted at.
    assert f" {audit_of(OURS['web']['command'])} " in DOCKERFILE.read_text()
    assert audit_of(web["args"]) in [
        mount["mountPath"]
        for mount in web["volumeMounts"]
        if mount["name"] in claims and not mount.get("readOnly", False)
    ]
    assert audit_of(shlex.split(service["ExecStart"][0])) == f"%L/{service['LogsDirectory'][0]}"


# -- Docker


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with lines that go on joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined]


def is_sent(path: str) -> bool:
    """Tell whether a file goes to the builder; the last rule that fits counts."""
    sent = True
    for line in (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines():
        rule = line.removeprefix("!")
        if (
            line
            and not line.startswith("#")
            and (fnmatchcase(path, rule) or f"{path}/".startswith(f"{rule}/"))
        ):
            sent = line.startswith("!")
    return sent


def test_the_dockerfile_knows_each_of_its_instructions() -> None:
    kinds = [kind for kind, _ in instructions()]

    assert set(kinds) == {
        "FROM",
        "ENV",
        "WORKDIR",
        "COPY",
        "RUN",
        "USER",
        "EXPOSE",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert kinds[0] == "FROM"
    assert json.loads(dict(instructions())["ENTRYPOINT"]) == ["celeriac"]


def test_what_is_copied_into_the_image_is_there_and_nothing_else_goes_to_the_builder() -> None:
    sources = [
        source
        for kind, rest in instructions()
        if kind == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]

    assert {"requirements/run.txt", "pyproject.toml", "README.md", "src"} <= set(sources)
    assert [source for source in sources if not (ROOT / source).exists() or not is_sent(source)] == []
    assert is_sent("src/celeriac/__init__.py")
    assert not is_sent("src/celeriac/__pycache__/app.cpython-311.pyc")
    assert not any(
        map(is_sent, (".git/config", ".venv/bin/python", "deploy/docker/accounts.json", "tests/live.py"))
    )


def test_the_image_is_made_of_pins_with_hashes_and_runs_as_nobody_in_particular() -> None:
    stages = [rest for kind, rest in instructions() if kind == "FROM"]
    installs = [step for _, rest in instructions() for step in rest.split(" && ") if " install --" in step]
    users = [rest for kind, rest in instructions() if kind == "USER"]
    last = [kind for kind, _ in instructions()][::-1].index("FROM")

    assert [stage.split(" AS ")[0] for stage in stages] == ["python:3.11-slim", "python:3.11-slim"]
    fetched = [step for step in installs if "pip install" in step and "--no-index" not in step]
    assert len(fetched) == 2
    assert all("--require-hashes" in step for step in fetched)
    assert users == [f"{USER}:{USER}"]
    assert ("USER", users[0]) in instructions()[-last:]


def test_the_wheel_is_built_by_packages_that_are_pinned_and_all_that_they_need() -> None:
    (names,) = re.findall(r"/\^\(([a-z|-]+)\)==/", DOCKERFILE.read_text())
    pins = (ROOT / "requirements" / "dev.txt").read_text()

    entries = re.findall(r"^([a-z-]+)==(.*?)(?=^\S|\Z)", pins, re.MULTILINE | re.DOTALL)
    needed = {name for name, rest in entries if re.search(r"# +(via )?hatchling$", rest, re.MULTILINE)}

    assert set(names.split("|")) == needed | {"hatchling"}


def test_images_have_a_version_and_ours_is_that_of_the_project() -> None:
    images = [service["image"] for service in OF_COMPOSE.values()]
    images += [container["image"] for pod in PODS.values() for container in containers(pod)]
    (kustomized,) = documents(KUSTOMIZATION)[0]["images"]

    assert [image for image in images if not re.fullmatch(r"[a-z/]+:\d+(\.\d+)+", image)] == []
    assert {image for image in images if image.startswith("celeriac:")} == {f"celeriac:{VERSION}"}
    assert (kustomized["name"], str(kustomized["newTag"])) == ("celeriac", VERSION)
    assert f"celeriac:{VERSION} " in DOCKERFILE.read_text()
    assert "latest" not in DOCKERFILE.read_text() + COMPOSE.read_text()


def test_services_of_compose_are_confined_and_keep_no_secret() -> None:
    file = documents(COMPOSE)[0]
    mounted = {volume.split(":")[0] for each in OF_COMPOSE.values() for volume in each.get("volumes", ())}

    for service in OURS.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (
            COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]
        ).resolve() == DOCKERFILE
    assert mounted == set(file["volumes"]) == {"broker", "log", "warehouse", "cache", "audit"}
    assert [port for each in OF_COMPOSE.values() for port in each.get("ports", ())] == ["127.0.0.1:8765:8765"]
    assert {name for each in OF_COMPOSE.values() for name in each.get("secrets", ())} == set(file["secrets"])
    assert "/run/secrets/accounts" in OF_COMPOSE["web"]["command"]
    assert re.findall(r"://[^/\s}]*@", COMPOSE.read_text()) == []
    assert {target for each in OURS.values() for target in each.get("depends_on", {})} <= set(OF_COMPOSE)


def test_a_healthy_service_of_compose_can_be_told_from_one_that_is_not() -> None:
    waited_for = {
        name
        for each in OF_COMPOSE.values()
        for name, how in each.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }
    checks = dict(instructions())["HEALTHCHECK"]

    assert waited_for == {"broker", "recorder"}
    assert all("test" in OF_COMPOSE[name]["healthcheck"] for name in waited_for)
    # The image's own check is that of the dashboard, and every other role has another, or none.
    assert ":8765/healthz" in checks
    assert "healthcheck" not in OF_COMPOSE["web"]
    assert all("healthcheck" in each for name, each in OURS.items() if name != "web")


@pytest.mark.skipif(
    which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,  # noqa: S607
    reason="there is no docker compose; the file is parsed and looked at above",
)
def test_docker_compose_takes_the_file() -> None:
    command = ["docker", "compose", "--file", str(COMPOSE), "--profile", "upkeep", "config", "--quiet"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603

    assert (done.returncode, done.stderr) == (0, "")


# -- systemd

HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "CapabilityBoundingSet": "",
    "SystemCallFilter": "@system-service",
    "User": "celeriac",
    "EnvironmentFile": "/etc/celeriac/celeriac.env",
    "UMask": "0077",
}


@pytest.mark.parametrize("path", SERVICES, ids=named)
def test_a_service_is_hardened(path: Path) -> None:
    service = unit(path)["Service"]

    assert {name: service.get(name) for name in HARDENED} == {
        name: [value] for name, value in HARDENED.items()
    }
    # All of them write there, but for the one that people reach.
    assert service.get("StateDirectory") == (None if path.stem == "celeriac-web" else ["celeriac"])


def test_units_begin_by_themselves_or_by_their_timers() -> None:
    begun = {path.stem: unit(path).get("Install", {}).get("WantedBy") for path in SERVICES}

    assert [path.stem for path in TIMERS] == ["celeriac-log-compact", "celeriac-pipeline"]
    for path in TIMERS:
        told = unit(path)
        assert set(told) == {"Unit", "Timer", "Install"}
        assert told["Install"]["WantedBy"] == ["timers.target"]
        assert len(told["Timer"]["OnCalendar"]) == 1
    assert begun == {
        "celeriac-log-compact": None,
        "celeriac-pipeline": None,
        "celeriac-record": ["multi-user.target"],
        "celeriac-web": ["multi-user.target"],
    }


def test_each_service_is_of_the_type_that_its_program_can_keep() -> None:
    types = {path.stem: unit(path)["Service"]["Type"] for path in SERVICES}

    assert types == {
        "celeriac-log-compact": ["oneshot"],
        "celeriac-pipeline": ["oneshot"],
        # The one command that speaks to systemd; any other would be held for one that never begins.
        "celeriac-record": ["notify"],
        "celeriac-web": ["exec"],
    }


def test_the_accounts_come_as_a_credential_and_are_copied_to_where_they_are_read() -> None:
    service = unit(DEPLOY / "systemd" / "celeriac-web.service")["Service"]
    (copy,), (start,) = service["ExecStartPre"], service["ExecStart"]

    assert service["LoadCredential"] == ["accounts.json:/etc/celeriac/accounts.json"]
    assert copy.split()[:3] == ["/usr/bin/install", "-m", "0400"]
    assert copy.split()[3] == "%d/accounts.json"
    assert f"--accounts {copy.split()[4]} " in start
    assert copy.split()[4] == f"%t/{service['RuntimeDirectory'][0]}/accounts.json"


@pytest.mark.skipif(
    which("systemd-analyze") is None, reason="there is no systemd; the units are parsed and looked at above"
)
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    program = tmp_path / "celeriac"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in (*SERVICES, *TIMERS):
        # It looks whether programs are there.
        (tmp_path / path.name).write_text(path.read_text().replace(PROGRAM, str(program)))
    copies = sorted(str(path) for path in tmp_path.glob("celeriac-*"))

    done = subprocess.run(  # noqa: S603
        ["systemd-analyze", "verify", "--man=no", *copies],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )

    # Of the machine's own units it may say anything.
    assert [line for line in done.stderr.splitlines() if "celeriac" in line] == []
    assert len(copies) == 6


# -- Kubernetes


def test_the_kustomization_has_every_manifest_but_the_example_of_a_secret() -> None:
    listed = set(documents(KUSTOMIZATION)[0]["resources"])

    there = {path.name for path, _ in MANIFESTS}

    assert there - listed == {"secret.example.yaml"}
    assert listed <= there


@pytest.mark.skipif(
    which("kubectl") is None, reason="there is no kubectl; the manifests are parsed and looked at"
)
def test_kubectl_puts_the_manifests_together() -> None:
    command = ["kubectl", "kustomize", str(KUBERNETES)]

    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603

    made_of = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] != "Namespace"]
    assert {each["metadata"]["namespace"] for each in made_of} == {"celeriac"}
    assert len(made_of) == len(MANIFESTS) - 2
    images = set(re.findall(r"image: (\S+)", done.stdout))
    assert images == {f"registry.example.com/celeriac:{VERSION}"}


def test_there_is_a_manifest_for_each_part_and_the_secret_holds_none() -> None:
    kinds = {(each["kind"], each["metadata"]["name"]) for _, each in MANIFESTS}
    (secret,) = [each["stringData"] for _, each in MANIFESTS if each["kind"] == "Secret"]

    assert kinds == {
        ("Namespace", "celeriac"),
        ("Secret", "celeriac"),
        ("PersistentVolumeClaim", "celeriac-audit"),
        ("PersistentVolumeClaim", "celeriac-history"),
        ("StatefulSet", "celeriac-recorder"),
        ("Service", "celeriac-recorder"),
        ("Deployment", "celeriac-web"),
        ("Service", "celeriac-web"),
        ("CronJob", "celeriac-pipeline"),
        ("CronJob", "celeriac-log-compact"),
    }
    assert secret["broker-url"].startswith("REPLACE-")
    assert json.loads(secret["accounts.json"]) == []


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_restricted(name: str) -> None:
    pod = PODS[name]
    context = pod["securityContext"]

    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["fsGroup"] == USER
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    # Else a service named celeriac-web becomes CELERIAC_WEB_PORT, which is no setting, and so an error.
    assert pod["enableServiceLinks"] is False
    for container in containers(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", PODS)
def test_what_a_pod_mounts_and_reads_is_there(name: str) -> None:
    pod = PODS[name]
    manifests = {each["metadata"]["name"]: each for _, each in MANIFESTS}
    told = next(
        each for _, each in MANIFESTS if each["metadata"]["name"] == name and each["kind"] != "Service"
    )
    claims = told["spec"].get("volumeClaimTemplates", ())
    volumes = {each["name"] for each in pod["volumes"]} | {each["metadata"]["name"] for each in claims}

    for container in containers(pod):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        for variable in container.get("env", ()):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            assert reference is None or reference["key"] in manifests[reference["name"]]["stringData"]
    for volume in pod["volumes"]:
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", "celeriac-history")
        assert manifests[claim]["kind"] == "PersistentVolumeClaim"
        for item in volume.get("secret", {}).get("items", ()):
            assert item["key"] in manifests[volume["secret"]["secretName"]]["stringData"]


def test_services_find_their_pods_and_probes_ask_for_what_is_open() -> None:
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for _, each in MANIFESTS
        if each["kind"] in ("StatefulSet", "Deployment")
    }
    services = {
        each["metadata"]["name"]: each["spec"]["selector"]
        for _, each in MANIFESTS
        if each["kind"] == "Service"
    }
    (web,) = PODS["celeriac-web"]["containers"]

    assert services == labels
    for kind in ("readinessProbe", "livenessProbe", "startupProbe"):
        asked = web[kind]["httpGet"]
        assert (asked["path"], asked["port"]) == ("/login", web["ports"][0]["name"])
        # An address of a pod is no name that it is served under.
        assert asked["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
    assert web["args"][web["args"].index("--port") + 1] == str(web["ports"][0]["containerPort"])
    assert PODS["celeriac-recorder"]["containers"][0]["readinessProbe"]["exec"]["command"][-1] == "--check"


# -- Prometheus and Grafana: expressions


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[str]]:
    """The labels of each series that a dashboard exposes that has seen some of everything."""
    held: list[Rig] = []
    queues = {"celery": 2}
    folder = tmp_path_factory.mktemp("web")
    publish(folder / "warehouse", {})
    recorder = RecorderStatus(
        name="a", recorder="a", log="log", pid=1, started_at=0.0, updated_at=0.0, state="recording", lag=0.5
    )
    with made(
        folder, arbiter=lambda: held[0].app.arbiter, queues=lambda: queues, recorders=lambda: [recorder]
    ) as rig:
        held.append(rig)
        assert wait_until(lambda: bool(rig.board.recorders() and rig.board.tables_at()), patience=PATIENCE)
        rig.send("worker-online", freq=2.0)
        rig.run_task("a")
        rig.arrived()
        with rig.broker.connect() as link:
            link.publish(event_exchange("celeryev", "memory"), b"?", routing_key="task.any", headers={})
        wait_until(lambda: bool(rig.board.watcher.receiver.gate.refused), patience=PATIENCE)
        presences = rig.board.watcher.presences
        wait_until(lambda: presences()["w1@lab"].sends_task_events is True, patience=PATIENCE)
        with rig.app.leadership("nightly"):
            text = metrics_text(rig.board).decode()
    told: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert told.setdefault(sample.name, frozenset(sample.labels)) == frozenset(sample.labels)
        assert family.samples, f"{family.name} has no labels to be known by"
    return told


BROKEN: list[Callable[[str], str]] = [
    lambda text: text.replace("celeriac_workers", "celeriac_wokers"),
    lambda text: text.replace("liveness", "state"),
    lambda text: text.replace("by (job)", "by (task)"),
    lambda text: text.replace(")", "", 1),
    lambda text: text + ")",
    lambda text: text.replace("max", "maximum"),
    lambda text: text.replace("celeriac_workers", "rate(celeriac_workers") + ")",
]


@pytest.mark.parametrize("spoil", BROKEN)
def test_an_expression_with_a_mistake_is_found(
    spoil: Callable[[str], str], series: dict[str, frozenset[str]]
) -> None:
    right = 'max by (job) (celeriac_workers{liveness="LOST"}) > 0'

    assert Promql(right, series).read() == Kind("vector", frozenset({"job"}))
    with pytest.raises(AssertionError):
        Promql(spoil(right), series).read()


# -- Prometheus

GROUPS: list[Any] = documents(ALERTS)[0]["groups"]
RULES: dict[str, Any] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}


def test_there_is_an_alert_for_each_thing_that_needs_somebody() -> None:
    names = [rule["alert"] for group in GROUPS for rule in group["rules"]]

    assert names == list(RULES)
    assert set(names) == {
        f"Celeriac{what}"
        for what in (
            "Absent", "ClocksDrift", "EventsLate", "EventsOverlooked", "FailureShareHigh", "Gap", "GapsRecur",
            "LinkFlapping", "MessagesRefused", "NoEvents", "NotReceiving", "NotRecording", "QueueWaitHigh",
            "RecorderDropping", "RecorderGap", "RecorderLate", "TablesOld", "TaskEventsOff", "TwoLeaders",
            "WorkerLost",
        )
    }  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_an_alert_can_be_asked_for_and_says_what_to_do(name: str, series: dict[str, frozenset[str]]) -> None:
    rule = RULES[name]

    kind = Promql(rule["expr"], series).read()

    text = rule["annotations"]["summary"] + rule["annotations"]["description"]
    assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert len(rule["annotations"]["description"]) > 80
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= kind.labels
    assert set(re.findall(r"\| (\w+) }}", text)) <= {"humanize", "humanizeDuration", "humanizePercentage"}
    assert text.count("{{") == text.count("}}") == len(re.findall(r"{{ \$[^{}]+ }}", text))


def test_there_is_a_case_in_which_each_alert_comes(series: dict[str, frozenset[str]]) -> None:
    cases = documents(ALERTS.with_name("alerts.test.yaml"))[0]["tests"]
    expected = [each for case in cases for asked in case["promql_expr_test"] for each in asked["exp_samples"]]
    given = [each["series"] for case in cases for each in case.get("input_series", ())]

    come = {re.findall(r'alertname="(\w+)"', each["labels"])[0] for each in expected}
    kinds = [(each, Promql(each, series).read()) for each in given]

    assert come == set(RULES)
    for each, kind in kinds:
        # With all labels that it has, or it would be another series.
        assert set(re.findall(r"(\w+)=", each)) == kind.labels


def test_prometheus_takes_the_rules_and_raises_each_alert_in_its_case() -> None:
    assert promtool("check", "rules", str(ALERTS)) == (0, "")
    assert promtool("test", "rules", str(ALERTS.with_name("alerts.test.yaml"))) == (0, "")


def test_the_page_lists_every_alert_and_no_other() -> None:
    assert set(re.findall(r"`(Celeriac[A-Z]\w+)`", PAGE.read_text())) == set(RULES)


def test_what_an_alert_tells_to_read_or_to_set_is_there() -> None:
    text = ALERTS.read_text()
    settings = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))

    assert settings == {"broker_heartbeat", "election_url", "event_exchange", "log_queue_expires"}
    assert settings <= set(Settings.__dataclass_fields__)
    assert [page for page in re.findall(r"docs/\S+\.md", text) if not (ROOT / page).is_file()] == []


def test_prometheus_is_let_in_by_a_token_that_stands_elsewhere() -> None:
    (told,) = documents(SCRAPE)
    (job,) = told["scrape_configs"]

    assert told["rule_files"] == [ALERTS.name]
    assert job["authorization"] == {"type": "Bearer", "credentials_file": "/etc/prometheus/celeriac.token"}
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8765"]}]


# -- Grafana

BOARD: dict[str, Any] = json.loads(DASHBOARD.read_text())
PANELS: dict[str, Any] = {panel["title"]: panel for panel in BOARD["panels"]}
VARIABLES: dict[str, Any] = {each["name"]: each for each in BOARD["templating"]["list"]}
SHOWN = {title: panel for title, panel in PANELS.items() if panel["type"] != "row"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def test_panels_have_ids_and_titles_of_their_own_and_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in BOARD["panels"]]

    def overlap(a: dict[str, int], b: dict[str, int]) -> bool:
        return (
            a["x"] < b["x"] + b["w"]
            and b["x"] < a["x"] + a["w"]
            and a["y"] < b["y"] + b["h"]
            and b["y"] < a["y"] + a["h"]
        )

    assert BOARD["schemaVersion"] >= 39
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(PANELS) == len(BOARD["panels"])
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []
    assert all(place["x"] + place["w"] <= 24 and place["h"] > 0 < place["w"] for place in places)


@pytest.mark.parametrize("title", SHOWN)
def test_a_panel_asks_for_what_there_is(title: str, series: dict[str, frozenset[str]]) -> None:
    panel = SHOWN[title]

    assert panel["datasource"] == SOURCE
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert target["datasource"] == SOURCE
        kind = Promql(target["expr"], series).read()
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kind.labels
        used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
        assert used <= set(VARIABLES)
        # One dashboard at a time: two that watch one cluster count everything twice.
        assert "instance" in used


def test_the_variables_are_filled_from_series_that_have_those_labels(
    series: dict[str, frozenset[str]],
) -> None:
    queries = {name: each["query"]["query"] for name, each in VARIABLES.items() if name != "datasource"}

    assert VARIABLES["datasource"]["type"] == "datasource"
    assert VARIABLES["datasource"]["query"] == "prometheus"
    assert list(VARIABLES) == ["datasource", "instance", "name", "worker"]
    for name, query in queries.items():
        told = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert told is not None
        assert told[2] == name
        assert name in Promql(told[1], series).read().labels


def test_everything_that_is_exposed_is_shown_or_alerted_on(series: dict[str, frozenset[str]]) -> None:
    asked = [target["expr"] for panel in SHOWN.values() for target in panel["targets"]]
    names = {name for text in asked for name in re.findall(r"celeriac_\w+", text)}

    # Of a histogram its buckets are enough.
    assert {name for name in series if not name.endswith(("_count", "_sum"))} == names


def test_no_file_of_a_deployment_has_a_tab_or_a_longer_line_than_editors_show() -> None:
    paths = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file() and path != DASHBOARD]

    lines = [(named(path), line) for path in paths for line in path.read_text().splitlines()]

    assert len(paths) > 15
    assert [place for place, line in lines if "\t" in line or len(line) > 180] == []
