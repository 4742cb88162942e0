#!/usr/bin/env python3
"""Do the requests that a fake of an API recorded fit the provider's own description of that API?

    fits.py KIND FOLDER

reads FOLDER/requests.jsonl of fake_cloud.py, and for k8s answers.jsonl. KIND is

    hf-jobs    the client of huggingface_hub makes the same calls of the same fake, with equal requests
    k8s        the package kubernetes has each call, and the schemas of Kubernetes accept each object and each answer
               (fits_k8s.py)
    sagemaker  the service models of botocore accept each body
    azureml    the models of azure-ai-ml have each member of each job, and its source each request for output
    runpod     the models of mcparmory-runpod, made from the published API, accept each pod
    modal      the package modal has each call, with these arguments, each kind of error, and that of no token
    skypilot   the source of the command sky has each option of each call, each member of a job, and no other state
    vertex     the discovery documents of google-api-python-client have each call and each member of its body"""
import json
import pathlib
import re
import sys
import urllib.parse


def read(folder, name="requests"):
    with open(folder / f"{name}.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def recorded_api(source):
    """The version of the API that the executor's row has."""
    text = (pathlib.Path(__file__).parents[2] / "src/launch/cloud" / source).read_text("utf-8")
    name = re.search(r'\.api = ("?)([^",]+)', text)
    return name[2] if name[1] else re.search(rf'#define {name[2]} "([^"]+)"', text)[1]


def check_known(source, installed):
    """Raise unless the version that was compared is the one that the executor launches by."""
    text = (pathlib.Path(__file__).parents[2] / "src/launch/cloud" / source).read_text("utf-8")
    known = re.search(r'#define KNOWN +"([^"]+)"', text)[1]
    assert installed.startswith(known + "."), f"{source}: {known} is not the version {installed} that was compared"


def known_states(source):
    """The states in the tables of an executor's source: rows such as {"RUNNING", DL_JOB_RUNNING}."""
    text = (pathlib.Path(__file__).parents[2] / "src/launch/cloud" / source).read_text("utf-8")
    return set(re.findall(r'\{"(\w+)", DL_JOB_', text))


def compare_states(source, theirs, ours_alone=(), unknown=()):
    """Raise unless the executor knows exactly these states: all of `theirs` but those of `unknown`, and `ours_alone`."""
    wanted = set(theirs) - set(unknown) | set(ours_alone)
    assert known_states(source) == wanted, f"{source}: {known_states(source) ^ wanted}"


def without_repeats(requests):
    return list({json.dumps(r["body"], sort_keys=True): r for r in requests}.values())


# ---- Hugging Face


def request_line(request):
    url = urllib.parse.urlsplit(request["path"])
    return request["method"], url.path, sorted(urllib.parse.parse_qsl(url.query)), request["body"]


def check_hf_jobs(folder):
    import huggingface_hub
    ours = read(folder)
    api = huggingface_hub.HfApi(endpoint="http://127.0.0.1:" + (folder / "port").read_text("ascii"),
                                token="hf_test-token")
    body = [r for r in ours if r["method"] == "POST" and r["path"] == "/api/jobs/alice"][-1]["body"]
    (folder / "fault").write_text("400", encoding="ascii")  # the request is recorded, and nothing is started
    try:
        api.run_job(image=body["dockerImage"], command=body["command"], env=body["environment"],
                    secrets=body["secrets"], flavor=body["flavor"], labels=body["labels"], namespace="alice")
    except huggingface_hub.errors.HfHubHTTPError:
        pass
    (folder / "fault").unlink()
    job = next(iter(api.list_jobs(labels=body["labels"], namespace="alice")))
    api.inspect_job(job_id=job.id, namespace="alice")
    list(api.fetch_job_logs(job_id=job.id, namespace="alice"))
    api.cancel_job(job_id=job.id, namespace="alice")
    theirs = [r for r in read(folder)[len(ours):] if r["path"].startswith("/api/jobs/")]  # and not its telemetry
    assert len(theirs) == 5, theirs
    known = [request_line(r)[:3] for r in ours if r["path"] != "/api/jobs/alice" or r["method"] != "POST"]
    for request in theirs:
        line = request_line(request)
        if request["method"] == "POST" and line[1] == "/api/jobs/alice":
            assert line[3] == body, f"{line[3]} is not {body}"
        elif not line[1].endswith("/logs"):  # diloco launch logs has read those of one job
            assert line[:3] in known, f"{line} was not sent"
    compare_states("hf_jobs.c", [stage.value for stage in huggingface_hub.JobStage], ours_alone=["UPDATING"])
    return f"{len(theirs)} requests equal to those of huggingface_hub {huggingface_hub.__version__}"


# ---- Kubernetes


def check_k8s(folder):
    import fits_k8s
    requests, answers = ([line for line in read(folder, name) if not line["path"].startswith("/test/")]
                         for name in ("requests", "answers"))
    return fits_k8s.check(requests, answers)


# ---- SageMaker


def check_sagemaker(folder):
    import botocore.loaders
    import botocore.model
    import botocore.validate
    models = {}
    for prefix, name in (("SageMaker", "sagemaker"), ("Logs_20140328", "logs")):
        data = botocore.loaders.Loader().load_service_model(name, "service-2")
        models[prefix] = botocore.model.ServiceModel(data, name)
        assert data["metadata"]["targetPrefix"] == prefix
        assert name != "sagemaker" or data["metadata"]["apiVersion"] == recorded_api("sagemaker.c")
    n = 0
    for request in read(folder):
        headers = {name.lower(): value for name, value in request["headers"].items()}
        prefix, operation = headers["x-amz-target"].split(".")
        shape = models[prefix].operation_model(operation).input_shape
        report = botocore.validate.ParamValidator().validate(request["body"], shape)
        assert not report.has_errors(), report.generate_report()
        unknown = set(request["body"]) - set(shape.members)
        assert not unknown, f"{operation} has no {unknown}"
        assert headers["content-type"] == "application/x-amz-json-" + models[prefix].metadata["jsonVersion"]
        n += 1
    assert n
    shapes = models["SageMaker"].shape_for
    assert "The maximum value is 28 days." in shapes("StoppingCondition").members["MaxRuntimeInSeconds"].documentation
    # These secondary states are those of jobs that are no longer InProgress.
    ends = {"Stopping", "Stopped", "Completed", "Failed", "MaxRuntimeExceeded", "MaxWaitTimeExceeded"}
    compare_states("sagemaker.c", shapes("TrainingJobStatus").enum + [
        state for state in shapes("SecondaryStatus").enum if state not in ends])
    return f"{n} requests fit the service models of botocore {botocore.__version__}"


# ---- RunPod


def check_runpod(folder):
    """The package leaves out the sizes of disks. A name that no list has is refused, as by the service."""
    import importlib.metadata
    import typing

    import _models  # of mcparmory-runpod
    import pydantic
    model, n = _models.CreatePodRequestBody, 0
    for request in without_repeats(r for r in read(folder) if r["method"] == "POST"):
        body = request["body"]
        sizes = [body.pop(name) for name in ("containerDiskInGb", "volumeInGb") if name in body]
        assert all(type(size) is int for size in sizes), sizes
        try:
            model.model_validate(body, strict=True)
        except pydantic.ValidationError as error:
            wrong = {(e["loc"][0], e["type"], e["input"]) for e in error.errors()}
            assert wrong in ({("dataCenterIds", "literal_error", "EU-XX-9")}, {("cpuFlavorIds", "literal_error", "cpu9z")}), error
        n += 1
    assert n
    for body in ({"gpuCount": "1"}, {"computeType": "TPU"}, {"gpus": 1}, {"gpuTypeIds": "NVIDIA L4"}):
        try:
            model.model_validate(body, strict=True)
        except pydantic.ValidationError:
            continue
        raise AssertionError(f"{body} is accepted")
    status = typing.get_args(_models.ListPodsRequestQuery.model_fields["desired_status"].annotation)[0]
    compare_states("runpod.c", typing.get_args(status))
    return f"{n} pods fit the models of mcparmory-runpod {importlib.metadata.version('mcparmory-runpod')}"


# ---- Azure ML


def import_azure_models():
    """The models alone: the package itself imports clients that are not installed."""
    import importlib.util
    import types
    where = importlib.util.find_spec("azure.core").submodule_search_locations[0]
    folder = pathlib.Path(where).parents[1]
    for name in ("azure.ai", "azure.ai.ml", "azure.ai.ml._restclient"):
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = [str(folder / name.replace(".", "/"))]
    from azure.ai.ml._restclient.arm_ml_service import _version, models
    return models, _version.VERSION


def fit_model(models, value, kind, where):
    """Raise when a member of the value, or of a model in it, is not in the model."""
    import typing
    fields = {name: field for base in reversed(kind.__mro__) for name, field in vars(base).items()
              if type(field).__name__ == "_RestField"}
    names = vars(sys.modules[kind.__module__]) | {"_models": models}
    kinds = typing.get_type_hints(kind, names, names)
    by_name = {getattr(field, "_rest_name_input", None) or name: name for name, field in fields.items()}
    for key, item in value.items():
        assert key in by_name, f"{where}: {kind.__name__} has no member {key}"
        inner = [k for k in typing.get_args(kinds[by_name[key]]) or (kinds[by_name[key]],) if hasattr(k, "as_dict")]
        if inner and key == "identity":
            inner = [models.ManagedIdentity]
        if inner and key == "properties":
            inner = [models.CommandJob]
        if inner:
            fit_model(models, item, inner[0], f"{where}.{key}")


def package_text(path):
    return (pathlib.Path(sys.modules["azure.ai.ml"].__path__[0]) / path).read_text("utf-8")


def check_azure_output(folder):
    """The path of the run history service, the names of its members, of the file and of the token's scope."""
    package = pathlib.Path(sys.modules["azure.ai.ml"].__path__[0])
    texts = {name: (package / name).read_text("utf-8") for name in (
        "_restclient/runhistory/operations/_operations.py", "_restclient/runhistory/models/_models_py3.py",
        "constants/_common.py", "constants/_job/job.py", "_ml_client.py", "_azure_environments.py")}
    operations, members, common, job, client, clouds = texts.values()
    templates = [re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))
                 for path in re.findall(r'"(/history/v1.0/[^"]*/runs/\{runId\}/details)"', operations)]
    paths = {r["path"] for r in read(folder) if r["path"].startswith("/history/")}
    assert paths and all(any(re.fullmatch(t, path) for t in templates) for path in paths), paths
    details = members[members.index("\nclass RunDetails("):]
    assert '"error": {"key": "error", "type": "ErrorResponse"}' in details[:details.index("def __init__")]
    response = members[members.index("\nclass ErrorResponse("):]
    assert '"error": {"key": "error", "type": "RootError"}' in response[:response.index("def __init__")]
    assert '"key": "logFiles"' in members and 'API = "api"' in common
    pattern = re.search(r'COMMON_RUNTIME_STREAM_LOG_PATTERN = "(.*)"', job)[1].replace("\\\\", "\\")
    assert re.match(pattern, "user_logs/std_log.txt"), pattern
    # The clients of jobs get the scope of the cloud's resource manager, and not their own default.
    assert "kwargs.update(_get_cloud_information_from_metadata(cloud_name))" in client
    assert re.search(r"JobOperations\([^)]*_service_client_kwargs=kwargs", client)
    assert re.search(r"credential_scopes = _resource_to_scopes\(\s*cloud_details.get\(EndpointURLS.RESOURCE_MANAGER", clouds)
    assert 'RESOURCE_MANAGER_ENDPOINT: "https://management.azure.com/"' in clouds
    return len(paths)


