#!/usr/bin/env python3
"""Fakes of the REST APIs that executors of diloco launch speak to.

    fake_cloud.py KIND FOLDER

listens on loopback, and writes its port to FOLDER/port. Containers are processes of this machine: they get the
command, the variables and the secrets of the request, and PATH; the image is only recorded. FOLDER has

    requests.jsonl   each request: method, path, headers, body
    answers.jsonl    of Kubernetes: each answer in JSON, with its method and path
    logs/<name>      output of a container
    started          the name of each container that was started
    fault            while this file exists, every request is answered by the number in it
    hold             while this file exists, no POST is answered
    role             variables that each container has by the role of its machine, NAME=VALUE a line

A fake keeps the semantics that the provider documents. It is no proof of what the provider does."""
import base64
import collections
import http.server
import itertools
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse

from fake_azureml import AzureMl
from fake_base import Fake, Refused
from fake_ray import RayJobs
from fake_runpod import RunPod


class HfJobs(Fake):
    """Jobs of Hugging Face, as huggingface_hub speaks to them."""

    def __init__(self, folder):
        super().__init__(folder)
        self.jobs = {}

    def info(self, job):
        code, spec = job["container"].code(), job["spec"]
        stage = "RUNNING" if code is None else "COMPLETED" if code == 0 else "ERROR"
        if job["container"].killed and code is not None:
            stage = "CANCELED"
        message = f"Job failed with exit code: {code}" if stage == "ERROR" else None
        return {"id": job["id"], "createdAt": "2026-01-01T00:00:00.000Z", "labels": spec.get("labels", {}),
                "dockerImage": spec["dockerImage"], "command": spec["command"], "flavor": spec["flavor"],
                "environment": spec["environment"], "owner": {"id": "1", "name": "alice", "type": "user"},
                "status": {"stage": stage, "message": message}}

    def answer(self, method, path, query, headers, body):
        if headers.get("Authorization") != "Bearer hf_test-token":
            raise Refused(401, {"error": "Invalid username or password."})
        if path == "/api/whoami-v2":
            return {"name": "alice", "type": "user"}
        parts = path.strip("/").split("/")
        if parts[:3] != ["api", "jobs", "alice"]:
            raise Refused(404, {"error": "Not Found"})
        if len(parts) == 3 and method == "POST":
            if body["dockerImage"] == "nowhere/none":
                raise Refused(400, {"error": "Image nowhere/none not found"})
            if body["flavor"] == "h200x8":
                raise Refused(402, {"error": "Pre-paid credit balance is insufficient"})
            job = {"id": f"{len(self.jobs):024x}", "spec": body}
            env = {**body["environment"], **body.get("secrets", {})}
            job["container"] = self.start(job["id"], body["command"] + body["arguments"], env)
            self.jobs[job["id"]] = job
            return self.info(job)
        if len(parts) == 3:
            wanted = [label.split("=", 1) for label in query.get("label", [])]
            return [self.info(j) for j in self.jobs.values()
                    if all(j["spec"].get("labels", {}).get(k) == v for k, v in wanted)]
        job = self.jobs.get(parts[3])
        if not job:
            raise Refused(404, {"error": "Job not found"})
        if parts[4:] == ["cancel"]:
            job["container"].stop()
        if parts[4:] == ["logs"]:
            return self.events(job)
        return self.info(job)

    @staticmethod
    def events(job):
        def follow():
            with open(job["container"].log, encoding="utf-8", errors="replace") as log:
                for turn in itertools.count(1):
                    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
                    over = job["container"].code() is not None
                    for line in log:
                        event = {"data": line.rstrip("\n"), "timestamp": at}
                        yield f"data: {json.dumps(event)}\n\n".encode()
                    if over:
                        return
                    if turn % 600 == 0:
                        yield b": keep-alive\n\n"
                    time.sleep(0.05)
        return follow()


