"""Storage for tests and the sandbox: claims get volumes, and the pods of download Jobs run as processes.

* `volumes`: folders that stand for volumes, also ones that are full after so many bytes;
* `provisioner`: makes PersistentVolumes for the claims of its StorageClasses, as a CSI driver's provisioner does;
* `pod_runner`: plays the kubelet for the pods of the model cache's Jobs;
* `program`: both, and a hub, in one process.
"""
