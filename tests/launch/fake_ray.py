"""The part of the fake of Kubernetes (fake_cloud.py) that is KubeRay's operator and the dashboard of Ray. It is a fake: the
states, names and sentences are those of the sources of KubeRay 1.7 and Ray 2.60, and no operator runs."""
import collections
import json
import os
import re
import subprocess
import time


class RayJobs:
    """RayJobs whose submissionMode is HTTPMode and whose cluster is a head alone. With the file "kuberay" the cluster has
    their kind. The head of a RayJob is a container that runs the entrypoint, as Ray runs it: by /bin/sh, with
    OMP_NUM_THREADS=1 unless the container has that variable.
    POST /test/lose-head?name=RAYJOB ends a head as the loss of its node does: KubeRay gives the RayJob up at the second
    look. POST /test/end-of-ttl deletes the heads of all RayJobs that are over.
    The file "ray-status" has members of a status that replace those of every RayJob."""

    def __init__(self, cluster):
        self.cluster, self.jobs = cluster, {}

    # ---- the operator

    def validate(self, body):
        """Raise for a RayJob that KubeRay refuses, or that this project does not write."""
        spec, name = body["spec"], body["metadata"]["name"]
        head = spec["rayClusterSpec"]["headGroupSpec"]
        pod = head["template"]["spec"]
        assert body["apiVersion"] == "ray.io/v1" and re.fullmatch("[a-z]([-a-z0-9]{0,45}[a-z0-9])?", name)
        assert spec["submissionMode"] == "HTTPMode" and spec["backoffLimit"] == 0 and spec["jobId"] == name
        assert spec["shutdownAfterJobFinishes"] is True and spec["ttlSecondsAfterFinished"] >= 0
        assert list(spec["rayClusterSpec"]) == ["headGroupSpec"] and head["rayStartParams"]
        assert pod["restartPolicy"] == "Never" and "command" not in pod["containers"][0]
        assert body["metadata"]["annotations"] == {"ray.io/disable-provisioned-head-restart": "true"}

    def create(self, body):
        name = body["metadata"]["name"]
        if name in self.jobs:
            self.cluster.refuse(409, "AlreadyExists", f'rayjobs.ray.io "{name}" already exists')
        if self.cluster.quota() == "jobs":
            self.cluster.refuse(403, "Forbidden", f'rayjobs.ray.io "{name}" is forbidden: exceeded quota: team')
        self.validate(body)
        self.jobs[name] = {"body": body, "process": None, "head": True, "lost": 0}
        self.start(name)
        return body

    def start(self, name):
        """Does nothing while the head cannot be created or started."""
        job, cluster = self.jobs[name], self.cluster
        spec = job["body"]["spec"]
        container = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
        if job["process"] or cluster.quota() == "pods" or container["image"] == "nowhere/none":
            return
        folder = (cluster.folder / "tmp" / name).absolute()
        folder.mkdir(parents=True)
        job["env"] = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "TMPDIR": str(folder),
                      **cluster.environment(container, 0)}
        log = cluster.folder / "logs" / name
        log.parent.mkdir(exist_ok=True)
        log.write_text(f"Running entrypoint for job {name}: {spec['entrypoint']}\n", "utf-8")
        job["process"] = cluster.start(name, ["/bin/sh", "-c", spec["entrypoint"]], job["env"])

    def status(self, name):
        job = self.jobs[name]
        self.start(name)
        status = {"rayClusterName": name + "-x7k2p", "jobId": name, "dashboardURL": "x.default.svc.cluster.local:8265"}
        code = job["process"].process.poll() if job["process"] else None
        if job["lost"]:
            job["lost"] += 1
            status.update(jobDeploymentStatus="Running", jobStatus="RUNNING")
            if job["lost"] > 2:
                status.update(jobDeploymentStatus="Failed", reason="JobStatusCheckTimeoutExceeded",
                              message="Job status checks have been failing since 10:00:00; exceeded timeout of 300s")
        elif not job["process"]:
            status["jobDeploymentStatus"] = "Initializing"
            if self.cluster.quota() == "pods":
                status["rayClusterStatus"] = {"conditions": [
                    {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreateHeadPod",
                     "message": f'pods "{name}-x7k2p-head" is forbidden: exceeded quota: team, requested: pods=1'}]}
        elif code is None:
            status.update(jobDeploymentStatus="Running", jobStatus="RUNNING", message="Job is currently running.")
        elif code == 0:
            status.update(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED", message="Job finished successfully.")
        else:
            lines = job["process"].log.read_text("utf-8", "replace").splitlines(True)[-10:]
            status.update(jobDeploymentStatus="Failed", jobStatus="FAILED", reason="AppFailed", message=
                          f"Job entrypoint command failed with exit code {code}, last available logs (truncated to "
                          "20,000 chars):\n" + "".join(lines)[-20000:])
        override = self.cluster.folder / "ray-status"
        return {**status, **json.loads(override.read_text("ascii"))} if override.exists() else status

    def delete(self, name, query):
        """Ray stops the command and the pod runs its preStop hook, both by SIGTERM."""
        assert query["propagationPolicy"] == ["Background"]
        job = self.jobs.pop(name)
        if job["process"] and job["process"].code() is None:
            spec = job["body"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
            hook = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
            subprocess.Popen(hook, env=job["env"])
        return {"kind": "Status", "status": "Success"}

    def pods(self, cluster):
        """The pods of the head of a Ray cluster."""
        name = cluster.removesuffix("-x7k2p")
        job = self.jobs.get(name)
        if not job or not job["head"] or not job["process"] and self.cluster.quota() == "pods":
            return []
        pod = self.cluster.pod_object({"name": name + "-x7k2p-head-q2w4e", "index": 0, "container": job["process"], "made": 1})
        del pod["metadata"]["annotations"]
        if job["process"]:
            pod["status"]["phase"] = "Running"  # Ray runs on after its command
        return [pod]

    # ---- the dashboard

    def dashboard(self, cluster, path, query):
        job = self.jobs.get(cluster.removesuffix("-x7k2p"))
        if not job or not job["head"]:
            self.cluster.refuse(404, "NotFound", f'services "{cluster}-head-svc" not found')
        if self.cluster.folder.joinpath("no-output").exists():
            self.cluster.refuse(500, "InternalError", "the dashboard does not answer")
        name = job["body"]["metadata"]["name"]
        if not job["process"]:
            self.cluster.refuse(503, "ServiceUnavailable", f'no endpoints available for service "{cluster}-head-svc"')
        if path == "/api/jobs/" + name:
            return {"type": "SUBMISSION", "submission_id": name, "status": "RUNNING", "driver_node_id": "a8902a1288ae"}
        media = re.fullmatch("/api/v0/logs/(file|stream)", path)[1]
        assert query["node_id"] == ["a8902a1288ae"] and query["filename"] == [f"job-driver-{name}.log"]
        assert query["timeout"] == ["86400"]
        lines = int(query["lines"][0])
        with open(job["process"].log, "rb") as log:
            if lines >= 0:
                return iter(collections.deque(log, lines))
        return self.read(job, media == "stream")

    @staticmethod
    def read(job, stream):
        """A stream does not end with the command."""
        with open(job["process"].log, "rb") as log:
            quiet = 0
            while quiet < 600:
                before = log.tell()
                yield from log
                if not stream:
                    return
                quiet = quiet + 1 if log.tell() == before else 0
                time.sleep(0.05)

    # ---- requests

    def test(self, path, query):
        """The requests of a test, or None."""
        if path == "/test/lose-head":
            job = self.jobs[query["name"][0]]
            job["head"], job["lost"] = False, 1
            job["process"].stop()
            return {}
        if path == "/test/end-of-ttl":
            for name, job in self.jobs.items():
                job["head"] = job["head"] and self.status(name)["jobDeploymentStatus"] not in ("Complete", "Failed")
            return {}
        return None

    def answer(self, method, path, query, body):
        """None: the path is not KubeRay's."""
        if path == "/apis/ray.io/v1":
            kinds = ["RayCluster"] + ["RayJob"] * self.has_kind()
            return {"kind": "APIResourceList", "groupVersion": "ray.io/v1", "resources":
                    [{"name": kind.lower() + "s", "singularName": kind.lower(), "namespaced": True, "kind": kind,
                      "verbs": ["create", "delete", "get", "list"]} for kind in kinds]}
        proxy = re.fullmatch(r"/api/v1/namespaces/default/services/([\w.-]+)-head-svc:dashboard/proxy(/.*)", path)
        if proxy and method == "GET":
            return self.dashboard(proxy[1], proxy[2], query)
        found = re.fullmatch(r"/apis/ray.io/v1/namespaces/default/rayjobs(?:/([\w-]+))?", path)
        if not found:
            return None
        if not self.has_kind():
            self.cluster.refuse(404, "NotFound", "the server could not find the requested resource")
        name = found[1]
        if method == "POST":
            return self.create(body)
        if name not in self.jobs:
            self.cluster.refuse(404, "NotFound", f'rayjobs.ray.io "{name}" not found')
        if method == "DELETE":
            return self.delete(name, query)
        return {**self.jobs[name]["body"], "status": self.status(name)}

    def has_kind(self):
        return self.cluster.folder.joinpath("kuberay").exists()
