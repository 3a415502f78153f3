// Takes the place of pkg/controller/replication/replication_controller.go: the
// same constructor and Run, but Run starts the daemon; daemon.go has the rest.

package replication

import (
	"context"

	coreinformers "k8s.io/client-go/informers/core/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

// BurstReplicas is what the tests pass to the constructor.
const BurstReplicas = replicaset.BurstReplicas

// ReplicationManager is a daemon that controls ReplicationControllers.
type ReplicationManager struct{ replicaset.Daemon }

// NewReplicationManager asks both informers into being, as upstream's does: the
// tests wait for what these see.
func NewReplicationManager(_ context.Context, podInformer coreinformers.PodInformer, rcInformer coreinformers.ReplicationControllerInformer, kubeClient clientset.Interface, burstReplicas int) *ReplicationManager {
	podInformer.Informer()
	rcInformer.Informer()
	return &ReplicationManager{replicaset.Daemon{
		Controller:    "replicationcontroller-controller",
		SyncsFlag:     "--concurrent-rc-syncs",
		Client:        kubeClient,
		BurstReplicas: burstReplicas,
	}}
}
