"""Model servers behind the simulated pods of a control plane: requests to a pod are answered, and pods have logs.

* `egress`: the proxy through which the API server reaches pods and kubelets;
* `pods`: a played model server for each pod that serves a deployment, and its log;
* `logs`: what a kubelet answers when it is asked for a log.
"""
