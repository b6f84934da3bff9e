"""The files of executor/ops: the programs they are for accept them, Caretaker knows every command,
flag and variable in them, and what is written in several places is the same everywhere."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import kubernetes_validate
import pytest
import yaml

TOP = Path(__file__).parents[2]
OPS = TOP / "executor/ops"
BASE = OPS / "kubernetes/base"
UNITS = sorted((OPS / "systemd").glob("*.service"))
# The oldest and the newest Kubernetes that the manifests are held against.
KUBERNETES = ["1.28", "1.37"]

# Variables that Caretaker does not list: Lance's storage reads them, the PostgreSQL client, the
# state folder's rule, or the command line of a unit or a pod.
STORAGE = {
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_REGION",
    "AWS_ENDPOINT",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_ALLOW_HTTP",
}
NOT_SETTINGS = STORAGE | {"PGPASSWORD", "XDG_STATE_HOME", "CARETAKER_ROOT"}
# Values come from whoever deploys it; in a committed file they are empty.
SECRET = {"PGPASSWORD", "CARETAKER_REGISTRY_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
# Of the memory limit, how much a worker's jobs may have.
JOBS_SHARE_MAX = 0.75


class Process(NamedTuple):
    """How a file starts Caretaker."""

    args: list
    env: dict
    memory: int
    stop_secs: int
    asked: set  # addresses that probes ask


# ------------------------------------------------------------------------------ reading the files


def size(text):
    number, unit = re.fullmatch(r"(\d+)([KMGkmg]?)(?:iB?)?", str(text)).groups()
    return int(number) << {"": 0, "k": 10, "m": 20, "g": 30}[unit.lower()]


def variables(path):
    """What a file of variables sets, also in the lines that wait to be needed."""
    pairs = re.findall(r"^#?([A-Z][A-Z0-9_]*)=(.*)$", path.read_text(), re.M)
    assert len(pairs) == len(dict(pairs)), f"{path.name} names a variable twice"
    return dict(pairs)


def used(text):
    """The variables that a Compose file asks for."""
    return set(re.findall(r"\$\{(\w+)", text))


def compose():
    """The Compose file as it is with the examples beside it, filled in."""
    folder = OPS / "compose"
    given = variables(folder / ".env.example") | {"CARETAKER_REGISTRY_PASSWORD": "secret"}

    def value(found):
        name, default = found["name"], found["default"]
        return given[name] if default is None else default

    text = re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*)|:\?[^}]*)?\}", value, (folder / "docker-compose.yml").read_text())
    assert "$" not in text, "a variable is written in a way this test can't fill in"
    return yaml.safe_load(text)


def documents(*paths):
    return [each for path in paths for each in yaml.safe_load_all(path.read_text())]


def manifests():
    """The objects of the base, by kind and name."""
    paths = [BASE / name for name in documents(BASE / "kustomization.yaml")[0]["resources"]]
    return {(each["kind"], each["metadata"]["name"]): each for each in documents(*paths)}


def unit(path):
    """Section and key to the values given to it, in their order."""
    section, found = None, {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault((section, key), []).append(value)
    return found


def addresses(words):
    return {word for word in words if word.startswith("http:")}


# ------------------------------------------------------------------------------ what they start


def from_compose():
    for name in ("agent", "worker"):
        service = compose()["services"][name]
        env = variables(OPS / "compose/storage.env.example") | service["environment"]
        minutes = int(re.fullmatch(r"(\d+)m", service["stop_grace_period"])[1])
        limit = size(service["deploy"]["resources"]["limits"]["memory"])
        yield name, Process(service["command"], env, limit, 60 * minutes, addresses(service["healthcheck"]["test"]))


def from_kubernetes():
    literals = documents(BASE / "kustomization.yaml")[0]["configMapGenerator"][0]["literals"]
    shared = dict(each.split("=", 1) for each in literals)
    for name in ("agent", "worker"):
        pod = manifests()["Deployment", f"caretaker-{name}"]["spec"]["template"]["spec"]
        box = pod["containers"][0]
        secret = "postgres://caretaker@db.example/caretaker"
        env = shared | {each["name"]: each.get("value", secret) for each in box["env"]}
        args = [each.replace("$(CARETAKER_ROOT)", shared["CARETAKER_ROOT"]) for each in box["args"]]
        asked = set().union(*(addresses(box[f"{kind}Probe"]["exec"]["command"]) for kind in ("startup", "liveness", "readiness")))
        limit = size(box["resources"]["limits"]["memory"])
        yield name, Process(args, env, limit, pod["terminationGracePeriodSeconds"], asked)


def from_systemd():
    file = variables(OPS / "systemd/caretaker.env.example")
    for path in UNITS:
        given = {key: values for (_, key), values in unit(path).items()}
        line = given["ExecStart"][0].replace("${CARETAKER_ROOT}", file["CARETAKER_ROOT"]).replace("%i", "9651")
        env = dict(each.split("=", 1) for each in given.get("Environment", [])) | file
        minutes = int(re.fullmatch(r"(\d+)min", given["TimeoutStopSec"][0])[1])
        yield path.name, Process(shlex.split(line)[1:], env, size(given["MemoryMax"][0]), 60 * minutes, set())


STARTED = {
    f"{where} {name}": process
    for where, read in {"compose": from_compose, "kubernetes": from_kubernetes, "systemd": from_systemd}.items()
    for name, process in read()
}
every_process = pytest.mark.parametrize("process", STARTED.values(), ids=STARTED)


# ------------------------------------------------------------------------------ Caretaker knows them


def flags(process):
    """What follows the command, and the root if it has one."""
    first = next((n for n, each in enumerate(process.args) if each.startswith("--")), len(process.args))
    return process.args[first:]


@every_process
def test_caretaker_has_the_command_and_its_flags(caretaker, process):
    # Flags are read in their order: the help comes only if it knows those before.
    caretaker(*process.args, "--help")


@every_process
def test_every_variable_is_a_setting_with_a_value_it_takes(caretaker, process):
    # The command that shows settings reads them as the others do, and takes every flag of them.
    set_here = {name: value for name, value in process.env.items() if name not in NOT_SETTINGS}
    shown = json.loads(caretaker("settings", "--json", *flags(process), **set_here).stdout)
    by = {each["source"] for each in shown.values()}
    assert {f"environment {name}" for name in set_here} <= by
    assert {f"flag {word}" for word in flags(process) if word.startswith("--")} <= by


def test_agents_run_no_jobs_and_a_machine_on_its_own_does():
    jobs = {name: "--worker-jobs 0" in " ".join(process.args) for name, process in STARTED.items() if process.args[0] == "serve"}
    assert jobs == {
        "compose agent": True,
        "kubernetes agent": True,
        "systemd caretaker-agent.service": True,
        "systemd caretaker.service": False,
    }


@every_process
def test_a_stop_waits_for_running_jobs(process):
    assert process.stop_secs >= 600


@every_process
def test_jobs_get_less_memory_than_the_process_may_have(process):
    jobs = size(process.env.get("CARETAKER_WORKER_MEMORY_BYTES", 0))
    assert jobs <= JOBS_SHARE_MAX * process.memory
    assert jobs or "--worker-jobs 0" in " ".join(process.args), "nothing bounds its jobs"


@every_process
def test_probes_ask_where_it_answers(process):
    listens = f"http://{process.env['CARETAKER_LISTEN']}" if process.asked else None
    assert {url.rpartition("/")[0] for url in process.asked} <= {listens}
    assert {url.rpartition("/")[2] for url in process.asked} <= {"healthz", "readyz"}


# ------------------------------------------------------------------------------ as a whole


YAML = sorted([*OPS.rglob("*.yml"), *OPS.rglob("*.yaml")])


@pytest.mark.parametrize("path", YAML, ids=[str(path.relative_to(OPS)) for path in YAML])
def test_it_is_yaml(path):
    assert all(isinstance(each, dict) for each in documents(path))


EXAMPLES = sorted(OPS.rglob("*.env.example"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_an_example_holds_no_secret(path):
    assert {name: value for name, value in variables(path).items() if name in SECRET and value} == {}


# ------------------------------------------------------------------------------ the image


def test_the_image_is_built_with_the_toolchain_and_the_packages_of_this_repository():
    text = (OPS / "Dockerfile").read_text()
    channel = re.search(r'channel = "(.*)"', (TOP / "rust-toolchain.toml").read_text())[1]
    assert re.search(r"^FROM rust:(\S+)-bookworm", text, re.M)[1] == channel
    assert re.search(r"RUSTUP_TOOLCHAIN=(\S+)", text)[1] == channel
    installed = set(re.findall(r"install -y --no-install-recommends ([\w\- ]+)", text)[0].split())
    build = re.search(r"^build\(\) \{.*?^\}", (TOP / ".ci/setup").read_text(), re.M | re.S)[0]
    wanted = set(" ".join(re.findall(r"missing\+=\(([^)]*)\)", build)).split())
    assert installed == wanted - {"gcc", "libc6-dev", "make"}
    members = tomllib.loads((TOP / "Cargo.toml").read_text())["workspace"]["members"]
    copied = {each.split("/")[0] for each in re.findall(r"^COPY (\S+) [a-z]\S*$", text, re.M)}
    assert copied == {each.split("/")[0] for each in members}


def test_the_image_runs_as_the_user_that_kubernetes_names():
    user, group = re.search(r"^USER (\d+):(\d+)$", (OPS / "Dockerfile").read_text(), re.M).groups()
    assert user != "0"
    for name in ("agent", "worker"):
        context = manifests()["Deployment", f"caretaker-{name}"]["spec"]["template"]["spec"]["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))


def test_files_with_secrets_stay_out_of_the_image_and_of_git():
    ignored = (OPS / "Dockerfile.dockerignore").read_text().split()
    assert {"**/.env", "**/*.env"} <= set(ignored)
    assert set((OPS / "compose/.gitignore").read_text().split()) == {".env", "storage.env"}


# ------------------------------------------------------------------------------ Compose


def test_the_compose_file_is_of_the_compose_specification(tmp_path):
    path = tmp_path / "compose.json"
    path.write_text(json.dumps(compose()))
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", path]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_explains_every_variable_of_the_compose_file():
    assert set(variables(OPS / "compose/.env.example")) == used((OPS / "compose/docker-compose.yml").read_text())


def test_services_wait_for_a_healthy_registry_and_come_back():
    services = compose()["services"]
    assert set(services) == {"postgres", "agent", "worker"}
    for name, service in services.items():
        assert service["restart"] == "unless-stopped" and service["healthcheck"]["test"]
        waits = {} if name == "postgres" else {"postgres": {"condition": "service_healthy"}}
        assert service.get("depends_on", {}) == waits
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] == services["agent"]["environment"]["PGPASSWORD"]
    replicas = {name: service["deploy"].get("replicas") for name, service in services.items()}
    assert replicas == {"postgres": None, "agent": 2, "worker": 3}


# ------------------------------------------------------------------------------ systemd


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze here")
@pytest.mark.parametrize("path", UNITS, ids=[path.name for path in UNITS])
def test_systemd_understands_the_unit(path, tmp_path):
    # What it can't understand it skips, so any word of it counts; the binary must be there for it.
    text = path.read_text().replace("/usr/local/bin/caretaker", os.path.abspath(os.environ["CARETAKER"]))
    (tmp_path / path.name).write_text(text)
    instance = tmp_path / path.name.replace("@", "@9651")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", instance], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    rating = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", tmp_path / path.name]
    done = subprocess.run(rating, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"it may do more than 2.0 of 10: {done.stdout[-300:]}"


def test_units_differ_only_in_what_they_run():
    own = {"Description", "Type", "Environment", "StateDirectory", "StateDirectoryMode", "MemoryMax", "ExecStart"}
    shared = [{key: value for key, value in unit(path).items() if key[1] not in own} for path in UNITS]
    assert len(UNITS) == 3 and all(each == shared[0] for each in shared)
    service = {key: values[-1] for (_, key), values in unit(UNITS[0]).items()}
    assert (service["Restart"], service["SuccessExitStatus"]) == ("on-failure", "143")
    sysusers = (OPS / "systemd/sysusers.d/caretaker.conf").read_text()
    assert re.search(rf"^u {service['User']} ", sysusers, re.M)


# ------------------------------------------------------------------------------ Kubernetes


def kustomize(folder):
    if not shutil.which("kubectl"):
        pytest.skip("there is no kubectl here")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_of_the_schemas_of_kubernetes(version):
    for each in manifests().values():
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("folder", ["base", "example"])
def test_kustomize_makes_objects_that_name_each_other(folder):
    made = kustomize(OPS / "kubernetes" / folder)
    for each in made:
        kubernetes_validate.validate(each, KUBERNETES[-1], strict=True)
        assert each["metadata"].get("namespace", "caretaker") == "caretaker"
    config = next(each for each in made if each["kind"] == "ConfigMap")
    pods = [each["spec"]["template"]["spec"] for each in made if each["kind"] == "Deployment"]
    sources = {pod["containers"][0]["envFrom"][0]["configMapRef"]["name"] for pod in pods}
    assert len(pods) == 2 and sources == {config["metadata"]["name"]}
    assert len({pod["containers"][0]["image"] for pod in pods}) == 1
    assert set(config["data"]) == {"CARETAKER_ROOT", "CARETAKER_LISTEN", "CARETAKER_LOG_FORMAT"}


def test_the_base_lists_every_file_beside_it():
    listed = documents(BASE / "kustomization.yaml")[0]["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(path.name for path in BASE.iterdir())


def test_selectors_find_the_pods_they_are_for():
    made = manifests()
    pods = {name: each["spec"]["template"]["metadata"]["labels"] for (kind, name), each in made.items() if kind == "Deployment"}
    assert set(pods) == {"caretaker-agent", "caretaker-worker"}

    def found(selector):
        return {name for name, labels in pods.items() if selector["matchLabels"].items() <= labels.items()}

    for name in pods:
        spec = made["Deployment", name]["spec"]
        spread = spec["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]
        budget = made["PodDisruptionBudget", name]["spec"]["selector"]
        assert found(spec["selector"]) == found(spread) == found(budget) == {name}
    assert found(made["NetworkPolicy", "caretaker"]["spec"]["podSelector"]) == set(pods)


def test_pods_refer_to_what_the_base_has_and_to_the_secrets_it_tells_how_to_make():
    text = (BASE / "kustomization.yaml").read_text()
    secrets = dict(re.findall(r"create secret generic (\S+) --from-env-file=(\S+)", text))
    assert secrets == {"caretaker-registry": "registry.env", "caretaker-storage": "storage.env"}
    told = set(re.findall(r"\b([A-Z_]+)=(?:postgres|\.\.\.)", text))
    configs = {each["name"] for each in documents(BASE / "kustomization.yaml")[0]["configMapGenerator"]}
    for name in ("caretaker-agent", "caretaker-worker"):
        pod = manifests()["Deployment", name]["spec"]["template"]["spec"]
        assert ("ServiceAccount", pod["serviceAccountName"]) in manifests()
        box = pod["containers"][0]
        assert {each["configMapRef"]["name"] for each in box["envFrom"] if "configMapRef" in each} == configs
        storage = [each["secretRef"] for each in box["envFrom"] if "secretRef" in each]
        assert storage == [{"name": "caretaker-storage", "optional": True}]
        keys = [each["valueFrom"]["secretKeyRef"] for each in box["env"] if "valueFrom" in each]
        assert {each["name"] for each in keys} == {"caretaker-registry"}
        # Without the address a pod must not start; a password may be elsewhere.
        assert {each["key"]: each.get("optional", False) for each in keys} == {"CARETAKER_REGISTRY": False, "PGPASSWORD": True}
        assert {each["key"] for each in keys} == told
        mounts = {each["name"] for each in box["volumeMounts"]}
        assert mounts == {each["name"] for each in pod["volumes"]}


def test_pods_differ_only_in_what_they_run():
    def shared(name):
        spec = manifests()["Deployment", f"caretaker-{name}"]["spec"]["template"]["spec"]
        (box,) = spec.pop("containers")
        for own in ("args", "env", "resources"):
            box.pop(own)
        for own in ("topologySpreadConstraints", "volumes"):
            spec.pop(own)
        return spec, box

    pod, box = shared("agent")
    assert (pod, box) == shared("worker")
    assert box["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
