// Takes the place of pkg/controller/replicaset/replica_set.go: the same
// constructor and Run, but Run starts the daemon; daemon.go has the rest.

package replicaset

import (
	"context"

	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	clientset "k8s.io/client-go/kubernetes"
)

// BurstReplicas is what the tests pass to the constructors.
const BurstReplicas = 500

// replica_set_utils.go, which stays upstream's, needs these two to compile.
const statusUpdateRetries = 1

type ReplicaSetControllerFeatures struct {
	EnableStatusTerminatingReplicas bool
}

// ReplicaSetController is a daemon that controls ReplicaSets.
type ReplicaSetController struct{ Daemon }

// NewReplicaSetController asks both informers into being, as upstream's does:
// the tests wait for what these see.
func NewReplicaSetController(_ context.Context, rsInformer appsinformers.ReplicaSetInformer, podInformer coreinformers.PodInformer, kubeClient clientset.Interface, burstReplicas int) *ReplicaSetController {
	rsInformer.Informer()
	podInformer.Informer()
	return &ReplicaSetController{Daemon{
		Controller:    "replicaset-controller",
		SyncsFlag:     "--concurrent-replicaset-syncs",
		Client:        kubeClient,
		BurstReplicas: burstReplicas,
	}}
}