class Kubernetes(Fake):
    """Indexed Jobs with backoffLimitPerIndex 0 and a podFailurePolicy, Secrets, PodGroups, pods and their logs.
    POST /test/evict?pod=NAME ends a pod as an eviction does: the Job replaces it. The namespace "gone" does not exist.
    The file "denied" has permissions that the user lacks, such as "delete pods".
    With the file "kueue", which names LocalQueues, the cluster has Kueue; POST /test/resume resumes suspended Jobs.
    The file "version" has another major and minor version than 1 and 29+. The file "no-api" has an API version that the
    cluster does not serve, such as batch/v1.
    With the file "volcano" it has Volcano, but no scheduler: pods start at once.
    While the file no-output exists, no output of a pod can be read.
    The file "quota" has "jobs": no Job may be created; or "pods": no pod may, which the Job's events say.
    RayJobs are in fake_ray.py."""

    NOTE = "batch.kubernetes.io/job-completion-index"

    def __init__(self, folder):
        super().__init__(folder)
        self.jobs, self.objects, self.pods, self.made, self.ray = {}, {}, {}, 0, RayJobs(self)

    @staticmethod
    def refuse(status, reason, message):
        raise Refused(status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
                               "message": message, "code": status})

    @staticmethod
    def expand(text, env):
        """$(NAME) as the kubelet replaces it; $$( is a plain $(."""
        return re.sub(r"\$\$|\$\((\w+)\)", lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), text)

    def environment(self, container, index):
        env = {}
        for item in container.get("env", []):
            source = item.get("valueFrom", {})
            if "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == f"metadata.annotations['{self.NOTE}']"
                env[item["name"]] = str(index)
            elif "secretKeyRef" in source:
                ref = source["secretKeyRef"]
                env[item["name"]] = self.objects["secrets", ref["name"]]["stringData"][ref["key"]]
            else:
                env[item["name"]] = self.expand(item.get("value", ""), env)
        return env

    def start_pod(self, job, index):
        container = job["spec"]["template"]["spec"]["containers"][0]
        name = f"{job['metadata']['name']}-{index}-{self.made:05d}"
        pod = {"name": name, "job": job["metadata"]["name"], "index": index, "evicted": False, "container": None,
               "made": self.made}
        self.made += 1
        self.pods[name] = pod
        if container["image"] == "nowhere/none":
            return
        env = self.environment(container, index)
        argv = [self.expand(word, env) for word in container["command"] + container["args"]]
        pod["container"] = self.start(name, argv, env)

    def newest(self, job, index):
        pods = [p for p in self.pods.values() if p["job"] == job["metadata"]["name"] and p["index"] == index]
        return pods[-1] if pods else None

    def status(self, job):
        if job["spec"].get("suspend"):
            return {"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]}
        completed, failed, active = [], [], 0
        for index in range(job["spec"]["completions"]):
            pod = self.newest(job, index)
            if not pod and self.quota() != "pods":
                self.start_pod(job, index)  # the controller tries again
                pod = self.newest(job, index)
            if not pod:
                continue
            code = pod["container"].code() if pod["container"] else None
            if code is not None and pod["evicted"] and self.ignores_evictions(job):
                self.start_pod(job, index)
                code = None
            if code is None:
                active += 1
            elif code == 0:
                completed.append(index)
            else:
                failed.append(index)
        status = {"active": active, "succeeded": len(completed), "failed": len(failed), "ready": active}
        if completed:
            status["completedIndexes"] = self.ranges(completed)
        if failed:
            status["failedIndexes"] = self.ranges(failed)
        if not active and len(completed) + len(failed) == job["spec"]["completions"]:
            ended = {"type": "Failed", "reason": "FailedIndexes"} if failed else {"type": "Complete"}
            status["conditions"] = [{**ended, "status": "True"}]
        return status

    @staticmethod
    def ignores_evictions(job):
        """By its podFailurePolicy; any other failed pod ends its index (backoffLimitPerIndex 0)."""
        rules = job["spec"].get("podFailurePolicy", {}).get("rules", [])
        condition = {"type": "DisruptionTarget", "status": "True"}
        return any(rule["action"] == "Ignore" and condition in rule["onPodConditions"] for rule in rules)

    @staticmethod
    def ranges(indexes):
        """ "1,3-5" """
        parts = []
        for index in indexes:
            if parts and parts[-1][1] == index - 1:
                parts[-1][1] = index
            else:
                parts.append([index, index])
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)

    def pod_object(self, pod):
        code = pod["container"].code() if pod["container"] else None
        if not pod["container"]:
            phase, state = "Pending", {"waiting": {"reason": "ErrImagePull", "message": "nowhere/none: not found"}}
        elif code is None:
            phase, state = "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        else:
            phase, state = "Failed" if code else "Succeeded", {"terminated": {"exitCode": code}}
        return {"apiVersion": "v1", "kind": "Pod", "status": {"phase": phase, "containerStatuses": [
                    {"name": "replica", "image": "x", "imageID": "x", "ready": True, "restartCount": 0,
                     "state": state}]},
                "spec": {"nodeName": "node-1", "containers": [{"name": "replica"}]},
                "metadata": {"name": pod["name"], "annotations": {self.NOTE: str(pod["index"])},
                             "creationTimestamp": f"2026-01-01T00:00:{pod['made']:02d}Z"}}

    def create_job(self, body):
        spec = body["spec"]
        assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
        assert spec["template"]["spec"]["restartPolicy"] == "Never" and spec["backoffLimitPerIndex"] == 0
        self.jobs[body["metadata"]["name"]] = body
        if spec.get("suspend"):
            assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] in self.queues()
        else:
            self.start_pods(body)

    def quota(self):
        path = self.folder.joinpath("quota")
        return path.read_text("ascii").strip() if path.exists() else ""

    def events(self, query):
        """The controller's warnings about a Job whose pods exceed the quota."""
        wanted = dict(part.split("=") for part in query["fieldSelector"][0].split(","))
        assert wanted["involvedObject.kind"] == "Job" and wanted["type"] == "Warning"
        message = f'pods "{wanted["involvedObject.name"]}-0-x" is forbidden: exceeded quota: team, requested: pods=1'
        warnings = [("2026-01-01T00:00:01Z", "an earlier one"), ("2026-01-01T00:00:02Z", "Error creating: " + message)]
        about = {"kind": "Job", "name": wanted["involvedObject.name"]}
        return {"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": [
            {"type": "Warning", "reason": "FailedCreate", "lastTimestamp": at, "message": text, "involvedObject": about,
             "metadata": {}} for at, text in warnings]}

    def start_pods(self, job):
        if self.quota() == "pods":
            return
        for index in range(job["spec"]["completions"]):
            self.start_pod(job, index)

    def queues(self):
        """The names of Kueue's queues; None without Kueue."""
        path = self.folder.joinpath("kueue")
        return path.read_text("ascii").split() if path.exists() else None

    def answer_kueue(self, name):
        if self.queues() is None or name and name not in self.queues():
            self.refuse(404, "NotFound", "the server could not find the requested resource")
        version = {"groupVersion": "kueue.x-k8s.io/v1beta1", "version": "v1beta1"}
        return {"kind": "LocalQueue"} if name else \
            {"kind": "APIGroup", "name": "kueue.x-k8s.io", "versions": [version], "preferredVersion": version}

    def answer_api(self, version):
        lacks = self.folder.joinpath("no-api")
        if lacks.exists() and lacks.read_text("ascii").strip() == version:
            self.refuse(404, "NotFound", "the server could not find the requested resource")
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []}

    def answer(self, method, path, query, headers, body):
        for_test = self.ray.test(path, query)
        if for_test is not None:
            return for_test
        if path == "/test/evict":
            pod = self.pods[query["pod"][0]]
            pod["evicted"] = True
            pod["container"].stop()
            return {}
        if path == "/test/resume":
            for job in self.jobs.values():
                if job["spec"].pop("suspend", False):
                    self.start_pods(job)
            return {}
        if self.folder.joinpath("token").exists() and \
                headers.get("Authorization") != "Bearer " + self.folder.joinpath("token").read_text("ascii"):
            self.refuse(401, "Unauthorized", "Unauthorized")
        if path == "/version":
            version = self.folder.joinpath("version")
            major, minor = version.read_text("ascii").split() if version.exists() else ("1", "29+")
            return {"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}"}
        if path in ("/api/v1", "/apis/batch/v1"):
            return self.answer_api(path.split("/", 2)[2])
        if path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            denied = self.folder.joinpath("denied")
            lacks = denied.exists() and f"{asked['verb']} {asked['resource']}" in denied.read_text("ascii").splitlines()
            return {**body, "status": {"allowed": not lacks}}
        if path == "/apis/scheduling.volcano.sh/v1beta1":
            if not self.folder.joinpath("volcano").exists():
                self.refuse(404, "NotFound", "the server could not find the requested resource")
            return {"kind": "APIResourceList", "groupVersion": "scheduling.volcano.sh/v1beta1", "resources": []}
        kueue = re.fullmatch(r"/apis/kueue.x-k8s.io(?:/v1beta1/namespaces/default/localqueues/([\w.-]+))?", path)
        if kueue:
            return self.answer_kueue(kueue[1])
        answer = self.ray.answer(method, path, query, body)
        if answer is not None:
            return answer
        found = re.fullmatch(r"/(?:api/v1|apis/[\w.]+/\w+)/namespaces/([\w-]+)/(\w+)(?:/([\w.-]+))?(/log)?", path)
        if found and found[1] == "gone":
            raise Refused(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
                                "message": 'namespaces "gone" not found',
                                "details": {"name": "gone", "kind": "namespaces"}})
        if not found or found[1] != "default":
            self.refuse(403, "Forbidden", f"User alice cannot access {path}")
        kind, name = found[2], found[3]
        if kind == "events":
            if not self.quota():
                return {"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": []}
            denied = self.folder.joinpath("denied")
            if denied.exists() and "list events" in denied.read_text("ascii"):
                self.refuse(403, "Forbidden", "User alice cannot list events")
            return self.events(query)
        if kind == "jobs" and method == "POST" and self.quota() == "jobs":
            self.refuse(403, "Forbidden", f'jobs.batch "{body["metadata"]["name"]}" is forbidden: exceeded quota: team')
        if kind == "pods":
            return self.answer_pods(method, name, found[4], query)
        table = self.jobs if kind == "jobs" else self.objects
        key = (name or body and body["metadata"]["name"]) if kind == "jobs" else \
            (kind, name or body and body["metadata"]["name"])
        if method == "POST" and key in table:
            self.refuse(409, "AlreadyExists", f"{kind} {key} already exists")
        if method == "POST" and kind == "jobs":
            self.create_job(body)
        elif method in ("POST", "PUT"):
            table[key] = body
        elif key not in table:
            self.refuse(404, "NotFound", f"{kind} {key} not found")
        if method == "DELETE":
            if kind == "jobs":
                assert query["propagationPolicy"] == ["Background"]
                for pod in self.pods.values():
                    if pod["job"] == name and pod["container"]:
                        pod["container"].stop()
                self.pods = {pod: spec for pod, spec in self.pods.items() if spec["job"] != name}
            del table[key]
            return {"kind": "Status", "status": "Success"}
        return {**table[key], "status": self.status(table[key])} if kind == "jobs" else table[key]

    def answer_pods(self, method, name, log, query):
        if not name:
            cluster = re.fullmatch("ray.io/cluster=([^,]+),ray.io/node-type=head", query["labelSelector"][0])
            if cluster:
                return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": self.ray.pods(cluster[1])}
            job = query["labelSelector"][0].removeprefix("job-name=")
            if job in self.jobs:
                self.status(self.jobs[job])
            return {"apiVersion": "v1", "kind": "PodList", "metadata": {},
                    "items": [self.pod_object(p) for p in self.pods.values() if p["job"] == job]}
        pod = self.pods.get(name)
        if not pod:
            self.refuse(404, "NotFound", f"pods {name} not found")
        if method == "DELETE":
            pod["container"].stop()
            return self.pod_object(pod)
        assert log and query["container"] == ["replica"]
        if self.folder.joinpath("no-output").exists():
            self.refuse(500, "InternalError", "the kubelet does not answer")
        if "tailLines" in query:
            with open(pod["container"].log, "rb") as lines:
                return iter(collections.deque(lines, int(query["tailLines"][0])))
        return self.lines(pod, query.get("follow") == ["true"])

    @staticmethod
    def lines(pod, follow):
        def read():
            with open(pod["container"].log, "rb") as log:
                while True:
                    over = pod["container"].code() is not None
                    yield from log
                    if over or not follow:
                        return
                    time.sleep(0.05)
        return read()