def check_azureml(folder):
    models, version = import_azure_models()
    n, outputs = 0, check_azure_output(folder)
    for request in without_repeats(r for r in read(folder) if r["method"] == "PUT"):
        body = request["body"]
        fit_model(models, body, models.JobBase, "job")
        assert body["properties"]["jobType"] == models.JobType.COMMAND.value
        assert not {"command", "environmentId"} - set(body["properties"])
        n += 1
    assert n
    configuration = package_text("_restclient/arm_ml_service/_configuration.py")
    assert f'"api_version", "{recorded_api("azureml.c")}")' in configuration
    compare_states("azureml.c", [status.value for status in models.JobStatus], unknown=["Unknown"])
    return f"{n} jobs and {outputs} requests for output fit azure-ai-ml (arm_ml_service {version})"


# ---- SkyPilot


def words_in(nodes):
    import ast
    return {part for node in nodes for leaf in ast.walk(node)
            if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) for part in leaf.value.split("/")}


def option_names(commands, flags):
    """Names of options by function: those of its decorators, and those that several functions share."""
    import ast
    functions = [node for node in commands.body if isinstance(node, ast.FunctionDef)]
    shared = words_in([flags, *(node for node in commands.body if isinstance(node, (ast.Assign, ast.AnnAssign)))])
    helpers = [node for node in functions if node.name.startswith("_") and "option" in node.name]
    shared |= words_in(helpers)
    return {node.name: words_in(node.decorator_list) | shared for node in functions}


