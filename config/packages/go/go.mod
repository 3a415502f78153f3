module replicaset-controller/devserver

go 1.21