class SageMaker(Fake):
    """CreateTrainingJob, DescribeTrainingJob, StopTrainingJob, and the events of CloudWatch Logs. A job of the
    image nowhere/none has no container. The file "throttle" has the number of requests that are throttled next."""

    def __init__(self, folder):
        super().__init__(folder)
        self.jobs = {}

    @staticmethod
    def refuse(kind, message):
        raise Refused(400, {"__type": kind, "message": message})

    def find(self, name):
        if name not in self.jobs:
            self.refuse("ValidationException", "Requested resource not found.")
        return self.jobs[name]

    def create(self, body):
        name = body["TrainingJobName"]
        if name in self.jobs:
            self.refuse("ResourceInUse", f"Training job names must be unique within an AWS account: {name}")
        if body["ResourceConfig"]["InstanceType"] == "ml.p5.48xlarge":
            self.refuse("ResourceLimitExceeded", "The account-level service limit 'ml.p5.48xlarge' is 0 Instances")
        algorithm = body["AlgorithmSpecification"]
        if algorithm["TrainingImage"] == "nowhere/none":
            self.jobs[name] = None
            return {"TrainingJobArn": f"arn:aws:sagemaker:eu-west-1:000000000000:training-job/{name}"}
        argv = algorithm["ContainerEntrypoint"] + algorithm["ContainerArguments"]
        self.jobs[name] = self.start(name, argv, body["Environment"])
        return {"TrainingJobArn": f"arn:aws:sagemaker:eu-west-1:000000000000:training-job/{name}"}

    def describe(self, body):
        job = self.find(body["TrainingJobName"])
        code, status, step, why = job.code() if job else None, "InProgress", "Training", None
        if not job:
            status = step = "Failed"
            why = "ClientError: Cannot find repository: nowhere/none"
        elif code is not None:
            status = "Stopped" if job.killed else "Failed" if code else "Completed"
            step = status
            why = f"AlgorithmError: , exit code: {code}" if status == "Failed" else None
        elif job.killed:
            status = step = "Stopping"
        return {"TrainingJobName": body["TrainingJobName"], "TrainingJobStatus": status, "SecondaryStatus": step,
                **({"FailureReason": why} if why else {})}

    def stop(self, body):
        job = self.find(body["TrainingJobName"])
        if job.code() is not None:
            self.refuse("ValidationException", "The request was rejected because the training job is in status Completed")
        job.stop()
        return {}

    def streams(self, body):
        names = [n for n in self.jobs if n.startswith(body["logStreamNamePrefix"])]
        return {"logStreams": [{"logStreamName": f"{n}/algo-1-1700000000"} for n in names]}

    def events(self, body):
        first = int(body.get("nextToken", "f/0")[2:])
        page = self.page(self.jobs[body["logStreamName"].split("/")[0]], first, 1 << 20)
        return {"events": [{"timestamp": 0, "message": line} for line in page],
                "nextForwardToken": f"f/{first + len(page)}"}

    def answer(self, method, path, query, headers, body):
        signed = headers.get("Authorization", "")
        if not signed.startswith("AWS4-HMAC-SHA256 Credential=AKIATEST/") or "SignedHeaders=host;" not in signed:
            self.refuse("UnrecognizedClientException", "The security token included in the request is invalid.")
        throttle = self.folder / "throttle"
        left = int(throttle.read_text("ascii")) if throttle.exists() else 0
        if left:
            throttle.write_text(str(left - 1), "ascii")
            self.refuse("ThrottlingException", "Rate exceeded")
        calls = {"SageMaker.CreateTrainingJob": self.create, "SageMaker.DescribeTrainingJob": self.describe,
                 "SageMaker.StopTrainingJob": self.stop, "Logs_20140328.DescribeLogStreams": self.streams,
                 "Logs_20140328.GetLogEvents": self.events}
        return calls[headers["X-Amz-Target"]](body)


