"""The fake of RunPod's REST API: pods, whose container is started again whenever it ends."""
import re

from fake_base import Fake, Refused

# Members of a request to create a pod, with the names and types of the published API, version 1.
MEMBERS = {"name": str, "imageName": str, "computeType": str, "gpuTypeIds": list, "gpuCount": int, "cpuFlavorIds": list,
           "vcpuCount": int, "minRAMPerGPU": int, "minVCPUPerGPU": int, "dataCenterIds": list, "interruptible": bool,
           "containerDiskInGb": int, "volumeInGb": int, "env": dict, "dockerEntrypoint": list, "dockerStartCmd": list}


class RunPod(Fake):
    """FOLDER/secrets has the account's secrets, NAME=VALUE a line. The pod that FOLDER/interrupt names is stopped. A pod
    of the image nowhere/none is RUNNING, and its replica never begins. The data center EU-XX-9 is unknown, and no
    machine of the flavor cpu9z is left: the words and the status of the latter are the service's. While FOLDER/half
    exists, a pod is created and answered by 500, as the service also does. FOLDER/pods has the pods that exist."""

    def __init__(self, folder):
        super().__init__(folder)
        self.pods, self.n = {}, 0

    def list_pods(self):
        part = self.folder / "pods.part"
        part.write_text("".join(f"{pod['spec']['name']}\n" for pod in self.pods.values()), "ascii")
        part.rename(self.folder / "pods")

    def expand(self, text):
        known = dict(line.split("=", 1) for line in (self.folder / "secrets").read_text("ascii").split())
        return re.sub(r"\{\{ RUNPOD_SECRET_(\w+) \}\}", lambda found: known[found[1]], text)

    def run(self, pod):
        spec = pod["spec"]
        env = {name: self.expand(value) for name, value in spec["env"].items()}
        argv = ["sleep", "600"] if spec["imageName"] == "nowhere/none" else spec["dockerEntrypoint"] + spec["dockerStartCmd"]
        pod["container"] = self.start(spec["name"], argv, env)

    def create(self, body):
        for name, value in body.items():
            if name not in MEMBERS or not isinstance(value, MEMBERS[name]):
                raise Refused(400, {"error": f"{name} is not in the schema"})
        if "EU-XX-9" in body.get("dataCenterIds", []):
            raise Refused(400, [{"error": "dataCenterIds: EU-XX-9 is not one of the data centers"}])
        if "cpu9z" in body.get("cpuFlavorIds", []):
            raise Refused(500, {"error": "create pod: There are no longer any instances available with the requested "
                                "specifications. Please refresh and try again.", "status": 500})
        self.n += 1
        pod = {"id": f"pod{self.n}", "spec": body, "status": "RUNNING"}
        self.run(pod)
        self.pods[pod["id"]] = pod
        self.list_pods()
        if self.folder.joinpath("half").exists():
            raise Refused(500, {"error": "Something went wrong."})
        return self.info(pod)

    def info(self, pod):
        interrupt = self.folder / "interrupt"
        if interrupt.exists() and interrupt.read_text("ascii").strip() == pod["spec"]["name"]:
            pod["container"].stop()
            pod["status"] = "EXITED"
        if pod["status"] == "RUNNING" and pod["container"].code() is not None:
            self.run(pod)
        return {"id": pod["id"], "name": pod["spec"]["name"], "desiredStatus": pod["status"],
                "image": pod["spec"]["imageName"], "env": pod["spec"]["env"], "costPerHr": 0.5}

    def answer(self, method, path, query, headers, body):
        if headers.get("Authorization") != "Bearer rpa_test-key":
            raise Refused(401, {"error": "unauthorized"})
        parts = path.strip("/").split("/")
        if parts == ["pods"] and method == "POST":
            return self.create(body)
        if parts == ["pods"]:
            return [self.info(p) for p in self.pods.values() if p["spec"]["name"] in query.get("name", [])]
        pod = self.pods.get(parts[1])
        if not pod:
            raise Refused(404, {"error": "pod not found"})
        if method == "DELETE":
            pod["container"].stop()
            del self.pods[parts[1]]
            self.list_pods()
            return {}
        return self.info(pod)
