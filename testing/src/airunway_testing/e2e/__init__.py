"""End to end: every installed provider's samples, and a life of one of them, on whatever upstreams a cluster has.

``make e2e KUBECONFIG=…``, or ``python -m airunway_testing.e2e --kubeconfig …``. Everything happens in one namespace,
which the run makes and takes away. Rooms: `survey` (what the cluster has), `ground` (what the run makes and cleans up),
`life` (what is done with a deployment), `run` (all of it in order), `report` (Markdown and JUnit).
"""
