"""The part of fits.py for Kubernetes.

The OpenAPI documents of Kubernetes 1.29 and later are JSON schemas of the package kubernetes-validate. They have to accept
each object that was sent and each that the fake has answered. Of the objects of extensions the parts in EXTENSIONS alone are
checked, none of which belongs to a LocalQueue. An answer without a kind, that of /version, is not checked.

The schemas are strict: types, required members and formats, and no member that they lack. They have no choices, quantities
and labels. Those are checked here, choices by the descriptions of their members. The package kubernetes has to have each
call."""
import copy
import json
import pathlib
import re

OLDEST = 29  # Kubernetes 1.29, which docs/launch.md requires

META = "io.k8s.apimachinery.pkg.apis.meta.v1"

# Kinds whose schema the cluster gets with an extension, and the parts of them that are Kubernetes' own.
EXTENSIONS = {
    "RayJob": {"metadata": META + ".ObjectMeta",
               "spec.rayClusterSpec.headGroupSpec.template": "io.k8s.api.core.v1.PodTemplateSpec"},
    "PodGroup": {"metadata": META + ".ObjectMeta"},
    "LocalQueue": {},
}
OF_ALL_GROUPS = {"Status", "APIGroup", "APIResourceList"}
PACKAGES = {"v1": "io.k8s.api.core.v1", "batch/v1": "io.k8s.api.batch.v1",
            "authorization.k8s.io/v1": "io.k8s.api.authorization.v1"}

# Texts of a request by member or type: those that name one of several choices, those of a form, and free ones. "*" is any
# key of a map. A new text needs a row.
CHOICES = {"JobSpec.completionMode", "PodFailurePolicyRule.action", "PodSpec.restartPolicy"}
FORMS = {"Quantity": r"[+-]?(\d+|\d+\.\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+)?",
         "ObjectMeta.name": r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
         "ObjectMeta.labels.*": r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?",
         "EnvVar.name": r"[-._a-zA-Z][-._a-zA-Z0-9]*"}
FORMS["PodSpec.nodeSelector.*"] = FORMS["ObjectMeta.labels.*"]
FREE = {"Container.args", "Container.command", "Container.image", "Container.name", "ContainerPort.name", "EnvVar.value",
        "ExecAction.command", "ObjectFieldSelector.fieldPath", "ObjectMeta.annotations.*",
        "PodFailurePolicyOnPodConditionsPattern.status", "PodFailurePolicyOnPodConditionsPattern.type",
        "PodSpec.schedulerName", "PodSpec.serviceAccountName", "ResourceAttributes.group", "ResourceAttributes.namespace",
        "ResourceAttributes.resource", "ResourceAttributes.subresource", "ResourceAttributes.verb", "Secret.stringData.*",
        "Secret.type", "SecretKeySelector.key", "SecretKeySelector.name"}
FREE |= {f"{kind}.{member}" for kind in ("Job", "Secret", "SelfSubjectAccessReview") for member in ("apiVersion", "kind")}


class Document:
    """The OpenAPI document of one version."""

    def __init__(self, version, folder):
        import jsonschema
        self.version, self.validators = version, {}
        self.definitions = json.loads((folder / "_definitions.json").read_text("utf-8"))["$defs"]
        self.formats = jsonschema.FormatChecker(formats=())
        for bits in (32, 64):
            self.formats.checks(f"int{bits}")(lambda value, most=1 << (bits - 1):
                                              not isinstance(value, int) or -most <= value < most)

    def validate(self, value, kind, where):
        """Raise AssertionError if the value is no object of the definition `kind`."""
        import jsonschema
        if kind not in self.validators:
            schema = {"$ref": f"#/$defs/{kind}", "$defs": self.definitions}
            self.validators[kind] = jsonschema.Draft202012Validator(schema, format_checker=self.formats)
        error = jsonschema.exceptions.best_match(self.validators[kind].iter_errors(value))
        assert not error, f"Kubernetes {self.version}, {where}{error.json_path[1:]}: {error.message}"

    def texts(self, value, schema, where, name=""):
        """(name, text, description, place) of each text in a valid value. The name is that of its member, such as
        JobSpec.completionMode, or of a type that is a text."""
        owner = name
        while "$ref" in schema:
            kind = schema["$ref"].rpartition("/")[2]
            schema, owner = self.definitions[kind], kind.rpartition(".")[2]
        assert value is not None, f"{where}: null"
        if isinstance(value, dict):
            members = schema.get("properties")
            for key, item in value.items():
                inner = members[key] if members else schema["additionalProperties"]
                yield from self.texts(item, inner, f"{where}.{key}", f"{owner}.{key}" if members else f"{name}.*")
        elif isinstance(value, list):
            inner = {"description": schema.get("description", ""), **schema["items"]}
            for i, item in enumerate(value):
                yield from self.texts(item, inner, f"{where}[{i}]", name)
        elif isinstance(value, str):
            yield owner, value, schema.get("description", ""), where


def documents():
    """From the oldest version on, without a gap."""
    import kubernetes_validate
    folder = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    minors = sorted(int(path.name.split(".")[1]) for path in folder.glob("v1.*-local-strict"))
    minors = [minor for minor in minors if minor >= OLDEST]
    source = pathlib.Path(__file__).parents[2] / "src/launch/cloud/k8s/k8s_ready.c"
    last = int(re.search(r"MINOR_LAST = (\d+)", source.read_text("utf-8"))[1])
    assert minors[-1] == last, f"k8s_ready.c: MINOR_LAST is {last}, and the last version here is 1.{minors[-1]}"
    assert minors[0] == OLDEST and minors == list(range(OLDEST, minors[-1] + 1)), minors
    return [Document(f"1.{minor}", folder / f"v1.{minor}.0-local-strict") for minor in minors]


