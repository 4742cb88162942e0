"""The fake of Azure Machine Learning: command jobs of a workspace, the token service, and the run history service with
the addresses of output, as azure-ai-ml reads them."""
import re
import urllib.parse

from fake_base import Fake, Refused

WORKSPACE = ("/subscriptions/0000-11/resourceGroups/team/providers/Microsoft.MachineLearningServices/workspaces/ml")
SIGNATURE = "swordfish-of-an-address"


class AzureMl(Fake):
    """The token is only for the principal "app" with the right secret. The image of the environment none:1 does not
    exist; the compute target small may have no machine."""

    def __init__(self, folder):
        super().__init__(folder)
        self.jobs = {}

    @staticmethod
    def refuse(status, code, message):
        raise Refused(status, {"error": {"code": code, "message": message}})

    def token(self, form):
        fields = dict(urllib.parse.parse_qsl(form))
        if fields.get("grant_type") != "client_credentials" or fields.get("client_secret") != "swordfish of the app":
            raise Refused(401, {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret"})
        assert fields["client_id"] == "app" and fields["scope"] == "https://management.azure.com/.default"
        return {"token_type": "Bearer", "expires_in": 3599, "access_token": "swordfish-of-azure"}

    def info(self, name):
        spec, container = self.jobs[name]
        code, status = container.code() if container else 1, "Running"
        if code is not None:
            status = "Canceled" if container and container.killed else "Failed" if code else "Completed"
        elif container.killed:
            status = "CancelRequested"
        return {"id": f"{WORKSPACE}/jobs/{name}", "name": name, "properties": {**spec["properties"], "status": status}}

    def create(self, name, body):
        properties = body["properties"]
        if name in self.jobs:
            self.refuse(400, "UserError", f"A job with the name {name} is already there.")
        if properties["computeId"] == WORKSPACE + "/computes/small":
            self.refuse(400, "QuotaExceeded", "The quota of the subscription for Standard NCADS H100 cores is 0.")
        if properties["computeId"] != WORKSPACE + "/computes/cluster":
            self.refuse(404, "UserError", "The compute target was not found: " + properties["computeId"])
        argv = ["sh", "-c", properties["command"]]
        none = properties["environmentId"].endswith("/none/versions/1")
        self.jobs[name] = body, None if none else self.start(name, argv, properties["environmentVariables"])
        return self.info(name)

    def details(self, name, address):
        """RunDetails of the run history service. The file of output appears with its first byte."""
        if name not in self.jobs:
            self.refuse(404, "UserError", f"Run {name} was not found.")
        if not self.jobs[name][1]:
            message = "Failed to pull Docker image acme.azurecr.io/none:1.\nReason: manifest unknown"
            return {"runId": name, "status": "Failed", "error": {"error": {"code": "UserError", "message": message}}}
        written = self.jobs[name][1].log.stat().st_size
        files = {"system_logs/lifecycler/lifecycler.log": f"{address}/signed/none?sig={SIGNATURE}"}
        if written:
            files["user_logs/std_log.txt"] = f"{address}/signed/{name}?sv=2025-01-05&sig={SIGNATURE}"
        return {"runId": name, "status": self.info(name)["properties"]["status"], "logFiles": files}

    def output(self, name, headers, query):
        """A signed address of the storage account: a token is refused there, and a range is part of a file."""
        assert "Authorization" not in headers and query["sig"] == [SIGNATURE]
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", headers["Range"]).groups())
        with open(self.jobs[name][1].log, "rb") as log:
            log.seek(first)
            data = log.read(last - first + 1)
        if not data:
            raise Refused(416, {})
        return 206, data

    def answer_regional(self, path, query, headers):
        address = "http://" + headers["Host"]
        if path.startswith("/signed/"):
            return self.output(path.removeprefix("/signed/"), headers, query)
        if path == "/discovery":
            assert "Authorization" not in headers
            return {"api": address, "history": address}
        if headers.get("Authorization") != "Bearer swordfish-of-azure":
            self.refuse(401, "InvalidAuthenticationToken", "The access token is invalid.")
        found = re.fullmatch(re.escape("/history/v1.0" + WORKSPACE) + r"/runs/([\w-]+)/details", path)
        return self.details(found[1], address)

    def answer(self, method, path, query, headers, body):
        if path == "/tenant/oauth2/v2.0/token":
            return self.token(body)
        if path.startswith(("/history/", "/signed/", "/discovery")):
            return self.answer_regional(path, query, headers)
        if headers.get("Authorization") != "Bearer swordfish-of-azure":
            self.refuse(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if query.get("api-version") != ["2025-12-01"]:
            self.refuse(400, "InvalidApiVersionParameter", "The api-version is invalid.")
        if path == WORKSPACE:
            return {"id": WORKSPACE, "properties": {"discoveryUrl": f"http://{headers['Host']}/discovery"}}
        name, _, action = path.removeprefix(WORKSPACE + "/jobs/").partition("/")
        if method == "PUT":
            return self.create(name, body)
        if name not in self.jobs:
            self.refuse(404, "UserError", f"Job {name} was not found.")
        container = self.jobs[name][1]
        if action == "cancel":
            if container.code() is not None:
                self.refuse(400, "UserError", "The job has ended.")
            container.stop()
            return {}
        return self.info(name)