class Vertex(Fake):
    """Custom jobs of Vertex AI, entries of Cloud Logging, and at /token the token service of Google. The key of the
    service account is FOLDER/key.pem."""

    SCOPE = "https://www.googleapis.com/auth/cloud-platform"

    def __init__(self, folder):
        super().__init__(folder)
        self.jobs = {}

    @staticmethod
    def refuse(status, word, message):
        raise Refused(status, {"error": {"code": status, "message": message, "status": word}})

    def token(self, headers, body):
        form = urllib.parse.parse_qs(body)
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        signed, _, signature = form["assertion"][0].rpartition(".")
        header, claims = [json.loads(self.decode(part)) for part in signed.split(".")]
        assert header == {"alg": "RS256", "typ": "JWT"} and claims["exp"] - claims["iat"] == 3600
        assert claims["aud"] == f"http://{headers['Host']}/token" and claims["scope"] == self.SCOPE
        (self.folder / "signature").write_bytes(self.decode(signature))
        verify = ["openssl", "dgst", "-sha256", "-prverify", self.folder / "key.pem", "-signature",
                  self.folder / "signature"]
        if subprocess.run(verify, input=signed.encode(), stdout=subprocess.DEVNULL, check=False).returncode:
            raise Refused(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        return {"access_token": "swordfish-of-google", "expires_in": 3599, "token_type": "Bearer"}

    @staticmethod
    def decode(text):
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    def info(self, job):
        if not job["container"]:
            return {**job["spec"], "name": job["name"], "state": "JOB_STATE_FAILED",
                    "error": {"code": 5, "message": "The image nowhere/none was not found."}}
        code, state, error = job["container"].code(), "RUNNING", None
        if code is not None:
            state = "CANCELLED" if job["container"].killed else "FAILED" if code else "SUCCEEDED"
        elif job["container"].killed:
            state = "CANCELLING"
        if state == "FAILED":
            error = {"code": 3, "message": f"The replica workerpool0-0 exited with a non-zero status of {code}."}
        return {**job["spec"], "name": job["name"], "state": f"JOB_STATE_{state}", **({"error": error} if error else {})}

    def create(self, body):
        pool = body["jobSpec"]["workerPoolSpecs"][0]
        if pool["machineSpec"]["machineType"] == "a3-ultragpu-8g":
            self.refuse(429, "RESOURCE_EXHAUSTED", "The following quota metrics exceed quota limits: "
                        "aiplatform.googleapis.com/custom_model_training_nvidia_h200_gpus")
        container = pool["containerSpec"]
        job = {"spec": body, "name": f"projects/7/locations/europe-west4/customJobs/{len(self.jobs) + 100}"}
        env = {item["name"]: item["value"] for item in container["env"]}
        job["container"] = None if container["imageUri"] == "nowhere/none" else \
            self.start(body["displayName"], container["command"] + container["args"], env)
        self.jobs[job["name"]] = job
        return self.info(job)

    def entries(self, body):
        found = re.fullmatch(r'resource.type="ml_job" AND resource.labels.job_id="(\d+)"(?: AND timestamp>"(.*)")?',
                             body["filter"])
        job = self.jobs[f"projects/7/locations/europe-west4/customJobs/{found[1]}"]
        after = int(found[2][20:29]) if found[2] else 0  # nanoseconds count the lines
        first = int(body.get("pageToken") or after)
        page = self.page(job["container"], first, 1 << 30)[:body["pageSize"]]
        entries = [{"timestamp": f"2026-01-01T00:00:00.{first + i + 1:09d}Z", "textPayload": line}
                   for i, line in enumerate(page)]
        return {"entries": entries, **({"nextPageToken": str(first + len(page))} if page else {})}

    def answer(self, method, path, query, headers, body):
        if path == "/token":
            return self.token(headers, body)
        if headers.get("Authorization") != "Bearer swordfish-of-google":
            self.refuse(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        if path == "/v2/entries:list":
            return self.entries(body)
        if path == "/v1/projects/team/locations/europe-west4/customJobs":
            if method == "POST":
                return self.create(body)
            name = query["filter"][0].removeprefix('displayName="').removesuffix('"')
            jobs = [self.info(j) for j in self.jobs.values() if j["spec"]["displayName"] == name]
            return {"customJobs": jobs} if jobs else {}
        job = self.jobs.get(path.removeprefix("/v1/").removesuffix(":cancel"))
        if not job:
            self.refuse(404, "NOT_FOUND", f"{path} is not found")
        if path.endswith(":cancel"):
            if job["container"].code() is not None:
                self.refuse(400, "FAILED_PRECONDITION", "The job has already ended.")
            job["container"].stop()
            return {}
        return self.info(job)


KINDS = {"hf-jobs": HfJobs, "k8s": Kubernetes, "sagemaker": SageMaker, "vertex": Vertex, "runpod": RunPod,
         "azureml": AzureMl}


def handler(fake):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def record(self, name, members):
            with fake.lock, open(fake.folder / f"{name}.jsonl", "a", encoding="utf-8") as out:
                out.write(json.dumps({"method": self.command, "path": self.path, **members}) + "\n")

        def respond(self):
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = raw.decode() if self.path.endswith("/token") else json.loads(raw) if raw else None
            self.record("requests", {"headers": dict(self.headers), "body": body})
            url = urllib.parse.urlsplit(self.path)
            fault = fake.folder / "fault"
            try:
                if fault.exists():
                    raise Refused(int(fault.read_text(encoding="ascii") or 500), {"message": "fault of the test"})
                with fake.lock:
                    result = fake.answer(self.command, urllib.parse.unquote(url.path),
                                         urllib.parse.parse_qs(url.query), self.headers, body)
                status = 200
                while self.command == "POST" and fake.folder.joinpath("hold").exists():
                    time.sleep(0.02)
            except Refused as refused:
                status, result = refused.status, refused.body
            if isinstance(result, (dict, list)):
                if isinstance(fake, Kubernetes):
                    self.record("answers", {"body": result})
                self.send(status, json.dumps(result).encode(), "application/json")
            elif isinstance(result, tuple):
                self.send(*result, "text/plain")
            else:
                self.stream(result)

        def send(self, status, data, kind):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def stream(self, pieces):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                for piece in pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
            except OSError:
                pass
            self.close_connection = True

        do_GET = do_POST = do_PUT = do_DELETE = respond
    return Handler


def main():
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(KINDS[sys.argv[1]](folder)))
    part = folder / "port.part"
    part.write_text(str(server.server_address[1]), encoding="ascii")
    part.rename(folder / "port")
    server.serve_forever()


if __name__ == "__main__":
    main()
