"""The program of the `helm test` pod, with the operator's address as its argument. Standard library only."""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
NEEDED = (
    ("rlt.dev/v1alpha1", "rltrainingjobs", "apply the chart's directory crds/"),
    ("rlt.dev/v1alpha1", "rlruntimes", "apply the chart's directory crds/"),
    ("ray.io/v1", "rayclusters", "install KubeRay"),
)


def check_operator(address: str) -> None:
    """Fail unless /readyz returns 200."""
    with urllib.request.urlopen(f"{address}/readyz", timeout=10) as response:
        print(f"ok: {address}/readyz returned {response.read().decode().strip()}")


def check_resource(api: str, resource: str, advice: str) -> None:
    """Fail unless the API server serves the resource."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    with open(f"{SERVICE_ACCOUNT}/token") as file:
        request = urllib.request.Request(f"{address}/apis/{api}", headers={"Authorization": f"Bearer {file.read()}"})
    trust = ssl.create_default_context(cafile=f"{SERVICE_ACCOUNT}/ca.crt")
    try:
        with urllib.request.urlopen(request, timeout=10, context=trust) as response:
            served = {each["name"] for each in json.load(response)["resources"]}
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        served = set()
    if resource not in served:
        sys.exit(f"failed: the API server does not serve {resource} of {api}: {advice}")
    print(f"ok: the API server serves {resource} of {api}")


check_operator(sys.argv[1])
for api, resource, advice in NEEDED:
    check_resource(api, resource, advice)
