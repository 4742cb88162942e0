"""The fake of Azure Machine Learning: command jobs of a workspace, and the token service."""
import urllib.parse

from fake_base import Fake, Refused

WORKSPACE = ("/subscriptions/0000-11/resourceGroups/team/providers/Microsoft.MachineLearningServices/workspaces/ml")


class AzureMl(Fake):
    """The token is only for the principal "app" with the right secret."""

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
        code, status = container.code(), "Running"
        if code is not None:
            status = "Canceled" if container.killed else "Failed" if code else "Completed"
        elif container.killed:
            status = "CancelRequested"
        return {"id": f"{WORKSPACE}/jobs/{name}", "name": name, "properties": {**spec["properties"], "status": status}}

    def create(self, name, body):
        properties = body["properties"]
        if name in self.jobs:
            self.refuse(400, "UserError", f"A job with the name {name} is already there.")
        if properties["computeId"] != WORKSPACE + "/computes/cluster":
            self.refuse(404, "UserError", "The compute target was not found: " + properties["computeId"])
        argv = ["sh", "-c", properties["command"]]
        self.jobs[name] = body, self.start(name, argv, properties["environmentVariables"])
        return self.info(name)

    def answer(self, method, path, query, headers, body):
        if path == "/tenant/oauth2/v2.0/token":
            return self.token(body)
        if headers.get("Authorization") != "Bearer swordfish-of-azure":
            self.refuse(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if query.get("api-version") != ["2025-12-01"]:
            self.refuse(400, "InvalidApiVersionParameter", "The api-version is invalid.")
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