def choices(description):
    """The words that a description lists: "One of A, B.", "`A` or `B`", or lines that begin with "- A:"."""
    listed = re.search(r"One of ([\w, ]+)\.", description)
    words = set(re.findall(r"`(\w+)`", description)) | set(re.findall(r"^- (\w+):", description, re.M))
    return words | set(listed[1].split(", ") if listed else [])


def check_texts(document, value, kind, where):
    """Raise AssertionError for a text that is no choice of its member, or has another form."""
    for name, text, description, place in document.texts(value, {"$ref": f"#/$defs/{kind}"}, where):
        if name in CHOICES:
            listed = choices(description)
            assert len(listed) > 1 and text in listed, \
                f"Kubernetes {document.version}, {place}: {text!r} is not one of {sorted(listed)}"
        elif name in FORMS:
            assert re.fullmatch(FORMS[name], text), f"{place}: {text!r} has not the form of {name}"
        else:
            assert name in FREE, f"{place}: {name} has no row in fits_k8s.py: is it a choice?"


def at(value, path):
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def parts_of(value):
    """(part, kind, place) of an object: the whole of it, or the parts of an extension's object that are Kubernetes' own."""
    name = value["kind"]
    if name in EXTENSIONS:
        return [(at(value, path), kind, f"{name}.{path}") for path, kind in EXTENSIONS[name].items()]
    package = META if name in OF_ALL_GROUPS else PACKAGES[value["apiVersion"]]
    return [(value, f"{package}.{name}", name)]


def check_object(document, value, is_request):
    for part, kind, where in parts_of(value):
        document.validate(part, kind, where)
        if is_request:
            check_texts(document, part, kind, where)


# Faults of a Job, each of which the check has to find: a member, its value (None: it is absent), and words of the error.
FAULTS = [("spec.completions", "2", "'2' is not of type 'integer'"),
          ("spec.parallelism", 2.5, "2.5 is not of type 'integer'"),
          ("spec.completions", 1 << 31, "2147483648 is not a 'int32'"),
          ("spec.suspend", "true", "'true' is not of type 'boolean'"),
          ("spec.template", None, "'template' is a required property"),
          ("spec.template.spec.containers", None, "'containers' is a required property"),
          ("spec.template.spec.containers.0.name", None, "'name' is a required property"),
          ("spec.podFailurePolicy.rules.0.action", None, "'action' is a required property"),
          ("spec.podFailurePolicy.rules.0.action", "Retry", "'Retry' is not one of"),
          ("spec.completionMode", "indexed", "'indexed' is not one of"),
          ("spec.template.spec.restartPolicy", "Sometimes", "'Sometimes' is not one of"),
          ("apiVersion", "batch/v2", "batch/v2"),
          ("spec.restarts", 3, "'restarts' was unexpected"),
          ("metadata.labels", {"diloco/run": "a b"}, "'a b' has not the form of"),
          ("spec.template.spec.containers.0.resources.limits", {"cpu": "2 cores"}, "'2 cores' has not the form of"),
          ("spec.template.spec.schedulingGates", [{"name": "x"}], "is it a choice?")]


def check_faults(document, job):
    for path, value, words in FAULTS:
        faulty = copy.deepcopy(job)
        folder, _, key = path.rpartition(".")
        owner = at(faulty, folder) if folder else faulty
        if value is None:
            del owner[key]
        else:
            owner[key] = value
        try:
            check_object(document, faulty, True)
        except (AssertionError, KeyError) as error:
            assert words in str(error), f"{path} = {value!r}: {error}"
        else:
            raise AssertionError(f"Kubernetes {document.version}: {path} = {value!r} is accepted")


def calls_of_kubernetes():
    """The calls of the API server that the package kubernetes knows: method and a pattern of the path."""
    import kubernetes
    calls = []
    for source in (pathlib.Path(kubernetes.__file__).parent / "client/api").glob("*_api.py"):
        found = re.findall(r"method='([A-Z]+)',\s+resource_path='([^']+)'", source.read_text("utf-8"))
        calls += [(method, re.compile(re.sub(r"\{\w+\}", r"[^/]+", re.escape(path).replace(r"\{", "{").replace(r"\}", "}"))))
                  for method, path in found]
    assert len(calls) > 500
    return calls


def check_paths(requests):
    calls = calls_of_kubernetes()
    for method, path in {(r["method"], r["path"].split("?")[0].removesuffix("/")) for r in requests}:
        if path.startswith(("/apis/kueue.x-k8s.io", "/apis/scheduling.volcano.sh", "/apis/ray.io")):  # of extensions
            continue
        path = re.sub("/proxy/.*", "/proxy/path", path)
        assert any(method == m and (p.fullmatch(path) or p.fullmatch(path + "/"))  # as the package writes some
                   for m, p in calls), f"there is no {method} {path}"


def check(requests, answers):
    """`requests` and `answers` are lines of requests.jsonl and answers.jsonl, without those of the test itself."""
    sent = without_repeats(r["body"] for r in requests if r["method"] in ("POST", "PUT") and r["body"])
    answered = without_repeats(a["body"] for a in answers if "kind" in a["body"])
    jobs = [body for body in sent if body["kind"] in ("Job", "RayJob")]
    assert jobs and answered
    check_paths(requests)
    versions = documents()
    for document in versions:
        for value in sent:
            check_object(document, value, True)
        for value in answered:
            check_object(document, value, False)
        for job in [job for job in jobs if job["kind"] == "Job"][:1]:
            check_faults(document, job)
    return f"{len(sent)} objects and {len(answered)} answers fit Kubernetes {versions[0].version} to {versions[-1].version}"


def without_repeats(values):
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())