def check_skypilot(folder):
    import ast
    import importlib.metadata
    import importlib.util
    source = pathlib.Path(importlib.util.find_spec("sky").submodule_search_locations[0])
    trees = {name: ast.parse((source / name).read_text("utf-8"))
             for name in ("client/cli/command.py", "client/cli/flags.py", "schemas/api/responses.py", "jobs/state.py")}
    options = option_names(trees["client/cli/command.py"], trees["client/cli/flags.py"])
    command = (source / "client/cli/command.py").read_text("utf-8")
    assert "version_option(sky.__version__, '--version'" in command and "prog_name='skypilot'" in command
    check_known("skypilot.c", importlib.metadata.version("skypilot"))
    calls = read(folder)
    for call in calls:
        group, verb, *words = call["argv"]
        unknown = {word for word in words if word.startswith("--")} - options[f"{group}_{verb}"]
        assert not unknown, f"sky {group} {verb} has no {unknown}"
    classes = {node.name: node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    members = {node.target.id for node in classes["ManagedJobRecord"].body if isinstance(node, ast.AnnAssign)}
    assert {"job_id", "job_name", "status", "failure_reason"} <= members
    states = {node.value.value for node in classes["ManagedJobStatus"].body if isinstance(node, ast.Assign)}
    compare_states("skypilot.c", states)
    return f"{len(calls)} calls fit the source of SkyPilot {importlib.metadata.version('skypilot')}"


# ---- Modal


def check_modal(folder):
    import importlib.metadata
    import inspect
    import modal
    script = (pathlib.Path(__file__).parents[2] / "src/launch/cloud/modal.c").read_text("utf-8")
    assert '"Token missing.' in (pathlib.Path(modal.__file__).parent / "client.py").read_text("utf-8")
    for name in re.findall(r"modal\.exception\.(\w+)", script):
        assert issubclass(getattr(modal.exception, name), modal.exception.Error), name
    check_known("modal.c", importlib.metadata.version("modal"))
    calls = read(folder)
    for call in calls:
        function, is_method = modal, call["call"].startswith("Sandbox.logs.")
        if is_method:
            function = modal._logs_manager._SandboxLogsManager
        for name in call["call"].split(".")[2 if is_method else 0:]:
            owner, function = function, getattr(function, name)
        kwargs = {key: value for key, value in call["kwargs"].items() if value is not None}
        parameters = inspect.signature(function).parameters
        takes_self = next(iter(parameters), None) == "self"
        inspect.signature(function).bind(*([owner] if takes_self else []), *call["args"], **kwargs)
    seen = sorted({call["call"] for call in calls})
    return f"{len(calls)} calls fit the package modal {importlib.metadata.version('modal')}: {', '.join(seen)}"


# ---- Vertex AI


def fit_schema(document, value, schema, where):
    schema = document["schemas"][schema["$ref"]] if "$ref" in schema else schema
    if schema["type"] == "array":
        for i, item in enumerate(value):
            fit_schema(document, item, schema["items"], f"{where}[{i}]")
    elif schema["type"] == "object":
        for key, item in value.items():
            known = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            assert known, f"{where} has no member {key}"
            fit_schema(document, item, known, f"{where}.{key}")
    else:
        wanted = {"string": str, "integer": int, "boolean": bool}[schema["type"]]
        assert isinstance(value, wanted), f"{where}: {value!r} is no {schema['type']}"
        assert value in schema.get("enum", [value]), f"{where}: {value} is not one of {schema['enum']}"


def methods(resource):
    yield from resource.get("methods", {}).values()
    for child in resource.get("resources", {}).values():
        yield from methods(child)


def method_of(documents, request):
    path = urllib.parse.urlsplit(request["path"]).path.lstrip("/")
    for document in documents:
        for method in methods(document):
            pattern = re.sub(r"\\\{\w+\\\}", "[^/:]+", re.escape(method.get("flatPath", method["path"])))
            if method["httpMethod"] == request["method"] and re.fullmatch(pattern, path):
                return document, method
    raise AssertionError(f"no method for {request['method']} {path}")


def check_vertex(folder):
    import googleapiclient.discovery_cache
    texts = pathlib.Path(googleapiclient.discovery_cache.__file__).parent / "documents"
    documents = [json.loads((texts / f"{name}.json").read_text("utf-8")) for name in ("aiplatform.v1", "logging.v2")]
    n, seen = 0, set()
    for request in read(folder):
        if request["path"] == "/token":
            continue
        document, method = method_of(documents, request)
        if request["body"] is not None:
            fit_schema(document, request["body"], method["request"], method["id"])
        for name in urllib.parse.parse_qs(urllib.parse.urlsplit(request["path"]).query):
            assert name in method["parameters"], f"{method['id']} has no parameter {name}"
        seen.add(method["id"])
        n += 1
    assert documents[0]["version"] == recorded_api("vertex.c")
    states = documents[0]["schemas"]["GoogleCloudAiplatformV1CustomJob"]["properties"]["state"]["enum"]
    compare_states("vertex.c", states, unknown=["JOB_STATE_UNSPECIFIED"])
    return f"{n} requests fit the discovery documents of Google: {', '.join(sorted(seen))}"


KINDS = {"vertex": check_vertex, "hf-jobs": check_hf_jobs, "k8s": check_k8s, "sagemaker": check_sagemaker,
         "runpod": check_runpod, "azureml": check_azureml, "skypilot": check_skypilot, "modal": check_modal}

if __name__ == "__main__":
    print(KINDS[sys.argv[1]](pathlib.Path(sys.argv[2])))
