// Takes the place of pkg/controller/deployment/deployment_controller.go, and of the files that hold
// the rest of that controller: the same constructor and Run, but Run starts the daemon.

package deployment

import (
	"context"

	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

// DeploymentController is a daemon that controls Deployments.
type DeploymentController struct{ replicaset.Daemon }

// NewDeploymentController asks all informers into being, as upstream's does: the
// tests wait for what these see.
func NewDeploymentController(_ context.Context, dInformer appsinformers.DeploymentInformer, rsInformer appsinformers.ReplicaSetInformer, podInformer coreinformers.PodInformer, client clientset.Interface) (*DeploymentController, error) {
	dInformer.Informer()
	rsInformer.Informer()
	podInformer.Informer()
	return &DeploymentController{replicaset.Daemon{
		Controller: "deployment-controller",
		Client:     client,
		// Of no meaning here, and no flag takes less.
		BurstReplicas: replicaset.BurstReplicas,
	}}, nil
}
